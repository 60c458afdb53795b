// The tiny models again, written as GGUF: its names, its order of the Q and K rows and its metadata must give
// the same logits as the published layout.
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "golden.h"
#include "regard/io/error.h"
#include "regard/io/gguf.h"
#include "regard/model/decoder.h"
#include "regard/model/weight_file.h"

namespace regard::model::testing {
namespace {

// GGUF version 3, just enough of it.
class GgufWriter {
 public:
  void text(const std::string& key, const std::string& value) {
    entry(key, 8);
    string(values_, value);
  }
  void number(const std::string& key, int64_t value) {
    entry(key, 4);
    put(values_, static_cast<uint32_t>(value));
  }
  void real(const std::string& key, double value) {
    entry(key, 6);
    put(values_, static_cast<float>(value));
  }
  void tensor(const std::string& name, const at::Tensor& values) {
    tensors_.emplace_back(name, values.to(at::kFloat).contiguous());
  }
  void write(const std::filesystem::path& path) const {
    std::string header = "GGUF", data;
    put(header, uint32_t{3});
    put(header, uint64_t{tensors_.size()});
    put(header, entries_);
    header += values_;
    for (const auto& [name, values] : tensors_) {
      string(header, name);
      put(header, static_cast<uint32_t>(values.dim()));
      for (int64_t i = values.dim() - 1; i >= 0; --i) put(header, static_cast<uint64_t>(values.size(i)));
      put(header, uint32_t{0});  // F32
      put(header, uint64_t{data.size()});
      data.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
      data.resize((data.size() + 31) / 32 * 32);
    }
    header.resize((header.size() + 31) / 32 * 32);
    std::ofstream(path, std::ios::binary) << header << data;
  }

 private:
  template <class T>
  static void put(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
  }
  static void string(std::string& out, const std::string& value) {
    put(out, uint64_t{value.size()});
    out += value;
  }
  void entry(const std::string& key, uint32_t type) {
    ++entries_;
    string(values_, key);
    put(values_, type);
  }

  uint64_t entries_ = 0;
  std::string values_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

// Rows of a head as (component i, half s) instead of (half s, component i).
at::Tensor permuted(const at::Tensor& matrix, int64_t heads) {
  return matrix.view({heads, 2, matrix.size(0) / heads / 2, matrix.size(1)})
      .transpose(1, 2)
      .reshape(matrix.sizes());
}

// "model.layers.1.mlp.up_proj.weight" -> "blk.1.ffn_up.weight"
std::string gguf_name(std::string name) {
  static const std::pair<const char*, const char*> words[] = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"input_layernorm", "attn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"transformer.wte", "token_embd"},
      {"transformer.wpe", "position_embd"},
      {"transformer.ln_f", "output_norm"},
      {"transformer.h.", "blk."},
      {"attn.c_attn", "attn_qkv"},
      {"attn.c_proj", "attn_output"},
      {"ln_1", "attn_norm"},
      {"ln_2", "ffn_norm"},
      {"mlp.c_fc", "ffn_up"},
      {"mlp.c_proj", "ffn_down"},
  };
  for (const auto& [from, to] : words) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, std::strlen(from), to);
  }
  return name;
}

