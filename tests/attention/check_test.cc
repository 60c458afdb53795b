#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "regard/attention/attention.h"
#include "regard/attention/observe.h"
#include "tests/attention/problem.h"

namespace regard::attention {
namespace {

using kernel::DType;
using kernel::Extents;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Problem;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A well-formed call, broken by one change.
struct Call {
  Problem problem{{.B = 2, .Hq = 6, .Hkv = 3, .Lq = 4, .Lk = 5, .Dk = 8, .Dv = 7}, 1};
  Spec spec;
  Operands operands = problem.operands();
};

struct Malformed {
  const char* name;
  std::function<void(Call&)> change;
  std::vector<std::string> says;  // operand, value, what is allowed
};

class Check : public ::testing::TestWithParam<Malformed> {};

TEST(Check, AWellFormedCallPasses) {
  Call call;
  EXPECT_NO_THROW(check(call.spec, call.operands));
}

TEST_P(Check, NamesTheOperandItsValueAndWhatIsAllowed) {
  Call call;
  GetParam().change(call);
  try {
    check(call.spec, call.operands);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    for (const std::string& part : GetParam().says) EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), HasSubstr("allowed: "));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "one sentence";
  }
}

const uint8_t kOn[64] = {1};
const float kZeros[4096] = {};
int64_t lengths[2] = {5, 6};
const int32_t kNumbers[5] = {};

