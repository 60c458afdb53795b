// config.json from strangers: every bad value is one sentence that names the field, what it holds and what is
// allowed.
#include <gmock/gmock.h>

#include "golden.h"
#include "regard/io/error.h"
#include "regard/model/config.h"
#include "regard/model/decoder.h"
#include "regard/model/load.h"

namespace regard::model::testing {
namespace {

using ::testing::HasSubstr;

io::Json config_of(const std::string& model) {
  return io::read_json(golden_path("tiny-models/" + model + "/config.json"));
}

std::string refusal(const io::Json& json) {
  try {
    read_config(json, "config.json");
  } catch (const io::Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Config, BadValuesAreRefusedByField) {
  struct Bad {
    const char* model;
    const char* field;
    io::Json value;
  };
  const std::vector<Bad> cases = {
      {"qwen2", "num_attention_heads", 0},
      {"qwen2", "num_attention_heads", -1},
      {"qwen2", "num_attention_heads", 1e9},
      {"qwen2", "num_attention_heads", 1000000000},
      {"qwen2", "num_attention_heads", "12"},
      {"qwen2", "num_attention_heads", 12.5},
      {"qwen2", "num_attention_heads", NAN},
      {"qwen2", "num_attention_heads", 5},  // does not divide the width
      {"qwen2", "num_key_value_heads", 5},  // more than heads
      {"qwen2", "num_key_value_heads", 3},  // does not divide heads
      {"qwen2", "num_key_value_heads", 0},
      {"qwen2", "num_hidden_layers", 1000000},
      {"qwen2", "num_hidden_layers", nullptr},
      {"qwen2", "rms_norm_eps", 0},
      {"qwen2", "rms_norm_eps", 1e40},
      {"qwen2", "rms_norm_eps", "small"},
      {"qwen2", "hidden_act", "tanh"},
      {"qwen2", "hidden_act", 3},
      {"qwen2", "vocab_size", 0},
      {"qwen2", "tie_word_embeddings", "yes"},
      {"bert-mlm", "num_attention_heads", 7},
      {"bert-mlm", "layer_norm_eps", 0},
      {"bert-mlm", "max_position_embeddings", 0},
      {"bert-mlm", "position_embedding_type", "relative_key"},
      {"gpt2", "n_head", 7},
      {"gpt2", "n_positions", -1},
      {"gpt2", "scale_attn_weights", false},
      {"mistral-window16", "sliding_window", 0},
      {"mistral-window16", "head_dim", 7},
  };
  for (const Bad& bad : cases) {
    io::Json json = config_of(bad.model);
    json[bad.field] = bad.value;
    const std::string message = refusal(json);
    EXPECT_THAT(message, HasSubstr("config.json")) << bad.field << " = " << bad.value;
    EXPECT_NE(message, "accepted") << bad.field << " = " << bad.value;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(refusal([] {
                io::Json json = config_of("qwen2");
                json["num_attention_heads"] = "12";
                return json;
              }()),
              HasSubstr("num_attention_heads"));
}

TEST(Config, BadRopeIsRefused) {
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, io::Json>>{{"rope_theta", 0},
                                                     {"rope_type", "yarn"},
                                                     {"factor", 0},
                                                     {"factor", "8"},
                                                     {"high_freq_factor", 0.5},
                                                     {"original_max_position_embeddings", 0}}) {
    io::Json json = config_of("llama3-rope");
    json["rope_parameters"][field] = value;
    EXPECT_NE(refusal(json), "accepted") << field << " = " << value;
  }
}

TEST(Config, OldAndNewSpellingOfRopeMeanTheSame) {
  io::Json json = config_of("llama3-rope");
  const TransformerConfig now = read_config(json, "config.json");
  json["rope_scaling"] = json["rope_parameters"];
  json["rope_theta"] = json["rope_parameters"]["rope_theta"];
  json.erase("rope_parameters");
  const TransformerConfig then = read_config(json, "config.json");
  EXPECT_EQ(then.rope_base, now.rope_base);
  EXPECT_EQ(then.rope_base, 500000.0);
  EXPECT_EQ(then.rope_scaling.kind, layer::RopeScaling::Kind::llama3);
  EXPECT_EQ(then.rope_scaling.factor, now.rope_scaling.factor);
  EXPECT_EQ(then.rope_scaling.original_length, 64);
}

TEST(Config, AnUnknownArchitectureIsNamedTogetherWithTheKnownOnes) {
  io::Json json = config_of("qwen2");
  json["model_type"] = "mamba";
  EXPECT_THAT(refusal(json),
              ::testing::AllOf(HasSubstr("mamba"), HasSubstr("bert, gpt2, llama, mistral, qwen2, qwen3")));
  json.erase("model_type");
  EXPECT_THAT(refusal(json), HasSubstr("model_type"));
  EXPECT_NE(refusal(io::Json::array()), "accepted");
}

TEST(Config, WindowsFollowTheArchitecture) {
  EXPECT_EQ(read_config(config_of("mistral-window16"), "").windows, (std::vector<int64_t>{16, 16}));
  EXPECT_FALSE(read_config(config_of("qwen2"), "").windowed());
  io::Json json = config_of("qwen2");
  json["sliding_window"] = 8;
  EXPECT_FALSE(read_config(json, "").windowed());  // use_sliding_window is false
  json["use_sliding_window"] = true;
  json["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(read_config(json, "").windows, (std::vector<int64_t>{0, 8}));
  json["layer_types"] = {"full_attention"};
  EXPECT_NE(refusal(json), "accepted");
}

// A folder with the config of one model and the weights of the same, changed.
class Folder {
 public:
  Folder(const std::string& model, const std::function<void(io::Json&)>& change)
      : path_(std::filesystem::path(::testing::TempDir()) / ("regard_config_" + model)) {
    std::filesystem::create_directories(path_);
    std::filesystem::copy_file(golden_path("tiny-models/" + model + "/model.safetensors"),
                               path_ / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    io::Json json = config_of(model);
    change(json);
    std::ofstream(path_ / "config.json") << json;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string refusal() const {
    try {
      load_weights(std::make_shared<const io::ModelFolder>(io::ModelFolder::open(path_)));
    } catch (const io::Error& error) {
      return error.what();
    }
    return "accepted";
  }

 private:
  std::filesystem::path path_;
};

TEST(Weights, AnotherVocabularyThanTheEmbeddingIsRefusedWithBothShapes) {
  const Folder folder("qwen2", [](io::Json& json) { json["vocab_size"] = 321; });
  EXPECT_THAT(folder.refusal(), ::testing::AllOf(HasSubstr("model.embed_tokens.weight"),
                                                 HasSubstr("[320, 48]"), HasSubstr("[321, 48]")));
}

TEST(Weights, AMissingTensorIsNamedWithTheShapeItShouldHave) {
  const Folder folder("qwen2", [](io::Json& json) {
    json["num_hidden_layers"] = 3;
    json["layer_types"] = nullptr;
  });
  EXPECT_THAT(folder.refusal(), ::testing::AllOf(HasSubstr("model.layers.2."), HasSubstr("missing")));
}

TEST(Weights, ABiasThatTheConfigAsksForIsNotSkipped) {
  const Folder folder("llama3-rope", [](io::Json& json) { json["attention_bias"] = true; });
  EXPECT_THAT(folder.refusal(), HasSubstr("model.layers.0.self_attn.q_proj.bias"));
}

}  // namespace
}  // namespace regard::model::testing