void convert(const std::string& model, const std::filesystem::path& path) {
  const std::string folder = "tiny-models/" + model;
  const TransformerConfig config = read_config(io::read_json(golden_path(folder + "/config.json")), model);
  const bool llama = config.architecture == "llama" || config.architecture == "mistral";
  const std::string architecture = llama ? "llama" : config.architecture;
  GgufWriter out;
  out.text("general.architecture", architecture);
  const std::string prefix = architecture + ".";
  out.number(prefix + "block_count", config.layers);
  out.number(prefix + "embedding_length", config.width);
  out.number(prefix + "attention.head_count", config.heads);
  out.number(prefix + "attention.head_count_kv", config.kv_heads);
  out.number(prefix + "attention.key_length", config.head_size);
  out.number(prefix + "feed_forward_length", config.feed_forward);
  out.number(prefix + "context_length", config.max_positions);
  out.real(prefix + (config.rotary ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"),
           config.epsilon);
  if (config.rotary) out.real(prefix + "rope.freq_base", config.rope_base);
  if (config.windowed()) out.number(prefix + "attention.sliding_window", config.windows[0]);
  if (config.rope_scaling.kind == layer::RopeScaling::Kind::llama3) {
    const layer::Rope plain(config.head_size, config.rope_base);
    const layer::Rope scaled(config.head_size, config.rope_base, config.rope_scaling);
    std::vector<float> factors;
    for (size_t i = 0; i < plain.frequencies().size(); ++i) {
      factors.push_back(static_cast<float>(plain.frequencies()[i] / scaled.frequencies()[i]));
    }
    out.tensor("rope_freqs.weight", at::tensor(factors));
  }
  const Golden weights(folder + "/model.safetensors");
  for (const io::Tensor& tensor : weights.file().tensors()) {
    at::Tensor values = weights.at(tensor.name);
    const bool q = tensor.name.ends_with("q_proj.weight");
    if (llama && (q || tensor.name.ends_with("k_proj.weight"))) {
      values = permuted(values, q ? config.heads : config.kv_heads);
    }
    const bool conv1d = tensor.name.find(".c_") != std::string::npos && values.dim() == 2;
    out.tensor(gguf_name(tensor.name), conv1d ? values.t() : values);
  }
  out.write(path);
}

class TinyGguf : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyGguf, LogitsAndAttentionEqualThePublishedModels) {
  const std::string model = GetParam();
  const auto path = std::filesystem::path(::testing::TempDir()) / ("regard_" + model + ".gguf");
  convert(model, path);
  const auto gguf = std::make_shared<const io::Gguf>(io::Gguf::open(path));
  const auto made = make_decoder(read_config(*gguf), WeightFile(gguf), Naming::gguf);
  const Golden golden("tiny-models/" + model + "/reference.safetensors");
  for (int i = 0; golden.has(std::to_string(i) + ".in.input_ids"); ++i) {
    const std::string prefix = std::to_string(i) + ".";
    Calls calls;
    layer::Context context;
    context.recorder = &calls;
    const at::Tensor hidden = made->hidden({golden.at(prefix + "in.input_ids"), {}, {}}, context);
    EXPECT_LE(max_difference(made->logits(hidden), golden.at(prefix + "logits")), 2e-5);
    EXPECT_LE(max_difference(calls.weights(1), golden.at(prefix + "attention.1")[0]), 2e-6);
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Architectures, TinyGguf,
                         ::testing::Values("gpt2", "llama3-rope", "mistral-window16", "qwen2", "qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Gguf, OtherArchitecturesAndScalingsAreNamed) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "regard_other.gguf";
  const auto refusal = [&](const std::string& architecture,
                           const std::function<void(GgufWriter&)>& more) -> std::string {
    GgufWriter out;
    out.text("general.architecture", architecture);
    for (const char* key : {"block_count", "embedding_length", "attention.head_count", "feed_forward_length",
                            "context_length"}) {
      out.number(architecture + "." + key, 8);
    }
    out.tensor("token_embd.weight", at::zeros({4, 8}));
    more(out);
    out.write(path);
    try {
      read_config(io::Gguf::open(path));
    } catch (const io::Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("mamba", [](GgufWriter&) {}).find("mamba"), std::string::npos);
  EXPECT_NE(
      refusal("qwen2", [](GgufWriter& out) { out.text("qwen2.rope.scaling.type", "yarn"); }).find("yarn"),
      std::string::npos);
  EXPECT_NE(
      refusal("llama", [](GgufWriter& out) { out.number("llama.expert_count", 8); }).find("expert_count"),
      std::string::npos);
  EXPECT_NE(
      refusal("llama", [](GgufWriter& out) { out.real("llama.rope.freq_base", 0); }).find("rope.freq_base"),
      std::string::npos);
  // head_size 1 cannot be rotated
  EXPECT_NE(refusal("llama", [](GgufWriter&) {}).find("head size"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace regard::model::testing
