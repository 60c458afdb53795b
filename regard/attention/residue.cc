#include "regard/attention/residue.h"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace regard::attention {
namespace {

using Positions = ResidueClass::Positions;

constexpr int64_t kLeastKeys = 8;  // of a class

int64_t floor_div(int64_t a, int64_t n) {
  return a / n - (a % n < 0 ? 1 : 0);
}

int64_t count_from(int64_t begin, int64_t period, int64_t size) {
  return begin < size ? (size - begin + period - 1) / period : 0;
}

const part::Stride* only_stride(const Mask& mask) {
  if (mask.terms().size() != 1) return nullptr;
  const part::Stride* stride = nullptr;
  for (const Mask::Part& part : mask.terms().front()) {
    if (const auto* found = std::get_if<part::Stride>(&part)) {
      if (stride != nullptr) return nullptr;
      stride = found;
    } else if (!std::holds_alternative<part::Causal>(part) && !std::holds_alternative<part::Window>(part) &&
               !std::holds_alternative<part::Prefix>(part) &&
               !std::holds_alternative<part::FirstRows>(part)) {
      return nullptr;
    }
  }
  return stride;
}

// Some positions along an axis; an axis of size 1 that repeats stays as it is.
template <class T>
View<T> slice(View<T> view, const Positions& at, int axis = 2) {
  if (view.data == nullptr) return view;
  if (at.count > 0) view.data += at.begin * view.stride[axis];
  view.stride[axis] *= at.period;
  view.size[axis] = at.count;
  return view;
}

template <class Void>
kernel::BasicAnyView<Void> slice(kernel::BasicAnyView<Void> view, const Positions& at) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  if (!view) return view;
  if (at.count > 0)
    view.data = static_cast<Byte*>(view.data) + at.begin * view.stride[2] * kernel::bytes(view.dtype);
  view.stride[2] *= at.period;
  view.size[2] = at.count;
  return view;
}

Operands slice(const Operands& all, const Positions& row, const Positions& key) {
  Operands one = all;
  one.q = slice(all.q, row);
  one.k = slice(all.k, key);
  one.v = slice(all.v, key);
  one.out = slice(all.out, row);
  one.lse = slice(all.lse, row);
  if (all.bias) {
    if (all.bias.size[2] != 1) one.bias = slice(one.bias, row, 2);
    if (all.bias.size[3] != 1) one.bias = slice(one.bias, key, 3);
  }
  return one;
}

Arriving slice(const Arriving& all, const Positions& row) {
  return {slice(all.out, row), slice(all.lse, row)};
}

Gradients slice(const Gradients& all, const Positions& row, const Positions& key) {
  return {slice(all.q, row), slice(all.k, key), slice(all.v, key), all.bias, all.slopes, all.sinks};
}

int64_t offset(Align align, const Operands& operands) {
  return align == Align::bottom_right ? operands.k.size[2] - operands.q.size[2] : 0;
}

Positions rows_of(const Operands& operands, const part::Stride& stride, int64_t number) {
  const int64_t period = stride.period;
  const int64_t ahead = number - offset(stride.align, operands);
  const int64_t begin = ahead - floor_div(ahead, period) * period;
  return {begin, period, count_from(begin, period, operands.q.size[2])};
}

// Row t of the class sees keys [t + begin, t + end) of those that the class has.
BoundMask band_of(const Mask& mask, const Operands& operands, const Positions& row, const Positions& key) {
  const int64_t period = row.period;
  const int64_t far = operands.q.size[2] + operands.k.size[2];
  int64_t begin = -row.count;
  int64_t end = key.count;
  int64_t rows = row.count;
  int64_t keys = key.count;
  // The first key of the class at or behind distance `from` of row t; t itself is added by the band.
  const auto first_at = [&](Align align, int64_t from) {
    const int64_t wanted = row.begin + offset(align, operands) + from - key.begin;
    return -floor_div(-wanted, period);
  };
  for (const Mask::Part& part : mask.terms().front()) {
    if (const auto* causal = std::get_if<part::Causal>(&part)) {
      end = std::min(end, first_at(causal->align, 1));
    } else if (const auto* window = std::get_if<part::Window>(&part)) {
      if (window->left >= 0) begin = std::max(begin, first_at(window->align, -std::min(window->left, far)));
      if (window->right >= 0) end = std::min(end, first_at(window->align, std::min(window->right, far) + 1));
    } else if (const auto* prefix = std::get_if<part::Prefix>(&part)) {
      keys = std::min(keys, count_from(key.begin, period, prefix->count));
    } else if (const auto* first = std::get_if<part::FirstRows>(&part)) {
      rows = std::min(rows, count_from(row.begin, period, first->count));
    }
  }
  return BoundMask::band({row.count, key.count, begin, end, rows, keys});
}

int64_t ceil_div(int64_t a, int64_t n) {
  return (a + n - 1) / n;
}

Positions largest(int64_t size, int64_t period) {
  return {0, period, ceil_div(size, period)};
}

}  // namespace

int64_t residue_period(const Spec& spec, const Operands& operands) {
  const part::Stride* stride = only_stride(spec.mask);
  if (stride == nullptr || stride->period < 2 || stride->period > operands.k.size[2] / kLeastKeys) return 0;
  if (operands.slopes || spec.dropout > 0 || spec.row_invariant) return 0;
  return stride->period;
}

int64_t residue_period(const Spec& spec, const Operands& operands, const Gradients& gradients) {
  return gradients.bias || gradients.sinks ? 0 : residue_period(spec, operands);
}

ResidueClass::ResidueClass(const Spec& spec, const Operands& all, int64_t period, int64_t number)
    : row(rows_of(all, *only_stride(spec.mask), number)),
      key{number, period, count_from(number, period, all.k.size[2])},
      operands(slice(all, row, key)),
      mask(band_of(spec.mask, all, row, key)) {}

Arriving ResidueClass::arriving(const Arriving& all) const {
  return slice(all, row);
}

Gradients ResidueClass::gradients(const Gradients& all) const {
  return slice(all, row, key);
}

Operands residue_form(const Operands& form, int64_t period) {
  return slice(form, largest(form.q.size[2], period), largest(form.k.size[2], period));
}

Arriving residue_form(const Arriving& form, int64_t period) {
  return slice(form, largest(form.out.size[2], period));
}

Gradients residue_form(const Gradients& form, int64_t period) {
  // Each by its own size: what is not wanted has none.
  return {slice(form.q, largest(form.q.size[2], period)),
          slice(form.k, largest(form.k.size[2], period)),
          slice(form.v, largest(form.v.size[2], period)),
          form.bias,
          form.slopes,
          form.sinks};
}

}  // namespace regard::attention
