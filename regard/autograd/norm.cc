#include "regard/autograd/norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/autograd/parallel.h"
#include "regard/autograd/second_derivative.h"

namespace regard::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kTaskRows = 64;  // rows whose part of the weight's gradient is summed together

// float64 by the definition; float32 has kernels (kernel/norm.h).
struct Row {
  double mean;
  double inverse;    // what x - mean is multiplied by
  double deviation;  // harvard
};

Row measure(kernel::NormForm kind, const double* x, int64_t n, double epsilon) {
  Row row{0, 0, 0};
  if (kind != kernel::NormForm::rms) {
    for (int64_t i = 0; i < n; ++i) row.mean += x[i];
    row.mean /= static_cast<double>(n);
  }
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double away = x[i] - row.mean;
    squares += away * away;
  }
  if (kind == kernel::NormForm::harvard) {
    row.deviation = std::sqrt(squares / static_cast<double>(n - 1));
    row.inverse = 1 / (row.deviation + epsilon);
  } else {
    row.inverse = 1 / std::sqrt(squares / static_cast<double>(n) + epsilon);
  }
  return row;
}

template <class T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

int64_t tasks(int64_t rows) {
  return (rows + kTaskRows - 1) / kTaskRows;
}

void forward_rows(kernel::NormForm kind, const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias, double epsilon, at::Tensor& out) {
  const int64_t n = x.size(-1);
  const int64_t rows = n == 0 ? 0 : x.numel() / n;
  const double* from = x.const_data_ptr<double>();
  const double* w = data_or_null<double>(weight);
  const double* b = data_or_null<double>(bias);
  double* to = out.mutable_data_ptr<double>();
  at_parallel().run(tasks(rows), [&](int64_t task, int /*worker*/) {
    for (int64_t r = task * kTaskRows; r < std::min(rows, (task + 1) * kTaskRows); ++r) {
      const Row row = measure(kind, from + r * n, n, epsilon);
      for (int64_t i = 0; i < n; ++i) {
        double y = (from[r * n + i] - row.mean) * row.inverse;
        if (w != nullptr) y *= w[i];
        if (b != nullptr) y += b[i];
        to[r * n + i] = y;
      }
    }
  });
}

// With g = grad * weight and y = (x - mean) * inverse:
// layer: inverse (g - mean(g) - y mean(g y)); rms without mean(g); harvard: inverse (g - mean(g)) - y sum(g
// y) / (deviation (n - 1)).
void backward_rows(kernel::NormForm kind, const at::Tensor& x, const at::Tensor& weight,
                   const at::Tensor& grad, double epsilon, at::Tensor& grad_x, std::vector<double>& sums) {
  const int64_t n = x.size(-1);
  const int64_t rows = n == 0 ? 0 : x.numel() / n;
  const double* from = x.const_data_ptr<double>();
  const double* w = data_or_null<double>(weight);
  const double* arriving = grad.const_data_ptr<double>();
  double* to = grad_x.mutable_data_ptr<double>();
  std::vector<double> parts(static_cast<size_t>(tasks(rows) * 2 * n));
  at_parallel().run(tasks(rows), [&](int64_t task, int /*worker*/) {
    double* of_weight = parts.data() + task * 2 * n;
    double* of_bias = of_weight + n;
    for (int64_t r = task * kTaskRows; r < std::min(rows, (task + 1) * kTaskRows); ++r) {
      const Row row = measure(kind, from + r * n, n, epsilon);
      const double* g_row = arriving + r * n;
      const auto normalized = [&](int64_t i) { return (from[r * n + i] - row.mean) * row.inverse; };
      const auto graded = [&](int64_t i) { return g_row[i] * (w != nullptr ? w[i] : 1.0); };
      double sum = 0;
      double dot = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double y = normalized(i);
        sum += graded(i);
        dot += graded(i) * y;
        of_weight[i] += g_row[i] * y;
        of_bias[i] += g_row[i];
      }
      const double mean = kind == kernel::NormForm::rms ? 0.0 : sum / static_cast<double>(n);
      double along = row.inverse * dot / static_cast<double>(n);
      if (kind == kernel::NormForm::harvard)
        along = row.deviation > 0 ? dot / (row.deviation * static_cast<double>(n - 1)) : 0.0;
      for (int64_t i = 0; i < n; ++i)
        to[r * n + i] = row.inverse * (graded(i) - mean) - along * normalized(i);
    }
  });
  sums.assign(static_cast<size_t>(2 * n), 0.0);
  for (int64_t task = 0; task < tasks(rows); ++task)
    for (int64_t i = 0; i < 2 * n; ++i) sums[i] += parts[task * 2 * n + i];
}

