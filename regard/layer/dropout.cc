#include "regard/layer/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string>

#include "regard/autograd/parallel.h"
#include "regard/kernel/dropout.h"

namespace regard::layer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBits = 64;        // of a word: as many numbers
constexpr int64_t kTaskWords = 256;  // cut by the problem: bits never depend on threads

int64_t tasks(int64_t words) {
  return (words + kTaskWords - 1) / kTaskWords;
}

// Bit i % 64 of word i / 64: number i is kept.
at::Tensor draw(const kernel::Dropout& dropout, int64_t count) {
  const int64_t words = (count + kBits - 1) / kBits;
  at::Tensor kept = at::empty({words}, at::kLong);
  int64_t* to = kept.mutable_data_ptr<int64_t>();
  // A row of the generator holds 2^32 numbers.
  constexpr int64_t kRow = int64_t{1} << 32;
  autograd::at_parallel().run(tasks(words), [&](int64_t task, int /*worker*/) {
    for (int64_t w = task * kTaskWords; w < std::min(words, (task + 1) * kTaskWords); ++w) {
      to[w] = static_cast<int64_t>(kernel::kept(dropout, 0, 0, w * kBits / kRow, w * kBits % kRow,
                                                std::min(kBits, count - w * kBits)));
    }
  });
  return kept;
}

template <class T>
void fill(const at::Tensor& kept, const at::Tensor& x, T scale, at::Tensor& out) {
  const int64_t* words = kept.const_data_ptr<int64_t>();
  const T* from = x.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  const int64_t count = x.numel();
  autograd::at_parallel().run(tasks(kept.numel()), [&](int64_t task, int /*worker*/) {
    for (int64_t w = task * kTaskWords; w < std::min(kept.numel(), (task + 1) * kTaskWords); ++w) {
      const auto word = static_cast<uint64_t>(words[w]);
      const int64_t end = std::min(kBits, count - w * kBits);
      for (int64_t i = 0; i < end; ++i) {
        // Chosen, not multiplied by 0: what is dropped is gone even if it is no number.
        to[w * kBits + i] = (word >> i & 1) != 0 ? from[w * kBits + i] * scale : T{0};
      }
    }
  });
}

at::Tensor kept_of(const at::Tensor& kept, const at::Tensor& x, float scale) {
  at::Tensor out = at::empty(x.sizes(), x.options());
  if (x.scalar_type() == at::kDouble) {
    fill<double>(kept, x, scale, out);
  } else {
    fill<float>(kept, x, scale, out);
  }
  return out;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& kept,
                            double scale) {
    context->save_for_backward({kept});
    context->saved_data["scale"] = scale;
    return kept_of(kept, x, static_cast<float>(scale));
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto scale = context->saved_data["scale"].toDouble();
    // Through the function itself, so that a second derivative is right too.
    return {DropoutFunction::apply(grads[0].contiguous(), context->get_saved_variables()[0], scale),
            at::Tensor(), at::Tensor()};
  }
};

// Counts the call.
kernel::Dropout next(double probability, Context& context) {
  kernel::Dropout drawn;
  drawn.threshold = static_cast<uint32_t>(std::lround(probability * 65536));
  drawn.seed = context.dropout_seed;
  drawn.offset = context.dropout_calls++;
  return drawn;
}

// Whether anything is to be dropped.
bool drops(double probability, const Context& context) {
  if (!(probability >= 0 && probability < 1) || std::lround(probability * 65536) == 65536) {
    throw std::invalid_argument("dropout: probability is " + std::to_string(probability) +
                                "; it must be from 0 to below 1");
  }
  return context.training && probability > 0;
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double probability, Context& context) {
  if (!drops(probability, context)) return x;
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble) {
    std::ostringstream text;
    text << "dropout: x is " << x.scalar_type() << "; it must be float32 or float64";
    throw std::invalid_argument(text.str());
  }
  const kernel::Dropout drawn = next(probability, context);
  return DropoutFunction::apply(x.contiguous(), draw(drawn, x.numel()), static_cast<double>(drawn.scale()));
}

void drop_weights(double probability, Context& context, attention::Spec& spec,
                  autograd::AttentionExtras& extras) {
  if (!drops(probability, context)) return;
  const kernel::Dropout drawn = next(probability, context);
  spec.dropout = probability;
  extras.dropout_seed = drawn.seed;
  extras.dropout_offset = drawn.offset;
}

}  // namespace regard::layer
