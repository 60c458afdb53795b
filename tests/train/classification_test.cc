// Pictures: the Vision Transformer against plain code, and its training.
#include "regard/train/classification.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include "regard/io/error.h"
#include "regard/io/json.h"
#include "regard/train/loop.h"
#include "regard/train/make_task.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

model::VitConfig small(bool positions = true) {
  model::VitConfig config;
  config.image_height = 8;
  config.image_width = 12;
  config.patch = 4;
  config.channels = 3;
  config.classes = 5;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.feed_forward = 24;
  config.positions = positions;
  return config;
}

Parameters random_parameters() {
  Initialisation start;
  start.deviation = 0.3;
  return Parameters(start, "", 3);
}

at::Tensor logits_of(const model::Vit& vit, const at::Tensor& images) {
  layer::Context context;
  return vit.logits(vit.states(images, context).back());
}

TEST(Vit, APatchIsAConvolutionWhoseKernelIsItsStride) {
  const at::Tensor images = at::randn({2, 3, 8, 12}), weight = at::randn({5, 3, 4, 4}), bias = at::randn({5});
  const at::Tensor patches = model::patches_of(images, 4);
  EXPECT_EQ(patches.sizes(), (at::IntArrayRef{2, 6, 48}));
  const at::Tensor convolved = at::conv2d(images, weight, bias, 4).flatten(2).transpose(1, 2);
  EXPECT_TRUE(at::allclose(at::linear(patches, weight.flatten(1), bias), convolved, 1e-5, 1e-5));
  // And back: no number is lost or moved twice.
  EXPECT_TRUE(
      patches.view({2, 2, 3, 3, 4, 4}).permute({0, 3, 1, 4, 2, 5}).reshape({2, 3, 8, 12}).equal(images));
  EXPECT_EQ(model::patches_of(at::zeros({1, 3, 224, 224}), 16).sizes(), (at::IntArrayRef{1, 196, 768}));
  EXPECT_THROW(model::patches_of(images, 5), std::invalid_argument);
}

// The same in float64, written out.
at::Tensor plain_logits(const Parameters& parameters, const model::VitConfig& config,
                        const at::Tensor& images) {
  std::map<std::string, at::Tensor> p;
  for (const auto& named : parameters.published()) p[named.name] = named.value.to(at::kDouble);
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::matmul(x, p.at(name + ".weight").t()) + p.at(name + ".bias");
  };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + config.epsilon).sqrt() * p.at(name + ".weight") +
           p.at(name + ".bias");
  };
  const std::string projection = "vit.embeddings.patch_embeddings.projection";
  at::Tensor x = at::conv2d(images.to(at::kDouble), p.at(projection + ".weight"), p.at(projection + ".bias"),
                            config.patch)
                     .flatten(2)
                     .transpose(1, 2);
  x = at::cat({p.at("vit.embeddings.cls_token").expand({x.size(0), 1, config.width}), x}, 1);
  if (config.positions) x = x + p.at("vit.embeddings.position_embeddings");
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "vit.encoder.layer." + std::to_string(i) + ".";
    const at::Tensor in = norm(x, layer + "layernorm_before");
    const auto heads = [&](const char* name) {
      return linear(in, layer + "attention.attention." + name)
          .view({x.size(0), x.size(1), config.heads, -1})
          .transpose(1, 2);
    };
    const at::Tensor q = heads("query"), k = heads("key"), v = heads("value");
    const at::Tensor weights =
        (at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)))).softmax(-1);
    const at::Tensor mixed = at::matmul(weights, v).transpose(1, 2).reshape(x.sizes());
    x = x + linear(mixed, layer + "attention.output.dense");
    const at::Tensor up = linear(norm(x, layer + "layernorm_after"), layer + "intermediate.dense");
    x = x + linear(up * 0.5 * (1 + at::erf(up / std::sqrt(2.0))), layer + "output.dense");
  }
  return linear(norm(x, "vit.layernorm").select(1, 0), "classifier");
}

TEST(Vit, EqualsWhatIsWrittenOut) {
  for (const bool positions : {true, false}) {
    const model::VitConfig config = small(positions);
    const Parameters parameters = random_parameters();
    const model::Vit vit(config, parameters);
    const at::Tensor images = at::randn({3, 3, 8, 12});
    const at::Tensor want = plain_logits(parameters, config, images);
    const at::Tensor got = logits_of(vit, images);
    EXPECT_LE((got - want).abs().max().item<double>(), 1e-5 * want.abs().max().item<double>());
  }
}

