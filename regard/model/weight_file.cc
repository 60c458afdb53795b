#include "regard/model/weight_file.h"

#include <ATen/ATen.h>

#include <span>
#include <utility>

#include "regard/io/error.h"

namespace regard::model {
namespace {

int64_t total_bytes(const std::vector<io::Tensor>& tensors) {
  int64_t total = 0;
  for (const io::Tensor& tensor : tensors) total += static_cast<int64_t>(tensor.bytes.size());
  return total;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool aligned(const io::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.bytes.data()) % alignof(float) == 0;
}

}  // namespace

WeightFile::WeightFile(std::shared_ptr<const io::ModelFolder> folder)
    : file_(folder),
      find_([folder = folder.get()](std::string_view name) { return folder->find(name); }),
      source_(folder->path().string()) {
  for (const io::Safetensors& shard : folder->shards()) bytes_ += total_bytes(shard.tensors());
}

WeightFile::WeightFile(std::shared_ptr<const io::Gguf> gguf)
    : file_(gguf),
      find_([gguf = gguf.get()](std::string_view name) { return gguf->find(name); }),
      source_(gguf->source()),
      bytes_(total_bytes(gguf->tensors())) {}

WeightFile::WeightFile(std::shared_ptr<const io::E5File> file)
    : file_(file),
      find_([file = file.get()](std::string_view name) { return file->find(name); }),
      source_(file->source()),
      bytes_(total_bytes(file->tensors())) {}

const io::Tensor& WeightFile::require(const std::string& name, const std::vector<int64_t>& shape) const {
  const io::Tensor* tensor = find_(name);
  if (tensor == nullptr) {
    io::fail(source_, "the tensor " + name + " is missing; its shape would be " + shape_text(shape));
  }
  if (tensor->shape != shape) {
    io::fail(source_, "the tensor " + name + " has the shape " + tensor->shape_text() + "; expected " +
                          shape_text(shape));
  }
  if (!io::is_float(tensor->type) && !io::is_quantized(tensor->type)) {
    io::fail(source_, "the tensor " + name + " is of the type " + std::string(io::type_name(tensor->type)) +
                          "; weights must be floats or quantised blocks");
  }
  return *tensor;
}

// float32 over the file's memory, or a copy.
at::Tensor WeightFile::dense(const io::Tensor& tensor) const {
  if (tensor.type == io::Type::f32 && aligned(tensor)) {
    // Mapped read-only; nothing here writes to weights.
    auto* data = const_cast<std::byte*>(tensor.bytes.data());
    return at::from_blob(
        data, tensor.shape, [keep = file_](void*) {}, at::TensorOptions().dtype(at::kFloat));
  }
  at::Tensor copy = at::empty(tensor.shape, at::kFloat);
  io::dequantize(tensor, 0, tensor.rows(),
                 std::span(copy.mutable_data_ptr<float>(), static_cast<size_t>(copy.numel())));
  return copy;
}

layer::Weight WeightFile::matrix(const std::string& name, int64_t rows, int64_t columns,
                                 std::vector<int64_t> order) const {
  if (order.empty()) return part(name, rows, 0, rows, columns);
  const io::Tensor& tensor = require(name, {rows, columns});
  const auto width = static_cast<size_t>(columns);
  return layer::Weight(rows, columns,
                       [keep = file_, tensor = &tensor, order = std::move(order), width](
                           int64_t begin, int64_t end, float* out) {
                         for (int64_t r = begin; r < end; ++r, out += width) {
                           const int64_t from = order[static_cast<size_t>(r)];
                           io::dequantize(*tensor, from, from + 1, std::span(out, width));
                         }
                       });
}

layer::Weight WeightFile::part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                               int64_t columns) const {
  const io::Tensor& tensor = require(name, {all_rows, columns});
  if (tensor.type == io::Type::f32 && aligned(tensor)) {
    return layer::Weight(dense(tensor).narrow(0, begin, rows));
  }
  return layer::Weight(
      rows, columns,
      [keep = file_, tensor = &tensor, first = begin, columns](int64_t from, int64_t to, float* out) {
        io::dequantize(*tensor, first + from, first + to,
                       std::span(out, static_cast<size_t>((to - from) * columns)));
      });
}

layer::Weight WeightFile::transposed_part(const std::string& name, int64_t all_rows, int64_t begin,
                                          int64_t rows, int64_t columns) const {
  return layer::Weight(dense(require(name, {columns, all_rows})).t().narrow(0, begin, rows));
}

at::Tensor WeightFile::vector(const std::string& name, int64_t size) const {
  const io::Tensor& tensor = require(name, {size});
  at::Tensor copy = at::empty({size}, at::kFloat);
  io::dequantize(tensor, 0, 1, std::span(copy.mutable_data_ptr<float>(), static_cast<size_t>(size)));
  return copy;
}

}  // namespace regard::model
