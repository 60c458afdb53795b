#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/model/weight_source.h"

namespace regard::train {

// How the matrices of a new model begin. Vectors of norms begin as 1, biases as 0.
struct Initialisation {
  enum class Kind : uint8_t {
    normal,           // N(0, deviation^2)
    xavier_uniform,   // U(+-sqrt(6 / (in + out))), Glorot and Bengio 2010
    xavier_normal,    // N(0, 2 / (in + out))
    kaiming_uniform,  // U(+-sqrt(3 / in)) for a gain of 1: LeCun's, libtorch's default for linear layers up
                      // to sqrt(3)
    kaiming_normal,   // N(0, 1 / in)
    orthogonal,       // its rows or columns, whichever are fewer, are orthonormal (Saxe et al. 2014)
    bahdanau,         // Bahdanau et al. 2015, appendix B: recurrent matrices orthogonal, an attention's N(0,
                      // 0.001^2) and its vector 0, all others N(0, 0.01^2)
    luong,            // U(+-0.1), Luong et al. 2015, section 4.1
  };
  Kind kind = Kind::normal;
  double deviation = 0.02;  // normal
  // Matrices that write into the residual stream ("o_proj", "down_proj", "c_proj") are divided by this:
  // sqrt(2 layers) keeps the stream's variance from growing with depth (GPT-2).
  double residual_divisor = 1;
};

// The names of Initialisation::Kind, as recipes write them. Throws std::invalid_argument naming the known
// ones.
Initialisation::Kind initialisation_named(const std::string& name);

// Of the numbers of a matrix of queries or keys that begins so.
double deviation(const Initialisation& how, int64_t rows, int64_t columns);

// The parameters of a model in training, by their published names: made and initialised when the model asks
// for them, so that the same code builds a model from a file and one that begins. The order in which they
// were asked for is theirs; the numbers depend on it and the seed alone.
class Parameters final : public model::WeightSource {
 public:
  // prefix: what the names begin with, such as "model."; has() says yes to names that do.
  // products: how matrices are multiplied; they are float32 in any case.
  Parameters(Initialisation initialisation, std::string prefix, uint64_t seed,
             layer::Weight::Products products = layer::Weight::Products::f32);

  bool has(std::string_view name) const override { return name.starts_with(prefix_); }
  layer::Weight matrix(const std::string& name, int64_t rows, int64_t columns,
                       std::vector<int64_t> order = {}) const override;
  layer::Weight part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                     int64_t columns) const override;
  layer::Weight transposed_part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                                int64_t columns) const override;
  at::Tensor vector(const std::string& name, int64_t size) const override;
  void take(const std::string& name, at::Tensor& parameter, bool begun = false) const override;
  // One parameter whose rows carry the published names: one product, one gradient.
  layer::Weight stacked(const std::vector<Rows>& parts, int64_t columns) const override;

  struct Named {
    std::string name;
    at::Tensor value;  // float32, requires a gradient
  };
  // What is trained.
  const std::vector<Named>& all() const { return all_; }
  // The same numbers by their published names: of a stacked one, its parts.
  std::vector<Named> published() const;
  int64_t count() const;  // numbers in all

 private:
  // The parameter of this name, made by `fill` when it is new. Throws std::invalid_argument where it has
  // another shape.
  at::Tensor get(const std::string& name, at::IntArrayRef shape) const;
  void initialise(const std::string& name, at::Tensor& value) const;

  Initialisation initialisation_;
  std::string prefix_;
  layer::Weight::Products products_;
  mutable at::Generator generator_;
  mutable std::vector<Named> all_;                           // asking for a parameter makes it
  mutable std::map<std::string, std::vector<Rows>> stacks_;  // by the name in all_
};

}  // namespace regard::train
