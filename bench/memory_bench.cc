#include "bench/memory_bench.h"

#include <cmath>
#include <string>

#include "regard/attention/backward.h"
#include "regard/attention/plan.h"

namespace regard::bench {
namespace {

using attention::Align;
using attention::Mask;
using kernel::View;

struct Form {
  const char* op;
  const char* name;
  Mask mask;
  double dropout = 0;
  int64_t key_features = 64;
};

// A plan reads no data.
float nothing = 0;

size_t bytes(const Form& form, int64_t length) {
  const auto view = [&](int64_t features) { return View<float>(&nothing, {1, 8, length, features}); };
  attention::Spec spec;
  spec.mask = form.mask;
  spec.dropout = form.dropout;
  attention::Operands operands;
  operands.q = view(form.key_features);
  operands.k = view(form.key_features);
  operands.v = view(64);
  operands.out = view(64);
  operands.lse = view(1);
  if (std::string(form.op) == "forward") return attention::Plan(spec, operands).workspace_bytes(2);
  attention::Gradients gradients{view(form.key_features), view(form.key_features), view(64), {}, {}, {}};
  return attention::BackwardPlan(spec, operands, {view(64), {}}, gradients).workspace_bytes(2);
}

// Of a straight line through (log L, log bytes).
double fitted_slope(const std::vector<int64_t>& lengths, const std::vector<size_t>& sizes) {
  double x = 0, y = 0, xx = 0, xy = 0;
  const auto n = static_cast<double>(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double a = std::log(static_cast<double>(lengths[i]));
    const double b = std::log(static_cast<double>(sizes[i]));
    x += a;
    y += b;
    xx += a * a;
    xy += a * b;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

}  // namespace

std::vector<nlohmann::ordered_json> memory_bench() {
  const Mask causal = Mask::causal(Align::bottom_right);
  const std::vector<Form> forms = {{"forward", "none", {}},
                                   {"forward", "causal", causal},
                                   {"forward", "window", causal & Mask::window(127, 0, Align::bottom_right)},
                                   {"backward", "none", {}},
                                   {"backward", "causal", causal},
                                   {"backward", "window", causal & Mask::window(127, 0, Align::bottom_right)},
                                   {"backward", "none, dropout 0.1", {}, 0.1},
                                   {"backward", "causal, Dk 192", causal, 0, 192}};
  const std::vector<int64_t> lengths = {4096, 8192, 16384, 32768};
  std::vector<nlohmann::ordered_json> rows;
  for (const Form& form : forms) {
    std::vector<size_t> sizes;
    for (const int64_t length : lengths) sizes.push_back(bytes(form, length));
    nlohmann::ordered_json row;
    row["op"] = form.op;
    row["mask"] = form.name;
    row["Lq"] = lengths;
    row["extra_bytes"] = sizes;
    row["slope"] = fitted_slope(lengths, sizes);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace regard::bench
