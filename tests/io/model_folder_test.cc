#include "regard/io/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "regard/io/error.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Sets an environment variable and puts the old value back.
class Environment {
 public:
  Environment(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Environment() { set(old_); }

 private:
  void set(const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name_, value->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

void write_weights(const fs::path& path, const std::string& name, float value) {
  fs::create_directories(path.parent_path());
  const std::vector<float> numbers = {value};
  write_safetensors(path, std::vector{view(name, {1}, numbers)});
}

// A model as the Hugging Face cache keeps it: names in snapshots link to blobs.
void make_cached_model(const fs::path& model) {
  write_all(model / "refs/main", "abc123");
  write_all(model / "blobs/111", R"({"model_type": "bert"})");
  write_weights(model / "blobs/222", "a", 7);
  fs::create_directories(model / "snapshots/abc123");
  fs::create_symlink("../../blobs/111", model / "snapshots/abc123/config.json");
  fs::create_symlink("../../blobs/222", model / "snapshots/abc123/model.safetensors");
}

TEST(ModelFolder, FindsTensorsOverAllShards) {
  const TemporaryFolder folder;
  write_weights(folder / "1.safetensors", "a", 1);
  write_weights(folder / "2.safetensors", "b", 2);
  write_all(folder / "config.json", R"({"model_type": "bert"})");
  write_all(folder / "1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  write_all(folder / "model.safetensors.index.json",
            R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  ModelFolder opened = ModelFolder::open(folder.path());
  const ModelFolder model = std::move(opened);
  EXPECT_EQ(require_string(model.config(), "model_type"), "bert");
  EXPECT_EQ(values<float>(model.require("a"))[0], 1);
  EXPECT_EQ(values<float>(model.require("b"))[0], 2);
  EXPECT_EQ(model.find("c"), nullptr);
  EXPECT_EQ(model.shards().size(), 2u);
  EXPECT_TRUE(require_bool(*model.json("1_Pooling/config.json"), "pooling_mode_mean_tokens"));
  EXPECT_FALSE(model.file("tokenizer.json"));
  EXPECT_FALSE(model.file("2_Normalize/config.json"));
  EXPECT_FALSE(model.file("config.json/below"));
  EXPECT_THROW(model.file("../x"), std::invalid_argument);
  EXPECT_THROW(model.file("/etc/passwd"), std::invalid_argument);
  EXPECT_THAT(message_of<Error>([&] { model.require("c"); }), HasSubstr("tensor \"c\" is missing"));
}

TEST(ModelFolder, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<Error>([&] { ModelFolder::open(folder / "nowhere"); }), HasSubstr("No such file"));
  write_all(folder / "file", "x");
  EXPECT_THAT(message_of<Error>([&] { ModelFolder::open(folder / "file"); }), HasSubstr("is not a folder"));
  const ModelFolder model = ModelFolder::open(folder.path());
  EXPECT_THAT(message_of<Error>([&] { model.config(); }), HasSubstr("config.json is missing"));
  EXPECT_THAT(message_of<Error>([&] { model.require("a"); }), HasSubstr("neither model.safetensors nor"));
  write_all(folder / "pytorch_model.bin", "x");
  EXPECT_THAT(message_of<Error>([&] { model.require("a"); }),
              HasSubstr("a pickle, which Regard does not read"));
}

TEST(ModelFolder, FollowsTheLinksOfTheHuggingFaceCacheOnly) {
  const TemporaryFolder hub;
  make_cached_model(hub / "models--org--name");
  const ModelFolder model = ModelFolder::open(hub / "models--org--name/snapshots/abc123");
  EXPECT_EQ(values<float>(model.require("a"))[0], 7);
  EXPECT_EQ(require_string(model.config(), "model_type"), "bert");

  // The same links are refused where the folder is no such cache, and a link to a neighbour always.
  make_cached_model(hub / "elsewhere");
  EXPECT_THAT(message_of<Error>([&] { ModelFolder::open(hub / "elsewhere/snapshots/abc123"); }),
              HasSubstr("outside the model's folder"));
  make_cached_model(hub / "models--org--other");
  fs::create_symlink("../../../models--org--name/blobs/111",
                     hub / "models--org--other/snapshots/abc123/tokenizer.json");
  const ModelFolder other = ModelFolder::open(hub / "models--org--other/snapshots/abc123");
  EXPECT_THAT(message_of<Error>([&] { other.file("tokenizer.json"); }),
              HasSubstr("outside the model's folder"));
}

TEST(HuggingFaceCache, IsFoundInItsThreePlacesInOrder) {
  const TemporaryFolder root;
  make_cached_model(root / "hub_cache/models--org--name");
  make_cached_model(root / "home/hub/models--org--name");
  make_cached_model(root / "user/.cache/huggingface/hub/models--org--name");
  const Environment user("HOME", (root / "user").string());
  const Environment xdg("XDG_CACHE_HOME", std::nullopt);
  const Environment home("HF_HOME", std::nullopt);
  const Environment cache("HF_HUB_CACHE", std::nullopt);
  const std::string end = "models--org--name/snapshots/abc123";
  EXPECT_EQ(find_in_hf_cache("org/name"), root / "user/.cache/huggingface/hub" / end);
  const Environment home_set("HF_HOME", (root / "home").string());
  EXPECT_EQ(find_in_hf_cache("org/name"), root / "home/hub" / end);
  const Environment cache_set("HF_HUB_CACHE", (root / "hub_cache").string());
  EXPECT_EQ(find_in_hf_cache("org/name"), root / "hub_cache" / end);

  EXPECT_FALSE(find_in_hf_cache("org/unknown"));
  EXPECT_FALSE(find_in_hf_cache("name"));
  EXPECT_FALSE(find_in_hf_cache("../name"));
  EXPECT_FALSE(find_in_hf_cache("org/a/b"));
  write_all(root / "hub_cache/models--org--bad/refs/main", "../../../x\n");
  EXPECT_THAT(message_of<Error>([&] { find_in_hf_cache("org/bad"); }), HasSubstr("name of a revision"));
}

TEST(ModelFolder, OpensMiniLM) {
  const fs::path folder = installed_model("minilm");
  if (folder.empty()) GTEST_SKIP() << "the model minilm is not installed (regard models get minilm)";
  const ModelFolder model = ModelFolder::open(folder);
  EXPECT_EQ(model.shards().at(0).tensors().size(), 104u);
  EXPECT_EQ(model.require("embeddings.word_embeddings.weight").shape, (std::vector<int64_t>{30522, 384}));
  EXPECT_EQ(model.require("embeddings.position_ids").type, Type::i64);
  EXPECT_EQ(require_int(model.config(), "num_hidden_layers", 1, 100), 6);
  EXPECT_TRUE(model.json("1_Pooling/config.json"));
  EXPECT_TRUE(model.json("tokenizer.json"));
}

}  // namespace
}  // namespace regard::io
