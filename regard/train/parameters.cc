#include "regard/train/parameters.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "regard/train/names.h"

namespace regard::train {
namespace {

constexpr Name<Initialisation::Kind> kKinds[] = {{"normal", Initialisation::Kind::normal},
                                                 {"xavier_uniform", Initialisation::Kind::xavier_uniform},
                                                 {"xavier_normal", Initialisation::Kind::xavier_normal},
                                                 {"kaiming_uniform", Initialisation::Kind::kaiming_uniform},
                                                 {"kaiming_normal", Initialisation::Kind::kaiming_normal},
                                                 {"orthogonal", Initialisation::Kind::orthogonal},
                                                 {"bahdanau", Initialisation::Kind::bahdanau},
                                                 {"luong", Initialisation::Kind::luong}};

constexpr double kLuong = 0.1;

bool writes_to_the_stream(const std::string& name) {
  constexpr std::string_view kParts[] = {"o_proj", "down_proj", "c_proj", ".w2."};
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

}  // namespace

Initialisation::Kind initialisation_named(const std::string& name) {
  return kind_named("initialisation", name, kKinds);
}

double deviation(const Initialisation& how, int64_t rows, int64_t columns) {
  const auto out = static_cast<double>(rows), in = static_cast<double>(columns);
  switch (how.kind) {
    case Initialisation::Kind::xavier_uniform:
    case Initialisation::Kind::xavier_normal:
      return std::sqrt(2.0 / (in + out));
    case Initialisation::Kind::kaiming_uniform:
    case Initialisation::Kind::kaiming_normal:
      return std::sqrt(1.0 / in);
    case Initialisation::Kind::orthogonal:
      return std::sqrt(1.0 / std::max(in, out));
    case Initialisation::Kind::bahdanau:
      return 0.001;
    case Initialisation::Kind::luong:
      return kLuong / std::sqrt(3.0);
    default:
      return how.deviation;
  }
}

Parameters::Parameters(Initialisation initialisation, std::string prefix, uint64_t seed,
                       layer::Weight::Products products)
    : initialisation_(initialisation),
      prefix_(std::move(prefix)),
      products_(products),
      generator_(at::detail::createCPUGenerator(seed)) {}

layer::Weight Parameters::matrix(const std::string& name, int64_t rows, int64_t columns,
                                 std::vector<int64_t> order) const {
  const at::Tensor whole = get(name, {rows, columns});
  return layer::Weight(order.empty() ? whole : whole.index_select(0, at::tensor(order, at::kLong)),
                       products_);
}

layer::Weight Parameters::part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                               int64_t columns) const {
  const at::Tensor whole = get(name, {all_rows, columns});
  return layer::Weight(begin == 0 && rows == all_rows ? whole : whole.narrow(0, begin, rows), products_);
}

layer::Weight Parameters::transposed_part(const std::string& name, int64_t all_rows, int64_t begin,
                                          int64_t rows, int64_t columns) const {
  return layer::Weight(get(name, {columns, all_rows}).narrow(1, begin, rows).t(), products_);
}

void Parameters::take(const std::string& name, at::Tensor& parameter, bool begun) const {
  {
    const at::NoGradGuard no_grad;
    if (!begun) initialise(name, parameter);
  }
  parameter.requires_grad_(true);
  all_.push_back({name, parameter});
}

layer::Weight Parameters::stacked(const std::vector<Rows>& parts, int64_t columns) const {
  // "a.q.weight", "a.k.weight" -> "a.q.weight+a.k.weight"
  std::string name;
  int64_t rows = 0;
  for (const Rows& part : parts) {
    if (!part.order.empty()) return {};
    name += (name.empty() ? "" : "+") + part.name;
    rows += part.rows;
  }
  stacks_[name] = parts;
  return layer::Weight(get(name, {rows, columns}), products_);
}

std::vector<Parameters::Named> Parameters::published() const {
  std::vector<Named> out;
  for (const Named& named : all_) {
    const auto stack = stacks_.find(named.name);
    if (stack == stacks_.end()) {
      out.push_back({named.name, named.value.detach()});
      continue;
    }
    int64_t begin = 0;
    for (const Rows& part : stack->second) {
      out.push_back({part.name, named.value.detach().narrow(0, begin, part.rows)});
      begin += part.rows;
    }
  }
  return out;
}

at::Tensor Parameters::vector(const std::string& name, int64_t size) const {
  return get(name, {size});
}

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const Named& named : all_) total += named.value.numel();
  return total;
}

at::Tensor Parameters::get(const std::string& name, at::IntArrayRef shape) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const Named& named) { return named.name == name; });
  if (found != all_.end()) {
    if (found->value.sizes() != shape) {
      throw std::invalid_argument("the parameter " + name + " is asked for in two shapes");
    }
    return found->value;
  }
  const at::NoGradGuard no_grad;
  at::Tensor value = at::empty(shape, at::kFloat);
  if (const auto stack = stacks_.find(name); stack != stacks_.end()) {
    int64_t begin = 0;
    for (const Rows& part : stack->second) {
      at::Tensor rows = value.narrow(0, begin, part.rows);
      initialise(part.name, rows);
      begin += part.rows;
    }
  } else {
    initialise(name, value);
  }
  value.requires_grad_(true);
  all_.push_back({name, value});
  return value;
}

void Parameters::initialise(const std::string& name, at::Tensor& value) const {
  if (value.dim() < 2) {
    value.fill_(name.ends_with(".bias") ? 0.0 : 1.0);
    return;
  }
  const at::Tensor matrix = value.view({value.size(0), -1});  // of a kernel: [out, what it sees]
  const double divisor = writes_to_the_stream(name) ? initialisation_.residual_divisor : 1.0;
  const double spread = deviation(initialisation_, matrix.size(0), matrix.size(1)) / divisor;
  const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  const auto make_orthogonal = [&](const at::Tensor& part) {
    const int64_t rows = part.size(0), columns = part.size(1);
    const at::Tensor drawn = at::empty({std::max(rows, columns), std::min(rows, columns)}, at::kFloat);
    const auto [q, r] = at::linalg_qr(drawn.normal_(0.0, 1.0, generator_));
    const at::Tensor fair = q * r.diagonal().sign();  // all such matrices alike (Mezzadri 2007)
    part.copy_((rows < columns ? fair.t() : fair) / divisor);
  };
  switch (initialisation_.kind) {
    case Initialisation::Kind::xavier_uniform:
    case Initialisation::Kind::kaiming_uniform:
    case Initialisation::Kind::luong: {
      const double bound = std::sqrt(3.0) * spread;
      matrix.uniform_(-bound, bound, generator_);
      break;
    }
    case Initialisation::Kind::orthogonal:
      make_orthogonal(matrix);
      break;
    case Initialisation::Kind::bahdanau:
      if (is(".hidden.")) {
        for (const at::Tensor& gate : matrix.chunk(3)) make_orthogonal(gate);
      } else if (is("attention.vector")) {
        matrix.zero_();
      } else {
        matrix.normal_(0.0, is("attention.query") || is("attention.key") ? spread : 0.01, generator_);
      }
      break;
    default:
      matrix.normal_(0.0, spread, generator_);
  }
}

}  // namespace regard::train
