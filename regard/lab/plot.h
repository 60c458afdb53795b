#pragma once

#include "regard/io/canvas.h"
#include "regard/lab/experiment.h"

namespace regard::lab {

// The plots of a result, one below the other, each with axes, ticks and a legend. Without plots: nothing to
// draw, std::invalid_argument.
io::Canvas draw(const std::vector<Plot>& plots);

// Round numbers between the ends of an axis, 3 to 8 of them; on a logarithmic axis powers of ten, or 1, 2 and
// 5 times them where the ends are near.
std::vector<double> ticks(double low, double high, bool logarithmic);

}  // namespace regard::lab
