// The language model's options: each trains, is saved, and is read back as the same model.
#include "regard/train/language_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>

#include "regard/io/json.h"
#include "regard/model/generate.h"
#include "regard/model/load.h"
#include "regard/model/pool_heads.h"
#include "regard/text/train_vocabulary.h"
#include "regard/train/loop.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::HasSubstr;

class LanguageModelOptions : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 150; ++i) text += "the quick brown fox " + std::to_string(i % 7) + " jumps; \n\n";
    io::write_all(folder_ / "text.txt", text);
    std::filesystem::create_directories(folder_ / "model");
    std::filesystem::create_directories(folder_ / "many");
    io::write_all(folder_ / "recipe.toml", R"(
kind = "language_model"
[data]
train = "text.txt"
valid = "text.txt"
[model]
layers = 2
width = 32
heads = 4
[train]
steps = 6
length = 24
batch = 4
rate = 1e-2
warmup = 2
validate_every = 3
validation_pieces = 8
alarm_after = 0
)");
  }
  Recipe recipe(const std::vector<std::string>& settings) const {
    return read_recipe(folder_ / "recipe.toml", settings);
  }
  // Logits of the trained model and of what it saved, over one text: whole, and token by token with a cache.
  void expect_read_back(LanguageModel& task, double tolerance = 1e-5) {
    task.save(folder_ / "model");
    const model::Loaded loaded = model::load((folder_ / "model").string());
    const at::NoGradGuard no_grad;
    const at::Tensor ids = at::tensor({'t', 'h', 'e', ' ', 'q', 'u', 'i', 'c', 'k'}, at::kLong).unsqueeze(0);
    const model::Input input{.ids = ids, .type_ids = {}, .lengths = {}};
    layer::Context one, two, three;
    const at::Tensor want = task.model().logits(task.model().hidden(input, one));
    const at::Tensor got = loaded.model->logits(loaded.model->hidden(input, two));
    EXPECT_LE((got - want).abs().max().item<double>(), tolerance);
    const auto cache = loaded.model->make_cache(1, 16);
    three.cache = cache.get();
    at::Tensor last;
    for (int64_t i = 0; i < ids.size(1); ++i) {
      three.position = i;
      last = loaded.model->hidden({.ids = ids.narrow(1, i, 1), .type_ids = {}, .lengths = {}}, three);
    }
    EXPECT_LE(
        (loaded.model->logits(last).squeeze(1) - want.select(1, ids.size(1) - 1)).abs().max().item<double>(),
        std::max(1e-3, tolerance));
  }
  double trained_loss(const Recipe& how, double tolerance = 1e-5) {
    LanguageModel task(how);
    double last = 0;
    Listener listener;
    listener.step = [&](const StepReport& report) { last = report.loss; };
    train(task, how, folder_ / ("run" + std::to_string(runs_++)), listener);
    expect_read_back(task, tolerance);
    return last;
  }
  std::string type() const {
    return io::read_json(folder_ / "model/config.json")["model_type"].get<std::string>();
  }

  io::TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(LanguageModelOptions, AMadeUpLanguageIsATextOfItsWords) {
  io::write_all(folder_ / "zipf.toml", R"(
[data]
task = "zipf_markov"
items = 50
tokens = 4000
valid_tokens = 500
[model]
layers = 1
width = 32
heads = 2
[train]
steps = 60
length = 32
batch = 4
rate = 1e-2
warmup = 5
)");
  const Recipe read = read_recipe(folder_ / "zipf.toml");
  LanguageModel task(read);
  EXPECT_EQ(task.tokenizer().vocabulary_size(), 54u);
  EXPECT_EQ(task.tokenizer().encode("7 0 49").ids, (std::vector<text::TokenId>{11, 4, 53, text::kEosId}));
  Optimizer optimizer(read.train.optimizer, task.parameters());
  const double before = task.validate(0)->loss;
  for (int64_t step = 0; step < read.train.steps; ++step) {
    optimizer.zero_gradients();
    task.loss(step).backward();
    optimizer.step(read.train.schedule.rate);
  }
  EXPECT_LT(task.validate(60)->loss, 0.9 * before);
}

TEST_F(LanguageModelOptions, AMixtureOfExpertsIsSavedAsMixtral) {
  const double loss = trained_loss(recipe({"model.experts=3", "model.experts_chosen=2", "train.steps=30"}));
  EXPECT_LT(loss, 3.5);
  EXPECT_EQ(type(), "mixtral");
}