// float32 as the kernels take it.
kernel::NormRows rows_of(kernel::NormForm kind, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias, double epsilon) {
  const int64_t n = x.size(-1);
  return {.form = kind,
          .x = x.const_data_ptr<float>(),
          .rows = n == 0 ? 0 : x.numel() / n,
          .n = n,
          .weight = data_or_null<float>(weight),
          .bias = data_or_null<float>(bias),
          .epsilon = epsilon};
}

at::Tensor run_forward(kernel::NormForm kind, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, double epsilon) {
  at::Tensor out = at::empty_like(x);
  if (x.scalar_type() == at::kDouble)
    forward_rows(kind, x, weight, bias, epsilon, out);
  else
    kernel::norm(rows_of(kind, x, weight, bias, epsilon), out.mutable_data_ptr<float>(), at_parallel());
  return out;
}

std::optional<at::Tensor> given(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  static at::Tensor forward(AutogradContext* context, int64_t kind, const at::Tensor& x,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            double epsilon) {
    const at::Tensor w = weight ? *weight : at::Tensor();
    context->save_for_backward({x, w});
    context->saved_data["kind"] = kind;
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["weight"] = w.defined();
    context->saved_data["bias"] = bias.has_value();
    return run_forward(static_cast<kernel::NormForm>(kind), x, w, bias ? *bias : at::Tensor(), epsilon);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("normalize");
    const variable_list saved = context->get_saved_variables();
    const auto kind = static_cast<kernel::NormForm>(context->saved_data["kind"].toInt());
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const at::Tensor& x = saved[0];
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor grad_x = at::empty_like(x);
    std::vector<double> sums;
    if (x.scalar_type() == at::kDouble)
      backward_rows(kind, x, saved[1], grad, epsilon, grad_x, sums);
    else
      kernel::norm_backward(rows_of(kind, x, saved[1], {}, epsilon), grad.const_data_ptr<float>(),
                            grad_x.mutable_data_ptr<float>(), sums, at_parallel());
    const int64_t n = x.size(-1);
    const auto part = [&](int64_t first) {
      return at::from_blob(sums.data() + first, {n}, at::kDouble).to(x.scalar_type(), false, true);
    };
    return {at::Tensor(), grad_x, context->saved_data["weight"].toBool() ? part(0) : at::Tensor(),
            context->saved_data["bias"].toBool() ? part(n) : at::Tensor(), at::Tensor()};
  }
};

void check(const at::Tensor& x, const at::Tensor& parameter, const char* name) {
  if (parameter.defined() && (parameter.dim() != 1 || parameter.size(0) != x.size(-1) ||
                              parameter.scalar_type() != x.scalar_type())) {
    throw std::invalid_argument(std::string("normalize: ") + name +
                                " must be of the type of x and as long as its last axis, " +
                                std::to_string(x.size(-1)));
  }
}

}  // namespace

at::Tensor normalize(kernel::NormForm kind, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, double epsilon) {
  if (x.dim() < 1 || (x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble)) {
    throw std::invalid_argument("normalize: x must be float32 or float64 with at least one axis");
  }
  check(x, weight, "weight");
  check(x, bias, "bias");
  const at::Tensor rows = x.contiguous();
  const auto trained = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  if (!at::GradMode::is_enabled() || !(trained(x) || trained(weight) || trained(bias)))
    return run_forward(kind, rows, weight.defined() ? weight.contiguous() : weight,
                       bias.defined() ? bias.contiguous() : bias, epsilon);
  return NormFunction::apply(static_cast<int64_t>(kind), rows,
                             weight.defined() ? given(weight.contiguous()) : std::nullopt,
                             bias.defined() ? given(bias.contiguous()) : std::nullopt, epsilon);
}

}  // namespace regard::autograd
