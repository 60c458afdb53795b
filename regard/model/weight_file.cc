#include "regard/model/weight_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "regard/autograd/parallel.h"
#include "regard/io/block_groups.h"
#include "regard/io/error.h"
#include "regard/io/mapped_file.h"

namespace regard::model {
namespace {

int64_t total_bytes(const std::vector<io::Tensor>& tensors) {
  int64_t total = 0;
  for (const io::Tensor& tensor : tensors) total += static_cast<int64_t>(tensor.bytes.size());
  return total;
}

bool aligned(const io::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.bytes.data()) % alignof(float) == 0;
}

void release(const io::MappedFile* file, const io::Tensor& tensor) {
  if (file == nullptr) return;
  const auto all = file->bytes();
  if (tensor.bytes.data() >= all.data() &&
      tensor.bytes.data() + tensor.bytes.size() <= all.data() + all.size()) {
    file->release(tensor.bytes);
  }
}

// Rows are set by several threads, each with its own scratch.
constexpr int64_t kRowsPerTask = 64;

// dense as it is, and as products read it; rows: the same numbers, row after row.
layer::Weight packed(const at::Tensor& dense, const at::Tensor& rows) {
  return {dense, std::make_shared<kernel::PackedMatrix>(rows.const_data_ptr<float>(), rows.size(0),
                                                        rows.size(1), rows.size(1), autograd::at_parallel())};
}

template <class Set>
void each_row(int64_t rows, Set&& set) {
  autograd::at_parallel().run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    set(task * kRowsPerTask, std::min(rows, (task + 1) * kRowsPerTask));
  });
}

}  // namespace

WeightFile::WeightFile(std::shared_ptr<const io::ModelFolder> folder, Precision precision)
    : file_(folder),
      find_([folder = folder.get()](std::string_view name) { return folder->find(name); }),
      release_([folder = folder.get()](const io::Tensor& tensor) {
        for (const io::Safetensors& shard : folder->shards()) release(shard.file(), tensor);
      }),
      precision_(precision),
      source_(folder->path().string()) {
  for (const io::Safetensors& shard : folder->shards()) bytes_ += total_bytes(shard.tensors());
}

WeightFile::WeightFile(std::shared_ptr<const io::Gguf> gguf, Precision precision)
    : file_(gguf),
      find_([gguf = gguf.get()](std::string_view name) { return gguf->find(name); }),
      release_([gguf = gguf.get()](const io::Tensor& tensor) { release(gguf->file(), tensor); }),
      precision_(precision),
      source_(gguf->source()),
      bytes_(total_bytes(gguf->tensors())) {}

WeightFile::WeightFile(std::shared_ptr<const io::E5File> file, Precision precision)
    : file_(file),
      find_([file = file.get()](std::string_view name) { return file->find(name); }),
      release_([file = file.get()](const io::Tensor& tensor) { release(file->file(), tensor); }),
      precision_(precision),
      source_(file->source()),
      bytes_(total_bytes(file->tensors())) {}

