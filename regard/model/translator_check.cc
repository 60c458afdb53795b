#include "regard/model/translator_check.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

#include "regard/model/shape_text.h"

namespace regard::model {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("translator: " + what);
}

void check_ids(const char* what, const at::Tensor& ids, int64_t max_positions) {
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0) {
    refuse(std::string(what) + " ids are " + shape_text(ids) +
           "; they must be int64 [batch, tokens], at least one of each");
  }
  if (ids.size(1) > max_positions) {
    refuse(std::string("the ") + what + " has " + std::to_string(ids.size(1)) + " tokens; the model takes " +
           std::to_string(max_positions));
  }
}

}  // namespace

void check_source(const Source& source, int64_t max_positions) {
  check_ids("source", source.ids, max_positions);
  const at::Tensor& lengths = source.lengths;
  if (!lengths.defined()) return;
  if (lengths.dim() != 1 || lengths.size(0) != source.ids.size(0) || lengths.scalar_type() != at::kLong ||
      lengths.min().item<int64_t>() < 1 || lengths.max().item<int64_t>() > source.ids.size(1)) {
    refuse("source lengths are " + shape_text(lengths) + "; they must be int64 [" +
           std::to_string(source.ids.size(0)) + "], from 1 to " + std::to_string(source.ids.size(1)));
  }
}

void check_target(const at::Tensor& target, const Source& source, int64_t max_positions) {
  check_ids("target", target, max_positions);
  if (target.size(0) != source.ids.size(0)) {
    refuse("there are " + std::to_string(target.size(0)) + " targets for " +
           std::to_string(source.ids.size(0)) + " sources");
  }
}

void check_capacity(int64_t capacity, int64_t max_positions) {
  if (capacity < 1 || capacity > max_positions) {
    refuse("capacity is " + std::to_string(capacity) + "; it must be from 1 to the model's " +
           std::to_string(max_positions));
  }
}

void check_step(const at::Tensor& ids, int64_t rows, int64_t written, int64_t capacity) {
  if (!ids.defined() || ids.dim() != 1 || ids.scalar_type() != at::kLong || ids.size(0) != rows) {
    refuse("the ids of a step are " + shape_text(ids) + "; they must be int64 [" + std::to_string(rows) +
           "]");
  }
  if (written >= capacity) {
    refuse("position " + std::to_string(written + 1) + " does not fit; the capacity is " +
           std::to_string(capacity));
  }
}

std::vector<int64_t> row_numbers(const at::Tensor& rows) {
  if (!rows.defined() || rows.dim() != 1 || rows.scalar_type() != at::kLong) {
    refuse("rows are " + shape_text(rows) + "; they must be int64 [rows]");
  }
  const at::Tensor held = rows.contiguous();
  const auto* data = held.const_data_ptr<int64_t>();
  return {data, data + held.numel()};
}

void refuse_decoding() {
  refuse("the decoding was begun by another model");
}

void refuse_cache() {
  refuse("the context has a cache; begin() and step() keep their own");
}

}  // namespace regard::model