TEST_F(LanguageModelOptions, TheBalanceTermIsInTheLoss) {
  LanguageModel without(recipe({"model.experts=4", "train.balance=0"}));
  LanguageModel with(recipe({"model.experts=4", "train.balance=0.5"}));
  // Two layers, each near 1 when experts are used alike.
  const double difference = with.loss(0).item<double>() - without.loss(0).item<double>();
  EXPECT_GT(difference, 0.9);
  EXPECT_LT(difference, 2.5);
}

TEST_F(LanguageModelOptions, LatentAttentionIsSavedAsDeepSeeks) {
  const double loss = trained_loss(recipe({"model.latent_rank=12", "model.latent_rope=4", "train.steps=30"}));
  EXPECT_LT(loss, 3.5);
  EXPECT_EQ(type(), "deepseek_v2");
  trained_loss(recipe({"model.latent_rank=12", "model.latent_query_rank=16", "train.steps=2"}));
}

TEST_F(LanguageModelOptions, HeadsThatDoNotLookAtEveryTokenAreOurOwn) {
  for (const char* head : {"adaptive", "hierarchical"}) {
    const double loss =
        trained_loss(recipe({std::string("model.head=") + head, "model.window=9", "train.steps=40"}));
    EXPECT_LT(loss, 4.0) << head;
    EXPECT_EQ(type(), "regard_decoder");
  }
  trained_loss(recipe({"model.head=adaptive", "model.head_division=2", "train.steps=2"}));
  EXPECT_EQ(io::read_json(folder_ / "model/config.json")["vocabulary_head"]["division"], 2.0);
  EXPECT_THROW(recipe({"model.head=adaptive", "train.label_smoothing=0.1"}), std::invalid_argument);
  EXPECT_THROW(recipe({"model.head=other"}), std::invalid_argument);
}

TEST_F(LanguageModelOptions, RopeScalingIsLlama31sAndRunsFartherThanTraining) {
  trained_loss(recipe({"model.rope_factor=8", "model.rope_original_length=24", "model.positions=192"}));
  const auto config = io::read_json(folder_ / "model/config.json");
  EXPECT_EQ(config["max_position_embeddings"], 192);
  EXPECT_THROW(recipe({"model.positions=8"}), std::invalid_argument);
  EXPECT_EQ(config["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(config["rope_scaling"]["factor"], 8.0);
}

// One by one: dropout, checkpointed or not, with everything that adds to the loss.
TEST_F(LanguageModelOptions, CheckpointedLayersGiveTheSameBits) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{},
                                             {"model.dropout=0.3"},
                                             {"model.dropout=0.2", "model.kv_heads=2", "train.diversity=50"},
                                             {"model.experts=3", "model.dropout=0.1"},
                                             {"model.latent_rank=12"}}) {
    std::vector<at::Tensor> first;
    for (const char* checkpoint : {"false", "true"}) {
      std::vector<std::string> settings = more;
      settings.push_back(std::string("train.checkpoint_layers=") + checkpoint);
      LanguageModel task(recipe(settings));
      const at::Tensor loss = task.loss(3);
      loss.backward();
      std::vector<at::Tensor> got = {loss.detach()};
      for (const auto& named : task.parameters()) got.push_back(named.value.grad().clone());
      if (first.empty()) first = got;
      ASSERT_EQ(got.size(), first.size());
      EXPECT_NEAR(got[0].item<double>(), first[0].item<double>(), 1e-6);
      for (size_t i = 1; i < got.size(); ++i)
        EXPECT_TRUE(at::equal(got[i], first[i])) << task.parameters()[i - 1].name;
    }
  }
}

TEST_F(LanguageModelOptions, DropoutIsOfThePassAloneAndNotOfValidation) {
  LanguageModel task(recipe({"model.dropout=0.4"}));
  const double first = task.loss(5).item<double>();
  EXPECT_EQ(task.loss(5).item<double>(), first);
  LanguageModel plain(recipe({}));
  EXPECT_NE(plain.loss(5).item<double>(), first);
  EXPECT_EQ(plain.validate(0)->loss, task.validate(0)->loss);
}

TEST_F(LanguageModelOptions, ProductsInBf16StayNearF32) {
  const double exact = trained_loss(recipe({"train.steps=25"}));
  // What is read back multiplies in float32: only near.
  const double rounded = trained_loss(recipe({"train.steps=25", "train.precision=bf16"}), 0.1);
  EXPECT_NE(exact, rounded);
  EXPECT_NEAR(rounded, exact, 0.05 * exact);
  EXPECT_THROW(recipe({"train.precision=bf16", "model.experts=2"}), std::invalid_argument);
}

