#pragma once

#include <cstdint>

#include "regard/kernel/parallel.h"

// Softmax of rows, by the three ways that it is taught in. They differ in how often they go over memory and
// in what they survive.
namespace regard::kernel {

enum class SoftmaxWay : uint8_t {
  naive,  // exp(x) / sum of exp(x): infinite for x > 88
  safe,   // the maximum first, then the sum, then the result (Bridle 1990)
  online  // maximum and sum in one pass, rescaling the sum as the maximum rises (Milakov and Gimelshein 2018,
          // arXiv 1805.02867, algorithm 3)
};

// What a call went over, counted by its passes as they go: bytes of all rows, once for each pass.
struct SoftmaxTraffic {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
};

// Rows of `columns` floats, the first of each row `stride` floats behind that of the row before.
struct Rows2d {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

// out = softmax(x), or with log: x - max - ln(sum of exp(x - max)), never the logarithm of a softmax. x and
// out have the same rows and may be the same memory. A row of nothing but -infinity is a row that sees
// nothing: 0 (log: -infinity). A NaN makes its row NaN; so does +infinity. float32, exp to 8e-8; sums over
// lanes, the same bits for any number of workers. Returns what was read and written.
SoftmaxTraffic softmax(SoftmaxWay way, bool log, const Rows2d& rows, const float* x, float* out,
                       Parallel& parallel);

// grad_x from the result y: y (grad - sum of y grad), or with log: grad - exp(y) sum of grad. All have the
// same rows; grad_x may be grad.
void softmax_backward(bool log, const Rows2d& rows, const float* y, const float* grad, float* grad_x,
                      Parallel& parallel);

}  // namespace regard::kernel