const io::Tensor& WeightFile::require(const std::string& name, const std::vector<int64_t>& shape) const {
  const io::Tensor* tensor = find_(name);
  if (tensor == nullptr) {
    io::fail(source_, "the tensor " + name + " is missing; its shape would be " + io::shape_text(shape));
  }
  if (tensor->shape != shape) {
    io::fail(source_, "the tensor " + name + " has the shape " + tensor->shape_text() + "; expected " +
                          io::shape_text(shape));
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
  if (precision_ == Precision::int8) return stacked({{name, rows, std::move(order)}}, columns);
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
  if (precision_ == Precision::int8) {
    auto matrix = std::make_shared<kernel::QuantizedMatrix>(format_of(tensor), rows, columns);
    fill(*matrix, 0, rows, tensor, begin, {});
    return layer::Weight(std::move(matrix));
  }
  layer::Weight weight = rows_of(tensor, begin, rows, columns);
  if (!weight.dense().defined()) return weight;
  layer::Weight both = packed(weight.dense(), weight.dense());
  release_(tensor);
  return both;
}

layer::Weight WeightFile::table(const std::string& name, int64_t rows, int64_t columns) const {
  return rows_of(require(name, {rows, columns}), 0, rows, columns);
}

bool WeightFile::in_blocks(const std::string& name) const {
  const io::Tensor* tensor = find_(name);
  return tensor != nullptr && io::is_quantized(tensor->type);
}

layer::Weight WeightFile::stacked(const std::vector<Rows>& parts, int64_t columns) const {
  if (precision_ != Precision::int8) return {};
  int64_t all = 0;
  for (const Rows& part : parts) {
    if (format_of(require(part.name, {part.rows, columns})) !=
        format_of(require(parts[0].name, {parts[0].rows, columns})))
      return {};
    all += part.rows;
  }
  auto matrix = std::make_shared<kernel::QuantizedMatrix>(format_of(*find_(parts[0].name)), all, columns);
  int64_t first = 0;
  for (const Rows& part : parts) {
    fill(*matrix, first, part.rows, *find_(part.name), 0, part.order);
    first += part.rows;
  }
  return layer::Weight(std::move(matrix));
}

kernel::QuantizedFormat WeightFile::format_of(const io::Tensor& tensor) const {
  const auto form = io::block_form(tensor.type);
  return form ? kernel::QuantizedFormat{form->bits, form->group, form->has_minimum} : kernel::kInt8Format;
}

void WeightFile::fill(kernel::QuantizedMatrix& matrix, int64_t first, int64_t rows, const io::Tensor& tensor,
                      int64_t begin, const Order& order) const {
  const auto columns = static_cast<size_t>(matrix.columns());
  const auto row_of = [&](int64_t r) { return order.empty() ? begin + r : order[static_cast<size_t>(r)]; };
  const bool blocks = io::is_quantized(tensor.type);
  each_row(rows, [&](int64_t from, int64_t to) {
    std::vector<float> weights(blocks ? 0 : columns);
    std::vector<uint8_t> values(blocks ? columns : 0);
    std::vector<float> scales(blocks ? columns / 16 + 1 : 0), minima(scales.size());
    for (int64_t r = from; r < to; ++r) {
      if (blocks) {
        io::read_groups(tensor, row_of(r), values.data(), scales.data(), minima.data());
        matrix.set_row(first + r, values.data(), scales.data(), minima.data());
      } else {
        io::dequantize(tensor, row_of(r), row_of(r) + 1, weights);
        matrix.round_row(first + r, weights.data());
      }
    }
  });
  release_(tensor);
}

layer::Weight WeightFile::rows_of(const io::Tensor& tensor, int64_t begin, int64_t rows,
                                  int64_t columns) const {
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
  const at::Tensor part = dense(require(name, {columns, all_rows})).t().narrow(0, begin, rows);
  const at::Tensor whole = part.contiguous();
  if (precision_ != Precision::int8) return packed(part, whole);
  auto matrix = std::make_shared<kernel::QuantizedMatrix>(kernel::kInt8Format, rows, columns);
  each_row(rows, [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) matrix->round_row(r, whole.const_data_ptr<float>() + r * columns);
  });
  return layer::Weight(std::move(matrix));
}

at::Tensor WeightFile::vector(const std::string& name, int64_t size) const {
  at::Tensor copy = at::empty({size}, at::kFloat);
  take(name, copy);
  return copy;
}

void WeightFile::take(const std::string& name, at::Tensor& parameter, bool /*begun*/) const {
  const io::Tensor& tensor = require(name, parameter.sizes().vec());
  io::dequantize(tensor, 0, tensor.rows(),
                 std::span(parameter.mutable_data_ptr<float>(), static_cast<size_t>(parameter.numel())));
}

}  // namespace regard::model