TEST_F(LanguageModelOptions, MinusLambdaKeepsHeadsApart) {
  const auto diversity_after = [&](const std::string& lambda) {
    const Recipe how = recipe({"train.steps=20", "train.diversity=" + lambda});
    LanguageModel task(how);
    train(task, how, folder_ / ("run" + lambda));
    // The term alone: what lambda = 1 adds to the loss, with its sign turned back.
    LanguageModel with(recipe({"train.diversity=1"})), without(recipe({}));
    for (LanguageModel* other : {&with, &without}) {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < task.parameters().size(); ++i)
        other->parameters()[i].value.copy_(task.parameters()[i].value);
    }
    return without.loss(0).item<double>() - with.loss(0).item<double>();
  };
  EXPECT_GT(diversity_after("300"), 1.2 * diversity_after("-300"));
}

// In a packed row every document is what it is alone.
TEST_F(LanguageModelOptions, PackedDocumentsDoNotSeeEachOther) {
  LanguageModel task(recipe({}));
  const at::Tensor ids = at::tensor({'t', 'h', 'e', 'q', 'u', 'i', 'c', 'k'}, at::kLong).unsqueeze(0);
  layer::Context packed, alone;
  const at::Tensor together =
      task.model().hidden({.ids = ids,
                           .type_ids = {},
                           .lengths = {},
                           .segments = at::tensor({0, 0, 0, 1, 1, 1, 1, 1}, at::kInt).unsqueeze(0),
                           .positions = at::tensor({0, 1, 2, 0, 1, 2, 3, 4}, at::kLong).unsqueeze(0)},
                          packed);
  const at::Tensor second =
      task.model().hidden({.ids = ids.narrow(1, 3, 5), .type_ids = {}, .lengths = {}}, alone);
  EXPECT_LE((together.narrow(1, 3, 5) - second).abs().max().item<double>(), 1e-5);
  layer::Context third;
  EXPECT_THROW(
      task.model().hidden(
          {.ids = ids, .type_ids = {}, .lengths = {}, .segments = at::zeros({1, 8}, at::kInt)}, third),
      std::invalid_argument);
  const double loss = trained_loss(recipe({"data.documents=\"\\n\\n\"", "train.steps=30"}));
  EXPECT_LT(loss, 3.5);
}

TEST_F(LanguageModelOptions, GroupedHeadsBeginAsMeansOfAModelWithMore) {
  LanguageModel many(recipe({}));
  many.save(folder_ / "many");
  LanguageModel few(recipe({"model.kv_heads=2", "train.seed=9"}));
  few.begin_from(folder_ / "many");
  const auto find = [](const LanguageModel& task, const std::string& name) {
    for (const auto& named : task.published())
      if (named.name == name) return named.value;
    return at::Tensor();
  };
  const std::string layer = "model.layers.1.self_attn.";
  EXPECT_TRUE(at::equal(find(few, layer + "q_proj.weight"), find(many, layer + "q_proj.weight")));
  EXPECT_TRUE(at::equal(find(few, layer + "k_proj.weight"),
                        model::pool_heads(find(many, layer + "k_proj.weight"), 4, 2)));
  EXPECT_TRUE(at::equal(find(few, layer + "v_proj.weight"),
                        model::pool_heads(find(many, layer + "v_proj.weight"), 4, 2)));
  LanguageModel other(recipe({"model.width=16"}));
  EXPECT_THROW(other.begin_from(folder_ / "many"), std::exception);
}

TEST_F(LanguageModelOptions, UniformHeadsAreToldWithTheCauseAndLogged) {
  const Recipe how = recipe({"model.deviation=0.0005", "train.rate=1e-6", "train.alarm_after=3"});
  LanguageModel task(how);
  std::vector<std::string> alarms;
  Listener listener;
  listener.alarm = [&](int64_t step, const std::string& what) {
    alarms.push_back(std::to_string(step) + ": " + what);
  };
  train(task, how, folder_ / "run", listener);
  ASSERT_EQ(alarms.size(), 1u);  // told once, though it lasts
  EXPECT_THAT(alarms[0], HasSubstr("3: 8 of 8 heads look at all keys alike"));
  EXPECT_THAT(alarms[0], HasSubstr("the likely cause is the start"));
  std::ifstream file(folder_ / "run/heads.csv");
  std::string line;
  int lines = 0;
  std::getline(file, line);
  EXPECT_EQ(line, "step,layer,head,entropy,share,spread,contribution");
  while (std::getline(file, line)) ++lines;
  EXPECT_EQ(lines, 16);  // two validations, two layers of four heads
  EXPECT_THAT(io::read_all(folder_ / "run/events.out.tfevents.0.regard"),
              HasSubstr("entropy_share/layer1/head3"));
}

}  // namespace
}  // namespace regard::train