TEST(Vit, WithoutPositionsTheOrderOfPatchesIsNotSeen) {
  const at::Tensor images = at::randn({2, 3, 8, 12});
  const at::Tensor turned = at::cat({images.narrow(3, 4, 8), images.narrow(3, 0, 4)}, 3);  // by one patch
  for (const bool positions : {true, false}) {
    const model::Vit vit(small(positions), random_parameters());
    const double difference = (logits_of(vit, images) - logits_of(vit, turned)).abs().max().item<double>();
    if (positions) {
      EXPECT_GT(difference, 1e-2);
    } else {
      EXPECT_LT(difference, 1e-4);
    }
  }
  EXPECT_THROW(logits_of(model::Vit(small(), random_parameters()), at::zeros({1, 3, 8, 8})),
               std::invalid_argument);
}

TEST(Vit, ConfigurationsAreReadAsTheyAreWritten) {
  const model::VitConfig config = small(false);
  const io::Json json = model::to_json(config);
  EXPECT_EQ(model::to_json(model::read_vit(json, "config.json")), json);
  const auto refusal = [&](const char* field, const io::Json& value) {
    io::Json other = json;
    other[field] = value;
    return io::message_of<io::Error>([&] { model::read_vit(other, "config.json"); });
  };
  EXPECT_THAT(refusal("patch_size", 5), HasSubstr("multiples of patch_size, 5"));
  EXPECT_THAT(refusal("num_attention_heads", 3), HasSubstr("num_attention_heads"));
  EXPECT_THAT(refusal("hidden_act", "relu"), HasSubstr("known is gelu"));
  EXPECT_THAT(refusal("image_size", io::Json::array({8})), HasSubstr("image_size"));
  EXPECT_THAT(refusal("id2label", io::Json::object()), HasSubstr("fewer than 2 classes"));
  EXPECT_THAT(refusal("model_type", "bert"), HasSubstr("is not \"vit\""));
}

TEST(Vit, PixelsAreScaledChannelByChannel) {
  const io::Idx images{{2, 1, 2, 3}, {0, 10, 7, 255, 20, 7, 0, 30, 7, 255, 40, 7}};
  const model::PixelScale scale = model::pixel_scale(images);
  EXPECT_NEAR(scale.mean[1], 25.0 / 255, 1e-12);
  EXPECT_EQ(scale.std[2], 1.0);
  const at::Tensor all = model::pixels(images, {1, 0}, scale);
  EXPECT_EQ(all.sizes(), (at::IntArrayRef{2, 3, 1, 2}));
  EXPECT_FLOAT_EQ(all[0][0][0][1].item<float>(), 1.0F);
  EXPECT_NEAR(all[1][1][0][0].item<double>(), -15 / std::sqrt(125.0), 1e-6);
  EXPECT_THROW(model::pixels({{1, 2, 2}, {1, 2, 3, 4}}, {0}, scale), std::invalid_argument);
  const model::PixelScale read =
      model::read_pixel_scale(model::to_json(scale), 3, "preprocessor_config.json");
  EXPECT_EQ(read.mean, scale.mean);
  EXPECT_EQ(read.std, scale.std);
}

class Pictures : public ::testing::Test {
 protected:
  // Grey pictures of 8 x 8 with a bright square in one of four corners, which is the class.
  void SetUp() override {
    write("train", 160);
    write("valid", 40);
    io::write_all(folder_ / "recipe.toml", R"(
kind = "classifier"
[data]
train = "train.images.gz"
train_labels = "train.labels"
valid = "valid.images.gz"
valid_labels = "valid.labels"
[model]
patch = 2
layers = 2
width = 16
heads = 2
[train]
steps = 60
batch = 16
rate = 1e-2
warmup = 5
validate_every = 20
)");
  }
  void write(const std::string& part, int64_t count) const {
    io::Idx images{{count, 8, 8}, {}}, labels{{count}, {}};
    for (int64_t i = 0; i < count; ++i) {
      const int64_t label = i * 7 % 4;
      labels.values.push_back(static_cast<uint8_t>(label));
      for (int64_t pixel = 0; pixel < 64; ++pixel) {
        const bool inside = pixel / 32 == label / 2 && pixel % 8 / 4 == label % 2;
        images.values.push_back(static_cast<uint8_t>((inside ? 120 : 0) + (pixel * 37 + i * 91) % 100));
      }
    }
    io::write_idx(folder_ / (part + ".images.gz"), images);
    io::write_idx(folder_ / (part + ".labels"), labels);
  }
  Recipe recipe(const std::vector<std::string>& settings = {}) const {
    return read_recipe(folder_ / "recipe.toml", settings);
  }
  Classification task(const std::vector<std::string>& settings = {}) const {
    const Recipe read = recipe(settings);
    return Classification(std::get<ClassifierRecipe>(read.task), read.train);
  }
  std::string refusal(const std::vector<std::string>& settings) const {
    return io::message_of<std::invalid_argument>([&] { task(settings); });
  }

  io::TemporaryFolder folder_;
};

