#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <tuple>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/golden_case.h"
#include "tests/attention/target_test.h"

// The Attention and FlexAttention cases of the ONNX standard (tests/golden/onnx), each batch entry one call.
// ONNX states: a bool attn_mask keeps what is true, a float one is added; causal rows stand behind the past
// keys (or end at nonpad_kv_seqlen); windows are counted from that place, bounds included; a mask shorter
// than the keys is continued with -inf; qk_matmul_output is 0 the scaled product, 1 after the softcap, 2
// after mask and bias, 3 the weights.
namespace regard::attention {
namespace {

using kernel::ConstAnyView;
using kernel::DType;
using kernel::Extents;
using testing::Array;
using testing::SafeTensors;

const std::string kFolder = std::string(REGARD_GOLDEN_DIR) + "/onnx/";

std::vector<std::string> onnx_cases() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kFolder)) {
    if (file.path().extension() == ".safetensors") names.push_back(file.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// An input of either layout as [B, H, L, D], in the case's own type (float64 as float32).
struct Input {
  Extents size{};
  Extents stride{};
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;

  Input() = default;
  Input(const Array& array, int64_t heads) : bytes(array.bytes) {
    if (array.dtype == "F16") dtype = DType::f16;
    if (array.dtype == "BF16") dtype = DType::bf16;
    if (array.dtype == "F64") {
      const std::vector<float> rounded = array.to<float>();
      bytes.assign(reinterpret_cast<const std::byte*>(rounded.data()),
                   reinterpret_cast<const std::byte*>(rounded.data() + rounded.size()));
    }
    if (array.shape.size() == 4) {
      std::copy(array.shape.begin(), array.shape.end(), size.begin());
      stride = kernel::contiguous_strides(size);
    } else {  // [B, L, H * D]
      const int64_t features = array.shape[2] / heads;
      size = {array.shape[0], heads, array.shape[1], features};
      stride = {array.shape[1] * array.shape[2], features, array.shape[2], 1};
    }
  }

  ConstAnyView view() const { return {bytes.data(), dtype, size, stride}; }

  // The same elements after those of `past`, both contiguous.
  Input after(const Input& past) const {
    Input both = *this;
    both.size[2] += past.size[2];
    both.stride = kernel::contiguous_strides(both.size);
    const int64_t width = kernel::bytes(dtype);
    both.bytes.resize(both.size[0] * both.stride[0] * width);
    for (int64_t b = 0; b < size[0]; ++b) {
      for (int64_t h = 0; h < size[1]; ++h) {
        for (int64_t p = 0; p < both.size[2]; ++p) {
          const Input& from = p < past.size[2] ? past : *this;
          const int64_t position = p < past.size[2] ? p : p - past.size[2];
          for (int64_t f = 0; f < size[3]; ++f) {
            const int64_t source = b * from.stride[0] + h * from.stride[1] + position * from.stride[2] + f;
            const int64_t target = b * both.stride[0] + h * both.stride[1] + p * both.stride[2] + f;
            std::copy_n(from.bytes.begin() + source * width, width, both.bytes.begin() + target * width);
          }
        }
      }
    }
    return both;
  }
};

ConstAnyView entry(ConstAnyView view, int64_t b) {
  view.data = static_cast<const std::byte*>(view.data) + b * view.stride[0] * kernel::bytes(view.dtype);
  view.size[0] = 1;
  return view;
}

struct OnnxCase {
  SafeTensors file;
  nlohmann::json attributes;
  Input q, k, v;
  int64_t past = 0;

  explicit OnnxCase(const std::string& name)
      : file(kFolder + name + ".safetensors"),
        attributes(nlohmann::json::parse(file.metadata()["attributes"].get<std::string>())),
        q(file["in.Q"], attributes.value("q_num_heads", 1)),
        k(file["in.K"], attributes.value("kv_num_heads", 1)),
        v(file["in.V"], attributes.value("kv_num_heads", 1)) {
    if (file.has("in.past_key")) {
      const Input past_k(file["in.past_key"], 0);
      past = past_k.size[2];
      k = k.after(past_k);
      v = v.after(Input(file["in.past_value"], 0));
    }
  }

  int64_t mode() const { return attributes.value("qk_matmul_output_mode", 0); }
  std::optional<int64_t> length(int64_t b) const {
    if (!file.has("in.nonpad_kv_seqlen")) return {};
    return file["in.nonpad_kv_seqlen"].to<int64_t>()[b];
  }
};

// One batch entry as a call, with what it owns.
struct Call {
  Spec spec;
  Operands operands;
  std::vector<float> bias;
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  std::vector<float> out, lse;

  Call(const OnnxCase& c, int64_t b) {
    operands.q = entry(c.q.view(), b);
    operands.k = entry(c.k.view(), b);
    operands.v = entry(c.v.view(), b);
    const Extents& q = operands.q.size;
    if (c.attributes.contains("scale")) spec.scale = c.attributes["scale"].get<double>();
    spec.softcap = c.attributes.value("softcap", 0.0F);
    read_positions(c, b);
    if (c.file.has("in.attn_mask")) read_mask(c, b);
    lse.resize(q[1] * q[2]);
    out.resize(q[1] * q[2] * operands.v.size[3]);
    operands.lse = {lse.data(), {1, q[1], q[2], 1}};
    operands.out = View<float>(out.data(), {1, q[1], q[2], operands.v.size[3]});
  }

 private:
  void read_positions(const OnnxCase& c, int64_t b) {
    int64_t offset = c.past;  // of row 0 among the keys
    if (const auto length = c.length(b)) {
      offset = *length - operands.q.size[2];
      lengths = {*length};
      operands.key_lengths = {lengths.data(), {1, 1, 1, 1}};
      spec.mask = Mask::key_lengths();
    }
    // A row at i + offset; with offset < 0 and no bound to the left the shift is done by cutting queries,
    // which these cases need only where such rows see nothing.
    const int64_t left = c.attributes.value("left_window_size", int64_t{-1});
    int64_t right = c.attributes.value("right_window_size", int64_t{-1});
    if (c.attributes.value("is_causal", 0) != 0) right = 0;
    if (left >= 0 || right >= 0) shift(left, right, offset);
  }

  // window(left, right) around i + offset as window bounds around i, or by a dense mask where these would be
  // negative.
  void shift(int64_t left, int64_t right, int64_t offset) {
    const int64_t l = left < 0 ? -1 : left - offset;
    const int64_t r = right < 0 ? -1 : right + offset;
    if ((left < 0 || l >= 0) && (right < 0 || r >= 0)) {
      spec.mask = spec.mask & Mask::window(l, r, Align::top_left);
      return;
    }
    const int64_t Lq = operands.q.size[2];
    const int64_t Lk = operands.k.size[2];
    dense().assign(Lq * Lk, 0);
    for (int64_t i = 0; i < Lq; ++i) {
      for (int64_t j = 0; j < Lk; ++j) {
        const int64_t at = i + offset;
        mask[i * Lk + j] = (left < 0 || j >= at - left) && (right < 0 || j <= at + right);
      }
    }
    operands.dense_mask = {mask.data(), {1, 1, Lq, Lk}};
  }

  std::vector<uint8_t>& dense() {
    spec.mask = spec.mask & Mask::dense();
    return mask;
  }

  void read_mask(const OnnxCase& c, int64_t b) {
    const Array& array = c.file["in.attn_mask"];
    const Extents given = testing::four_axes(array.shape);
    const Extents square{1, operands.q.size[1], operands.q.size[2], operands.k.size[2]};
    const std::vector<float> values = array.to<float>();
    const bool adds = array.dtype != "BOOL";
    const std::vector<uint8_t> positions = mask;  // from shift(): [Lq, Lk]
    std::vector<uint8_t> keep(square[1] * square[2] * square[3], 1);
    bias.assign(keep.size(), 0.0F);
    size_t at = 0;
    for (int64_t h = 0; h < square[1]; ++h) {
      for (int64_t i = 0; i < square[2]; ++i) {
        for (int64_t j = 0; j < square[3]; ++j, ++at) {
          const auto on = [&](int axis, int64_t index) { return given[axis] == 1 ? 0 : index; };
          const bool beyond = given[3] != 1 && j >= given[3];
          const float value =
              beyond ? -INFINITY
                     : values[((on(0, b) * given[1] + on(1, h)) * given[2] + on(2, i)) * given[3] + on(3, j)];
          if (adds) bias[at] = value;
          if (!adds || beyond) keep[at] = !beyond && value != 0;
          if (beyond) bias[at] = 0;
          if (!positions.empty() && positions[i * square[3] + j] == 0) keep[at] = 0;
        }
      }
    }
    dense() = keep;
    operands.dense_mask = {mask.data(), square};
    if (adds) operands.bias = {bias.data(), square};
  }
};

class Onnx : public testing::EachTargetAndCase {
 protected:
  // Tolerances as the case states; a 16-bit case is stated with the rounding steps of its own arithmetic.
  void expect_close(const OnnxCase& c, const std::vector<float>& ours, const std::string& name) {
    const Array& array = c.file["out." + name];
    const std::vector<double> expected = array.to<double>();
    ASSERT_EQ(ours.size(), expected.size());
    const double rtol = std::stod(c.file.metadata()["rtol"].get<std::string>());
    double atol = std::stod(c.file.metadata()["atol"].get<std::string>());
    if (array.dtype == "F16") atol = 4 * std::ldexp(1.0, -11);
    if (array.dtype == "BF16") atol = 4 * std::ldexp(1.0, -8);
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] == expected[i]) continue;
      ASSERT_NEAR(ours[i], expected[i], atol + rtol * std::abs(expected[i])) << name << ", value " << i;
    }
  }
};