const Malformed kCases[] = {
    {"KHeadsDoNotDivide", [](Call& c) { c.operands.q.size[1] = 7; }, {"k has 3 heads", "divisor of the 7"}},
    {"NoKHeads", [](Call& c) { c.operands.k.size[1] = 0; }, {"k has 0 heads"}},
    {"KOfAnotherBatch",
     [](Call& c) { c.operands.k.size[0] = 1; },
     {"k has sizes [1, 3, 5, 8]", "[2, 3, 5, 8]"}},
    {"KOfAnotherFeature", [](Call& c) { c.operands.k.size[3] = 9; }, {"k has sizes", "[2, 3, 5, 8]"}},
    {"VLongerThanK", [](Call& c) { c.operands.v.size[2] = 6; }, {"v has sizes [2, 3, 6, 7]", "[2, 3, 5, 7]"}},
    {"VOfOtherHeads", [](Call& c) { c.operands.v.size[1] = 6; }, {"v has sizes", "[2, 3, 5, 7]"}},
    {"VMissing", [](Call& c) { c.operands.v = {}; }, {"v is missing"}},
    {"KOfAnotherType", [](Call& c) { c.operands.k.dtype = DType::f16; }, {"k is of type f16", "f32"}},
    {"VOfAnotherType", [](Call& c) { c.operands.v.dtype = DType::bf16; }, {"v is of type bf16", "f32"}},
    {"NegativeSize", [](Call& c) { c.operands.q.size[2] = -4; }, {"q has sizes [2, 6, -4, 8]", "0 or more"}},
    {"QWithoutData", [](Call& c) { c.operands.q.data = nullptr; }, {"q has sizes", "no data"}},
    {"OutMissing", [](Call& c) { c.operands.out = {}; }, {"out has sizes [0, 0, 0, 0]", "[2, 6, 4, 7]"}},
    {"OutOfOtherSizes", [](Call& c) { c.operands.out.size[3] = 8; }, {"out has sizes [2, 6, 4, 8]", "Dv"}},
    {"OutOfAnotherType", [](Call& c) { c.operands.out.dtype = DType::f16; }, {"out is of type f16", "f32"}},
    {"OutRepeats", [](Call& c) { c.operands.out.stride[1] = 0; }, {"out has sizes", "stride 0"}},
    {"LseRepeats", [](Call& c) { c.operands.lse.stride[2] = 0; }, {"lse has sizes", "stride 0"}},
    {"LseOfOtherSizes",
     [](Call& c) { c.operands.lse.size[2] = 3; },
     {"lse has sizes [2, 6, 3, 1]", "[2, 6, 4, 1]"}},
    {"SizesOverflow",
     [](Call& c) {
       c.operands.q.size = {int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31, 8};
     },
     {"q has sizes", "2^60"}},
    {"StridesOverflow",
     [](Call& c) { c.operands.k.stride[0] = std::numeric_limits<int64_t>::max(); },
     {"k has", "2^60"}},
    {"StrideMinimum",
     [](Call& c) { c.operands.k.stride[0] = std::numeric_limits<int64_t>::min(); },
     {"k has", "2^60"}},
    {"ScaleNotFinite", [](Call& c) { c.spec.scale = INFINITY; }, {"scale is inf", "finite"}},
    {"ScaleNaN", [](Call& c) { c.spec.scale = kNaN; }, {"scale is nan", "finite"}},
    {"SoftcapNegative", [](Call& c) { c.spec.softcap = -1; }, {"softcap is -1", "above 0"}},
    {"SoftcapNaN", [](Call& c) { c.spec.softcap = kNaN; }, {"softcap is nan"}},
    {"BiasDoesNotBroadcast",
     [](Call& c) {
       c.operands.bias = {kZeros, {2, 6, 4, 4}};
     },
     {"bias has sizes [2, 6, 4, 4]", "[2, 6, 4, 5]", "or 1"}},
    {"SlopesOfOtherHeads",
     [](Call& c) {
       c.operands.slopes = {kZeros, {1, 3, 1, 1}};
     },
     {"slopes has sizes [1, 3, 1, 1]"}},
    {"OneSlopeForAll",
     [](Call& c) {
       c.operands.slopes = {kZeros, {1, 1, 1, 1}};
     },
     {"slopes has sizes [1, 1, 1, 1]"}},
    {"SinksOfOtherHeads",
     [](Call& c) {
       c.operands.sinks = {kZeros, {2, 5, 1, 1}};
     },
     {"sinks has sizes [2, 5, 1, 1]"}},
    {"DenseMaskMissing",
     [](Call& c) { c.spec.mask = Mask::dense(); },
     {"dense_mask is missing", "mask is dense", "[2, 6, 4, 5]"}},
    {"DenseMaskNotAskedFor",
     [](Call& c) {
       c.operands.dense_mask = {kOn, {1, 1, 1, 1}};
     },
     {"dense_mask is given", "mask is everything", "Mask::dense()"}},
    {"DenseMaskDoesNotBroadcast",
     [](Call& c) {
       c.spec.mask = Mask::dense();
       c.operands.dense_mask = {kOn, {1, 1, 5, 4}};
     },
     {"dense_mask has sizes [1, 1, 5, 4]", "[2, 6, 4, 5]"}},
    {"LengthsMissing", [](Call& c) { c.spec.mask = Mask::key_lengths(); }, {"key_lengths is missing"}},
    {"LengthsNotAskedFor",
     [](Call& c) {
       c.operands.key_lengths = {lengths, {2, 1, 1, 1}};
     },
     {"key_lengths is given", "Mask::key_lengths()"}},
    {"SegmentsMissing",
     [](Call& c) {
       c.spec.mask = Mask::segments();
       c.operands.query_segments = {kNumbers, {1, 1, 1, 4}};
     },
     {"key_segments is missing", "mask is segments"}},
    {"SegmentsNotAskedFor",
     [](Call& c) {
       c.operands.key_segments = {kNumbers, {1, 1, 1, 5}};
     },
     {"key_segments is given", "Mask::segments()"}},
    {"SegmentsOfOtherLength",
     [](Call& c) {
       c.spec.mask = Mask::segments();
       c.operands.query_segments = {kNumbers, {1, 1, 1, 1}};
       c.operands.key_segments = {kNumbers, {1, 1, 1, 5}};
     },
     {"query_segments has sizes [1, 1, 1, 1]", "[2, 1, 1, 4]"}},
    {"BlockMaskMissing",
     [](Call& c) { c.spec.mask = Mask::blocks(2, 4); },
     {"block_mask is missing", "[2, 6, 2, 2]"}},
    {"BlockMaskNotAskedFor",
     [](Call& c) {
       c.operands.block_mask = {kOn, {1, 1, 1, 1}};
     },
     {"block_mask is given", "Mask::blocks()"}},
    {"BlockMaskOfOtherSizes",
     [](Call& c) {
       c.spec.mask = Mask::blocks(2, 4);
       c.operands.block_mask = {kOn, {1, 1, 2, 3}};
     },
     {"block_mask has sizes [1, 1, 2, 3]", "[2, 6, 2, 2]"}},
    {"GridOfOtherSize",
     [](Call& c) {
       c.spec.mask = Mask::neighbourhood({2, 2, 1, 1});
     },
     {"mask is neighbourhood(2 x 2", "4 queries and 5 keys", "4 of both"}},
    {"FirstBatchNegative",
     [](Call& c) { c.operands.dropout_first_batch = -1; },
     {"dropout_first_batch is -1", "0 or more"}},
    {"LengthTooLarge",
     [](Call& c) {
       c.spec.mask = Mask::key_lengths();
       c.operands.key_lengths = {lengths, {2, 1, 1, 1}};
     },
     {"key_lengths[1] is 6", "0 to Lk = 5"}},
};

