#include "regard/train/not_finite.h"

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

namespace regard::train {
namespace {

bool finite(const at::Tensor& tensor) {
  return !tensor.defined() || !tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>();
}

// "a.mlp.gate.weight+a.mlp.up.weight", whose products are one, -> "a.mlp.gate+up".
std::string layer_of(std::string_view parameter) {
  std::string out;
  for (size_t begin = 0; begin < parameter.size();) {
    const size_t end = std::min(parameter.find('+', begin), parameter.size());
    std::string_view part = parameter.substr(begin, end - begin);
    part = part.substr(0, part.rfind('.'));
    out += out.empty() ? std::string(part) : '+' + std::string(part.substr(part.rfind('.') + 1));
    begin = end + 1;
  }
  return out;
}

// As messages show it.
std::string shown(const std::string& parameter) {
  return parameter.find('+') == std::string::npos ? parameter : layer_of(parameter);
}

// Sees the operators that this thread runs while it lives.
class OperatorWatch {
 public:
  explicit OperatorWatch(const std::vector<Parameters::Named>& parameters) {
    for (const Parameters::Named& named : parameters)
      layers_.emplace(named.value.storage().data(), layer_of(named.name));
    current_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(before, after)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorWatch() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  // "" where all was finite.
  const std::string& found() const { return found_; }

 private:
  struct Call : at::ObserverContext {
    std::string layer;
    bool mixes = false;  // the parameter with other numbers
  };

  static std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
    if (value.isTensor()) return {value.toTensor()};
    if (value.isTensorList()) return value.toTensorVector();
    return {};
  }

  // "" for what is no parameter.
  std::string layer_with(const at::Tensor& tensor) const {
    if (!tensor.defined() || !tensor.has_storage()) return "";
    const auto found = layers_.find(tensor.storage().data());
    return found == layers_.end() ? "" : found->second;
  }

  void look(const at::Tensor& tensor, const std::string& layer, const char* does) {
    if (found_.empty() && !finite(tensor)) found_ = "what " + layer + does;
  }

  static std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& running) {
    if (current_ == nullptr) return nullptr;
    const at::DisableRecordFunctionGuard unseen;
    const at::NoGradGuard no_grad;
    auto call = std::make_unique<Call>();
    std::vector<at::Tensor> others;
    const auto schema = running.operator_schema();
    for (size_t i = 0; i < running.inputs().size(); ++i) {
      // What an operator writes to holds anything before.
      const auto* alias =
          schema && i < schema->arguments().size() ? schema->arguments()[i].alias_info() : nullptr;
      if (alias != nullptr && alias->isWrite()) continue;
      for (const at::Tensor& tensor : tensors_in(running.inputs()[i])) {
        const std::string layer = current_->layer_with(tensor);
        if (call->layer.empty()) call->layer = layer;
        if (layer.empty() && tensor.defined() && tensor.is_floating_point()) others.push_back(tensor);
      }
    }
    if (call->layer.empty()) return nullptr;
    call->mixes = !others.empty();
    for (const at::Tensor& other : others) current_->look(other, call->layer, " reads");
    return call;
  }

  static void after(const at::RecordFunction& running, at::ObserverContext* context) {
    const auto* call = static_cast<const Call*>(context);
    if (current_ == nullptr || call == nullptr) return;
    const at::DisableRecordFunctionGuard unseen;
    const at::NoGradGuard no_grad;
    for (const c10::IValue& value : running.outputs()) {
      for (const at::Tensor& tensor : tensors_in(value)) {
        if (call->mixes) {
          current_->look(tensor, call->layer, " makes");
        } else if (std::string_view(running.name()) == "aten::_to_copy") {  // a rounded parameter is one too
          current_->rounded_.push_back(tensor);
          current_->layers_.emplace(tensor.storage().data(), call->layer);
        }
      }
    }
  }

  static thread_local OperatorWatch* current_;
  at::CallbackHandle handle_ = 0;
  std::map<const void*, std::string> layers_;  // by where their parameters lie
  std::vector<at::Tensor> rounded_;
  std::string found_;
};

thread_local OperatorWatch* OperatorWatch::current_ = nullptr;

}  // namespace

std::string parameter_not_finite(const std::vector<Parameters::Named>& parameters) {
  const at::NoGradGuard no_grad;
  for (const Parameters::Named& named : parameters) {
    if (!finite(named.value)) return "the parameter " + shown(named.name);
  }
  return "";
}

std::string first_not_finite(Task& task, int64_t pass) {
  const std::vector<Parameters::Named>& parameters = task.parameters();
  if (std::string parameter = parameter_not_finite(parameters); !parameter.empty()) return parameter;
  at::Tensor loss;
  {
    const OperatorWatch watch(parameters);
    loss = task.loss(pass);
    if (!finite(loss)) return watch.found().empty() ? "the loss itself" : watch.found();
  }
  std::string found;
  std::vector<std::pair<at::Tensor, unsigned>> hooks;  // called from the loss backwards
  for (const Parameters::Named& named : parameters) {
    hooks.emplace_back(named.value, named.value.register_hook([&found, &named](const at::Tensor& gradient) {
      if (found.empty() && !finite(gradient)) found = "the gradient of " + shown(named.name);
    }));
  }
  loss.backward();
  for (const auto& [parameter, hook] : hooks) parameter.remove_hook(hook);
  return found;
}

}  // namespace regard::train