TEST_F(Pictures, AreLearnedSavedAndNamedAgain) {
  const Recipe how = recipe();
  EXPECT_EQ(how.train.best, Metric::accuracy);
  const std::unique_ptr<Task> made = make_task(how, folder_ / "out");
  EXPECT_LT(*made->validate(0)->accuracy, 0.6);
  const Outcome outcome = train(*made, how, folder_ / "out");
  EXPECT_GT(*outcome.best, 0.95);
  EXPECT_TRUE(model::is_classifier((folder_ / "out").string()));
  const model::LoadedClassifier loaded = model::load_classifier((folder_ / "out").string());
  const LabelledImages valid = read_labelled(folder_ / "valid.images.gz", folder_ / "valid.labels");
  const ImageQuality found = evaluate(*loaded.model, loaded.scale, valid);
  EXPECT_DOUBLE_EQ(found.accuracy, *outcome.best);
  EXPECT_EQ(found.images, 40);
  int64_t right = 0;
  for (const ImageQuality::Class& of : found.classes) {
    EXPECT_EQ(of.images, 10);
    right += of.right;
  }
  EXPECT_DOUBLE_EQ(static_cast<double>(right) / 40, found.accuracy);
  LabelledImages other = valid;
  other.labels.values[3] = 4;
  EXPECT_THAT(io::message_of<std::invalid_argument>([&] { evaluate(*loaded.model, loaded.scale, other); }),
              HasSubstr("there is the label 4; the model knows 4 classes"));
  const io::Json config = io::read_json(folder_ / "out/config.json");
  EXPECT_EQ(config["architectures"][0], "ViTForImageClassification");
  EXPECT_THAT(io::read_all(folder_ / "out/heads.csv"), HasSubstr("\n60,layer 1,1,"));
}

TEST_F(Pictures, EachIsSeenOnceBeforeAnyComesAgain) {
  const Classification of = task();
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t pass = 0; pass < 10; ++pass) {
      const std::vector<int64_t> numbers = of.numbers(10 * epoch + pass);
      order.insert(order.end(), numbers.begin(), numbers.end());
    }
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 160u);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(task().numbers(13), of.numbers(13));
}

TEST_F(Pictures, AreMovedAndTurnedInTraining) {
  const Classification plain = task();
  const Classification varied = task({"data.shift=1", "data.flip=true"});
  EXPECT_TRUE(varied.pictures(4).equal(varied.pictures(4)));
  std::set<int> seen;
  for (int64_t pass = 0; pass < 10; ++pass) {
    const at::Tensor before = plain.pictures(pass), after = varied.pictures(pass);
    for (int64_t i = 0; i < before.size(0); ++i) {
      const at::Tensor wide = at::replication_pad2d(before[i], {1, 1, 1, 1});
      int which = -1;
      for (int way = 0; way < 18; ++way) {
        at::Tensor one = wide.narrow(1, way / 2 % 3, 8).narrow(2, way / 6, 8);
        if (way % 2 == 1) one = one.flip(2);
        if (one.equal(after[i])) which = way;
      }
      ASSERT_GE(which, 0);
      seen.insert(which);
    }
  }
  EXPECT_EQ(seen.size(), 18u);
}

TEST_F(Pictures, CheckpointedLayersGiveTheSameBits) {
  std::vector<at::Tensor> first;
  for (const char* checkpoint : {"false", "true"}) {
    Classification of = task({"model.dropout=0.3", std::string("train.checkpoint_layers=") + checkpoint});
    of.loss(2).backward();
    std::vector<at::Tensor> got;
    for (const auto& named : of.parameters()) got.push_back(named.value.grad().clone());
    if (first.empty()) first = got;
    ASSERT_EQ(got.size(), first.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(at::equal(got[i], first[i])) << of.parameters()[i].name;
  }
}

TEST_F(Pictures, WhatDoesNotGoTogetherIsRefused) {
  EXPECT_THAT(refusal({"model.patch=3"}), HasSubstr("model.patch is 3; the pictures are 8 x 8"));
  EXPECT_THAT(refusal({"model.heads=3"}), HasSubstr("multiple of heads (3)"));
  EXPECT_THAT(refusal({"train.batch=161"}), HasSubstr("there are only 160 pictures"));
  EXPECT_THAT(refusal({"train.best=bleu"}), HasSubstr("measure accuracy and loss"));
  EXPECT_THAT(refusal({"data.valid_labels="}), HasSubstr("pictures and labels go together"));
  EXPECT_THAT(refusal({"data.tran=x"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(io::message_of<io::Error>([&] { task({"data.valid_labels=train.labels"}); }),
              HasSubstr("one label for each of the 40 pictures"));
  EXPECT_THAT(io::message_of<io::Error>([&] { task({"data.train=train.labels"}); }),
              HasSubstr("no pictures"));
}

}  // namespace
}  // namespace regard::train