TEST_P(Onnx, Attention) {
  const OnnxCase c(std::get<1>(GetParam()));
  const Extents& q = c.q.size;
  const int64_t Lk = c.k.size[2];
  std::vector<float> out;
  std::vector<float> scores;
  for (int64_t b = 0; b < q[0]; ++b) {
    Call call(c, b);
    attention(call.spec, call.operands);
    if (c.file["in.Q"].shape.size() == 4) {
      out.insert(out.end(), call.out.begin(), call.out.end());
    } else {  // back to [L, H * D]
      const int64_t features = c.v.size[3];
      for (int64_t i = 0; i < q[2]; ++i) {
        for (int64_t h = 0; h < q[1]; ++h) {
          const float* row = call.out.data() + (h * q[2] + i) * features;
          out.insert(out.end(), row, row + features);
        }
      }
    }
    if (!c.file.has("out.qk_matmul_output")) continue;
    Spec spec = call.spec;
    Operands operands = call.operands;
    if (c.mode() < 2) {  // before mask and bias
      spec.mask = {};
      operands.dense_mask = {};
      operands.key_lengths = {};
      operands.bias = {};
    }
    if (c.mode() < 1) spec.softcap = 0;
    for (int64_t h = 0; h < q[1]; ++h) {
      const std::vector<float> tile = c.mode() == 3
                                          ? weights(spec, operands, operands.lse, 0, h, 0, q[2], 0, Lk)
                                          : logits(spec, operands, 0, h, 0, q[2], 0, Lk);
      scores.insert(scores.end(), tile.begin(), tile.end());
    }
  }
  expect_close(c, out, "Y");
  if (c.file.has("out.qk_matmul_output")) expect_close(c, scores, "qk_matmul_output");
}

INSTANTIATE_TEST_SUITE_P(Standard, Onnx,
                         ::testing::Combine(::testing::ValuesIn(kernel::runnable_targets()),
                                            ::testing::ValuesIn(onnx_cases())),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

TEST(OnnxFiles, AllSeventyThreeAreThere) {
  EXPECT_EQ(onnx_cases().size(), 73U);
}

}  // namespace
}  // namespace regard::attention
