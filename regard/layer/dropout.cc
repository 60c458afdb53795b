#include "regard/layer/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string>

#include "regard/autograd/parallel.h"
#include "regard/kernel/dropout.h"

namespace regard::layer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class T>
at::Tensor kept_of(const at::Tensor& x, const kernel::Dropout& drawn) {
  at::Tensor out = at::empty(x.sizes(), x.options());
  kernel::drop_elements(drawn, x.const_data_ptr<T>(), x.numel(), out.mutable_data_ptr<T>(),
                        autograd::at_parallel());
  return out;
}

// Saves nothing: what was kept is drawn again.
struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const kernel::Dropout& drawn) {
    context->saved_data["threshold"] = static_cast<int64_t>(drawn.threshold);
    context->saved_data["seed"] = static_cast<int64_t>(drawn.seed);
    context->saved_data["offset"] = static_cast<int64_t>(drawn.offset);
    const at::Tensor whole = x.contiguous();
    return x.scalar_type() == at::kDouble ? kept_of<double>(whole, drawn) : kept_of<float>(whole, drawn);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto number = [&](const char* name) {
      return static_cast<uint64_t>(context->saved_data[name].toInt());
    };
    kernel::Dropout drawn;
    drawn.threshold = static_cast<uint32_t>(number("threshold"));
    drawn.seed = number("seed");
    drawn.offset = number("offset");
    // Through the function itself, so that a second derivative is right too.
    return {DropoutFunction::apply(grads[0], drawn), at::Tensor()};
  }
};

// Counts the call.
kernel::Dropout next(double probability, Context& context) {
  kernel::Dropout drawn;
  drawn.threshold = static_cast<uint32_t>(std::lround(probability * 65536));
  drawn.seed = context.dropout_seed;
  drawn.offset = context.dropout_calls++;
  return drawn;
}

// Whether anything is to be dropped.
bool drops(double probability, const Context& context) {
  if (!(probability >= 0 && probability < 1) || std::lround(probability * 65536) == 65536) {
    throw std::invalid_argument("dropout: probability is " + std::to_string(probability) +
                                "; it must be from 0 to below 1");
  }
  return context.training && probability > 0;
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double probability, Context& context) {
  if (!drops(probability, context)) return x;
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble) {
    std::ostringstream text;
    text << "dropout: x is " << x.scalar_type() << "; it must be float32 or float64";
    throw std::invalid_argument(text.str());
  }
  return DropoutFunction::apply(x, next(probability, context));
}

void drop_weights(double probability, Context& context, attention::Spec& spec,
                  autograd::AttentionExtras& extras) {
  if (!drops(probability, context)) return;
  const kernel::Dropout drawn = next(probability, context);
  spec.dropout = probability;
  extras.dropout_seed = drawn.seed;
  extras.dropout_offset = drawn.offset;
}

}  // namespace regard::layer
