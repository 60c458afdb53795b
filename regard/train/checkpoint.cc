#include "regard/train/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "regard/io/error.h"
#include "regard/io/safetensors.h"

namespace regard::train {
namespace {

constexpr std::string_view kFormat = "regard checkpoint 1";
constexpr std::string_view kBegin = "checkpoint-";
constexpr std::string_view kEnd = ".safetensors";

// The step in a checkpoint's name; -1 for any other name.
int64_t step_in(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return -1;
  const std::string_view digits =
      std::string_view(name).substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return error == std::errc() && end == digits.data() + digits.size() ? step : -1;
}

// Newest first.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (step_in(entry.path()) >= 0) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return step_in(a) > step_in(b); });
  return out;
}

io::Tensor view_of(const std::string& name, const at::Tensor& value) {
  const std::vector<int64_t> shape = value.sizes().vec();
  const auto count = static_cast<size_t>(value.numel());
  if (value.scalar_type() == at::kLong) {
    return io::view(name, shape, std::span(value.const_data_ptr<int64_t>(), count));
  }
  return io::view(name, shape, std::span(value.const_data_ptr<float>(), count));
}

at::Tensor copy_of(const io::Tensor& tensor, const std::string& source) {
  const at::Tensor out = at::empty(tensor.shape, tensor.type == io::Type::i64 ? at::kLong : at::kFloat);
  if (tensor.type != io::Type::i64 && tensor.type != io::Type::f32) {
    io::fail(source, "the tensor " + tensor.name + " is " + std::string(io::type_name(tensor.type)) +
                         "; a checkpoint holds f32 and i64");
  }
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), static_cast<std::byte*>(out.mutable_data_ptr()));
  return out;
}

const std::string& word_of(const Checkpoint& checkpoint, const std::string& key,
                           const std::filesystem::path& path) {
  const auto found = checkpoint.state.find(key);
  if (found == checkpoint.state.end()) io::fail(path.string(), "its metadata lacks " + io::quoted(key));
  return found->second;
}

}  // namespace

std::filesystem::path checkpoint_path(const std::filesystem::path& folder, int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return folder / (std::string(kBegin) + digits + std::string(kEnd));
}

void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  std::vector<at::Tensor> alive;  // contiguous copies where needed
  std::vector<io::Tensor> tensors;
  const auto add = [&](const char* group, const std::vector<Parameters::Named>& all) {
    for (const Parameters::Named& named : all) {
      alive.push_back(named.value.detach().contiguous());
      tensors.push_back(view_of(group + named.name, alive.back()));
    }
  };
  add("model/", checkpoint.model);
  add("optimizer/", checkpoint.optimizer);
  std::map<std::string, std::string> metadata = checkpoint.state;
  metadata["format"] = kFormat;
  metadata["step"] = std::to_string(checkpoint.step);
  io::write_safetensors(path, tensors, metadata);
}

Checkpoint read_checkpoint(const std::filesystem::path& path) {
  const io::Safetensors file = io::Safetensors::open(path);
  Checkpoint out;
  out.state = file.metadata();
  const auto format = out.state.find("format");
  if (format == out.state.end() || format->second != kFormat) {
    io::fail(path.string(), "this is no checkpoint of a training (its metadata does not say \"" +
                                std::string(kFormat) + "\")");
  }
  out.step = whole_number(out, "step", path);
  out.state.erase("format");
  out.state.erase("step");
  for (const io::Tensor& tensor : file.tensors()) {
    const auto slash = tensor.name.find('/');
    const std::string group = tensor.name.substr(0, slash);
    if (slash == std::string::npos || (group != "model" && group != "optimizer")) {
      io::fail(path.string(), "the tensor " + tensor.name + " belongs to no part of a checkpoint");
    }
    auto& into = group == "model" ? out.model : out.optimizer;
    into.push_back({tensor.name.substr(slash + 1), copy_of(tensor, path.string())});
  }
  return out;
}

std::string exact(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::hex).ptr;
  return {text, end};
}

double number(const Checkpoint& checkpoint, const std::string& key, const std::filesystem::path& path) {
  const std::string& text = word_of(checkpoint, key, path);
  double out = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out, std::chars_format::hex);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(out))
    io::fail(path.string(), key + " is " + io::quoted(text) + "; it must be a number");
  return out;
}

int64_t whole_number(const Checkpoint& checkpoint, const std::string& key,
                     const std::filesystem::path& path) {
  const std::string& text = word_of(checkpoint, key, path);
  int64_t out = -1;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  if (read.ec != std::errc() || read.ptr != end || out < 0)
    io::fail(path.string(), key + " is " + io::quoted(text) + "; it must be a whole number from 0");
  return out;
}

std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder) {
  const auto all = checkpoints(folder);
  if (all.empty()) return std::nullopt;
  return all.front();
}

void remove_old_checkpoints(const std::filesystem::path& folder, int64_t keep) {
  const auto all = checkpoints(folder);
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 1)); i < all.size(); ++i) {
    std::error_code ignored;  // one that stays costs disk, no more
    std::filesystem::remove(all[i], ignored);
  }
}

}  // namespace regard::train