INSTANTIATE_TEST_SUITE_P(Malformed, Check, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(Check, EmptyViewsNeedNoData) {
  Operands operands;
  operands.q = {nullptr, DType::f32, {1, 2, 0, 8}, {}};
  operands.k = {nullptr, DType::f32, {1, 1, 0, 8}, {}};
  operands.v = {nullptr, DType::f32, {1, 1, 0, 8}, {}};
  operands.out = {nullptr, DType::f32, {1, 2, 0, 8}, {}};
  EXPECT_NO_THROW(check({}, operands));
}

TEST(Check, ResultsTooLargeForMemoryAreRefusedBeforeTheyAreAllocated) {
  // Zero strides make inputs of any size; the output would not fit anywhere.
  const float one = 1;
  const Extents none{0, 0, 0, 0};
  const ConstAnyView q(&one, DType::f32, {1, 1, int64_t{1} << 40, 1}, none);
  const ConstAnyView k(&one, DType::f32, {1, 1, 1, 1}, none);
  const ConstAnyView v(&one, DType::f32, {1, 1, 1, int64_t{1} << 40}, none);
  EXPECT_THROW(attention(q, k, v), std::invalid_argument);
}

TEST(Check, TilesOfWeightsOutsideTheSquareAreRefused) {
  Call call;
  const View<const float> lse = call.operands.lse;
  const auto message = [&](auto&&... range) -> std::string {
    try {
      weights(call.spec, call.operands, lse, range...);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(2, 0, 0, 4, 0, 5), AllOf(HasSubstr("batch"), HasSubstr("[0, 2)")));
  EXPECT_THAT(message(0, 6, 0, 4, 0, 5), AllOf(HasSubstr("heads"), HasSubstr("[0, 6)")));
  EXPECT_THAT(message(0, 0, 1, 4, 0, 5), AllOf(HasSubstr("rows [1, 1 + 4)"), HasSubstr("[0, 4)")));
  EXPECT_THAT(message(0, 0, 0, 4, -1, 5), AllOf(HasSubstr("keys"), HasSubstr("[0, 5)")));
  EXPECT_THAT(message(0, 0, 0, 4, 1, std::numeric_limits<int64_t>::max()), HasSubstr("keys"));
  EXPECT_THROW(weights(call.spec, call.operands, {}, 0, 0, 0, 4, 0, 5), std::invalid_argument);
}

TEST(Check, ObservationsThatMeanNothingAreRefused) {
  Call call;
  EXPECT_THROW(observe({.top_k = -1}, call.spec, call.operands), std::invalid_argument);
  EXPECT_THROW(observe({.top_k = 6}, call.spec, call.operands), std::invalid_argument);
  EXPECT_THROW(observe({.block_rows = 4}, call.spec, call.operands), std::invalid_argument);
  EXPECT_THROW(observe({.block_rows = -1, .block_keys = -1}, call.spec, call.operands),
               std::invalid_argument);
  EXPECT_THROW(observe({.rows = {2, 2}}, call.spec, call.operands), std::invalid_argument);
  EXPECT_THROW(observe({.rows = {4}}, call.spec, call.operands), std::invalid_argument);
}

}  // namespace
}  // namespace regard::attention
