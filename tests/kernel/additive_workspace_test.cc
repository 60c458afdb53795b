// The additive kernels stay inside the scratch that they ask for and read nothing of it that they did not
// write.
#include <gtest/gtest.h>

#include "regard/kernel/additive.h"
#include "tests/kernel/problem.h"

namespace regard::kernel {
namespace {

using testing::Layout;
using testing::make_tensor;
using testing::Tensor;
using testing::Workspace;

struct Sizes {
  int64_t B, Hq, Hkv, Lq, Lk, Da, Dv;
};

class AdditiveWorkspace : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { select_target(GetParam()); }
  void TearDown() override { select_target(""); }
};

Tensor<float> random_tensor(const Extents& size, uint64_t seed) {
  Tensor<float> t = make_tensor<float>(size, Layout::contiguous, testing::kNan);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  testing::each(t, [&](float& x, int64_t, int64_t, int64_t, int64_t) { x = draw(random); });
  return t;
}

bool finite(Tensor<float>& t) {
  bool all = true;
  testing::each(t, [&](float& x, int64_t, int64_t, int64_t, int64_t) { all = all && std::isfinite(x); });
  return all;
}

TEST_P(AdditiveWorkspace, IsNeitherPassedNorReadBeforeItIsWritten) {
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1, 1, 1, 1}, Sizes{2, 4, 2, 13, 17, 5, 7}, Sizes{1, 2, 1, 12, 96, 8, 16},
        Sizes{1, 1, 1, 7, 97, 33, 3}, Sizes{1, 2, 2, 50, 450, 24, 33}, Sizes{1, 9, 9, 5, 31, 16, 1}}) {
    for (const int workers : {1, 2, 3}) {
      Tensor<float> q = random_tensor({s.B, s.Hq, s.Lq, s.Da}, 1);
      Tensor<float> k = random_tensor({s.B, s.Hkv, s.Lk, s.Da}, 2);
      Tensor<float> v = random_tensor({s.B, s.Hkv, s.Lk, s.Dv}, 3);
      Tensor<float> a = random_tensor({1, s.Hq, 1, s.Da}, 4);
      Tensor<float> out = make_tensor<float>({s.B, s.Hq, s.Lq, s.Dv}, Layout::position_major, testing::kNan);
      Tensor<float> lse = make_tensor<float>({s.B, s.Hq, s.Lq, 1}, Layout::contiguous, testing::kNan);
      Additive problem;
      problem.forward.q = View<const float>(q.view());
      problem.forward.k = View<const float>(k.view());
      problem.forward.v = View<const float>(v.view());
      problem.forward.out = out.view();
      problem.forward.lse = lse.view();
      problem.vector = a.view();
      problem.vector.size[0] = s.B;
      problem.vector.stride[0] = 0;
      ThreadPool pool(workers);
      Workspace forward(additive_workspace(problem, workers));
      additive(problem, forward.span(), pool);
      EXPECT_TRUE(forward.intact());
      EXPECT_TRUE(finite(out) && finite(lse));

      Tensor<float> grad = random_tensor({s.B, s.Hq, s.Lq, s.Dv}, 5);
      std::vector<Tensor<float>> grads;
      for (const Tensor<float>* t : {&q, &k, &v, &a})
        grads.push_back(make_tensor<float>(t->size, Layout::position_major, testing::kNan));
      AdditiveBackward backward;
      backward.additive = problem;
      backward.grad_out = grad.view();
      backward.grad_q = grads[0].view();
      backward.grad_k = grads[1].view();
      backward.grad_v = grads[2].view();
      backward.grad_vector = grads[3].view();
      backward.grad_vector.size[0] = s.B;
      backward.grad_vector.stride[0] = 0;
      Workspace scratch(additive_backward_workspace(backward, workers));
      additive_backward(backward, scratch.span(), pool);
      EXPECT_TRUE(scratch.intact());
      for (Tensor<float>& t : grads) EXPECT_TRUE(finite(t));
      EXPECT_THROW(additive(problem, {}, pool), std::invalid_argument);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AdditiveWorkspace, ::testing::ValuesIn(runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::kernel
