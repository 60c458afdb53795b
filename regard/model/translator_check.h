#pragma once

#include <cstdint>
#include <vector>

#include "regard/model/translator.h"

// What every translator asks of its callers. Throw std::invalid_argument, one sentence.
namespace regard::model {

// ids [B, S] int64, none of the sizes 0, S at most max_positions; lengths int64 [B] from 1 to S.
void check_source(const Source& source, int64_t max_positions);
// [B, T] int64 with the source's B, T from 1 to max_positions.
void check_target(const at::Tensor& target, const Source& source, int64_t max_positions);
void check_capacity(int64_t capacity, int64_t max_positions);
// ids of one step: int64 [rows], after `written` tokens of a decoding begun for `capacity`.
void check_step(const at::Tensor& ids, int64_t rows, int64_t written, int64_t capacity);
// rows: [N] int64, or throws.
std::vector<int64_t> row_numbers(const at::Tensor& rows);
[[noreturn]] void refuse_decoding();  // it was begun by another model
[[noreturn]] void refuse_cache();     // the context has one

}  // namespace regard::model
