#include "regard/model/decoder.h"

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "regard/layer/latent.h"

namespace regard::model {
namespace {

// How a file calls the parts; "" where it has none of its own. Of a layer: behind `layer`, its number and a
// dot.
struct Names {
  std::string tokens, positions, final_norm, head, layer;
  std::string attention_norm, q, k, v, qkv, out, q_norm, k_norm;
  std::string feed_forward_norm, gate, up, down;
};

const Names kLlamaNames = {.tokens = "embed_tokens",
                           .positions = "",
                           .final_norm = "norm",
                           .head = "lm_head",
                           .layer = "layers.",
                           .attention_norm = "input_layernorm",
                           .q = "self_attn.q_proj",
                           .k = "self_attn.k_proj",
                           .v = "self_attn.v_proj",
                           .qkv = "",
                           .out = "self_attn.o_proj",
                           .q_norm = "self_attn.q_norm",
                           .k_norm = "self_attn.k_norm",
                           .feed_forward_norm = "post_attention_layernorm",
                           .gate = "mlp.gate_proj",
                           .up = "mlp.up_proj",
                           .down = "mlp.down_proj"};

const Names kGpt2Names = {.tokens = "wte",
                          .positions = "wpe",
                          .final_norm = "ln_f",
                          .head = "lm_head",
                          .layer = "h.",
                          .attention_norm = "ln_1",
                          .q = "",
                          .k = "",
                          .v = "",
                          .qkv = "attn.c_attn",
                          .out = "attn.c_proj",
                          .q_norm = "",
                          .k_norm = "",
                          .feed_forward_norm = "ln_2",
                          .gate = "",
                          .up = "mlp.c_fc",
                          .down = "mlp.c_proj"};

const Names kGgufNames = {.tokens = "token_embd",
                          .positions = "position_embd",
                          .final_norm = "output_norm",
                          .head = "output",
                          .layer = "blk.",
                          .attention_norm = "attn_norm",
                          .q = "attn_q",
                          .k = "attn_k",
                          .v = "attn_v",
                          .qkv = "attn_qkv",
                          .out = "attn_output",
                          .q_norm = "attn_q_norm",
                          .k_norm = "attn_k_norm",
                          .feed_forward_norm = "ffn_norm",
                          .gate = "ffn_gate",
                          .up = "ffn_up",
                          .down = "ffn_down"};

class Builder {
 public:
  Builder(const TransformerConfig& config, const WeightSource& file, Naming naming)
      : config_(config),
        file_(file),
        gpt2_(config.architecture == "gpt2"),
        transposed_(gpt2_ && naming == Naming::hugging_face),
        permuted_(config.architecture == "llama" && naming == Naming::gguf),
        names_(naming == Naming::gguf ? kGgufNames
               : gpt2_                ? kGpt2Names
                                      : kLlamaNames) {
    const std::string prefix = gpt2_ ? "transformer." : "model.";
    if (file.has(prefix + names_.tokens + ".weight")) prefix_ = prefix;
  }

  TransformerParts build() const {
    TransformerParts parts;
    parts.config = config_;
    const std::string tokens = prefix_ + names_.tokens + ".weight";
    const int64_t vocabulary = config_.vocabulary;
    // Blocks serve both uses of a tied table without loss; floats would be rounded.
    const bool shared = config_.tied_head && (file_.precision() == Precision::f32 || file_.in_blocks(tokens));
    parts.tokens = shared ? file_.matrix(tokens, vocabulary, config_.width)
                          : file_.table(tokens, vocabulary, config_.width);
    if (gpt2_) {
      parts.positions =
          file_.table(prefix_ + names_.positions + ".weight", config_.max_positions, config_.width);
    }
    if (config_.rotary) parts.rope = rope();
    for (int64_t i = 0; i < config_.layers; ++i) parts.blocks.push_back(block(i));
    parts.final_norm = norm(prefix_ + names_.final_norm, config_.width);
    if (config_.vocabulary_softmax) {
      const bool tree = config_.vocabulary_softmax->kind == layer::VocabularyHeadOptions::Kind::hierarchical;
      parts.vocabulary_head = std::make_shared<layer::VocabularyHead>(*config_.vocabulary_softmax);
      // The tree's vectors begin as 0: every token as likely as its path is long.
      fill(
          *parts.vocabulary_head, [&](const std::string& own) { return names_.head + "." + own; }, tree);
      return parts;
    }
    parts.head = shared ? parts.tokens
                        : file_.matrix(config_.tied_head ? tokens : names_.head + ".weight", vocabulary,
                                       config_.width);
    return parts;
  }

 private:
  std::shared_ptr<const layer::Rope> rope() const {
    const layer::Rope plain(config_.latent ? config_.latent->rope : config_.head_size, config_.rope_base,
                            config_.rope_scaling);
    std::vector<double> frequencies = plain.frequencies();
    if (config_.rope_factors) {
      const at::Tensor factors =
          file_.vector("rope_freqs.weight", static_cast<int64_t>(frequencies.size())).to(at::kDouble);
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors.const_data_ptr<double>()[i];
    }
    return std::make_shared<layer::Rope>(std::move(frequencies));
  }

  // The parameters of a module that makes its own, by the names that `published` makes of the module's.
  template <class Published>
  void fill(torch::nn::Module& module, const Published& published, bool begun = false) const {
    for (auto& item : module.named_parameters()) file_.take(published(item.key()), item.value(), begun);
  }

  std::shared_ptr<layer::Norm> norm(const std::string& name, int64_t size) const {
    return std::make_shared<layer::Norm>(
        config_.norm, config_.epsilon, file_.vector(name + ".weight", size),
        config_.norm == kernel::NormForm::layer ? file_.vector(name + ".bias", size) : at::Tensor());
  }

  // Rows [begin, begin + rows) of a projection with `all_rows` outputs.
  std::shared_ptr<layer::Linear> linear(const std::string& name, int64_t all_rows, int64_t begin,
                                        int64_t rows, int64_t columns, bool bias) const {
    const std::string weight = name + ".weight";
    return std::make_shared<layer::Linear>(
        transposed_ ? file_.transposed_part(weight, all_rows, begin, rows, columns)
                    : file_.part(weight, all_rows, begin, rows, columns),
        bias ? file_.vector(name + ".bias", all_rows).narrow(0, begin, rows) : at::Tensor());
  }

  std::shared_ptr<layer::Linear> linear(const std::string& name, int64_t rows, int64_t columns,
                                        bool bias) const {
    return linear(name, rows, 0, rows, columns, bias);
  }

  // Q or K of `heads` heads.
  std::shared_ptr<layer::Linear> rotated(const std::string& name, int64_t heads) const {
    const int64_t rows = heads * config_.head_size;
    if (!permuted_) return linear(name, rows, config_.width, config_.qkv_bias);
    const std::vector<int64_t> order = io::unpermuted_rows(rows, heads);
    at::Tensor bias;
    if (config_.qkv_bias)
      bias = file_.vector(name + ".bias", rows).index_select(0, at::tensor(order, at::kLong));
    return std::make_shared<layer::Linear>(file_.matrix(name + ".weight", rows, config_.width, order), bias);
  }

  std::vector<int64_t> order_of(int64_t heads) const {
    return permuted_ ? io::unpermuted_rows(heads * config_.head_size, heads) : std::vector<int64_t>();
  }

  layer::Weight stacked_qkv(const std::string& in) const {
    const int64_t key = config_.kv_heads * config_.head_size;
    return file_.stacked(
        {{in + names_.q + ".weight", config_.heads * config_.head_size, order_of(config_.heads)},
         {in + names_.k + ".weight", key, order_of(config_.kv_heads)},
         {in + names_.v + ".weight", key, {}}},
        config_.width);
  }

  at::Tensor stacked_bias(const std::string& in) const {
    if (!config_.qkv_bias) return {};
    const auto bias = [&](const std::string& name, int64_t heads, bool turned) {
      const at::Tensor stored = file_.vector(in + name + ".bias", heads * config_.head_size);
      return turned && permuted_ ? stored.index_select(0, at::tensor(order_of(heads), at::kLong)) : stored;
    };
    return at::cat({bias(names_.q, config_.heads, true), bias(names_.k, config_.kv_heads, true),
                    bias(names_.v, config_.kv_heads, false)});
  }

  std::shared_ptr<layer::SelfAttention> latent(const std::string& in) const {
    layer::LatentOptions options = *config_.latent;
    options.dropout = config_.dropout;
    auto made = std::make_shared<layer::LatentAttention>(options);
    const bool down = config_.latent->query_rank > 0;
    const std::map<std::string, std::string> names = {
        {"query_down.weight", "q_a_proj.weight"},
        {"query_norm.weight", "q_a_layernorm.weight"},
        {"query_up.weight", down ? "q_b_proj.weight" : "q_proj.weight"},
        {"down.weight", "kv_a_proj_with_mqa.weight"},
        {"norm.weight", "kv_a_layernorm.weight"},
        {"up.weight", "kv_b_proj.weight"},
        {"out.weight", "o_proj.weight"}};
    fill(*made, [&](const std::string& own) { return in + "self_attn." + names.at(own); });
    return made;
  }

  // Mixtral's names: w1 is the gate, w2 leads down, w3 up.
  std::shared_ptr<layer::MixtureOfExperts> mixture(const std::string& in) const {
    auto made =
        std::make_shared<layer::MixtureOfExperts>(layer::MixtureOptions{.width = config_.width,
                                                                        .hidden = config_.feed_forward,
                                                                        .experts = config_.experts,
                                                                        .chosen = config_.experts_chosen});
    fill(*made, [&](const std::string& own) {
      const std::string at = in + "block_sparse_moe.";
      if (own == "router.weight") return at + "gate.weight";
      const auto dot = own.find('.');
      const std::string part = own.substr(dot + 1);  // of "expert3.gate.weight"
      const char* name = part == "gate.weight" ? "w1" : part == "down.weight" ? "w2" : "w3";
      return at + "experts." + own.substr(6, dot - 6) + "." + name + ".weight";
    });
    return made;
  }

  std::shared_ptr<layer::SelfAttention> attention(const std::string& in, int64_t index) const {
    if (config_.latent) return latent(in);
    const int64_t width = config_.width;
    const int64_t query = config_.heads * config_.head_size;
    const int64_t key = config_.kv_heads * config_.head_size;
    layer::AttentionParts parts;
    if (gpt2_) {
      const int64_t all = query + 2 * key;
      parts.q = linear(in + names_.qkv, all, 0, query, width, true);
      parts.k = linear(in + names_.qkv, all, query, key, width, true);
      parts.v = linear(in + names_.qkv, all, query + key, key, width, true);
    } else if (layer::Weight all = stacked_qkv(in)) {
      parts.qkv = std::make_shared<layer::Linear>(std::move(all), stacked_bias(in));
    } else {
      parts.q = rotated(in + names_.q, config_.heads);
      parts.k = rotated(in + names_.k, config_.kv_heads);
      parts.v = linear(in + names_.v, key, width, config_.qkv_bias);
    }
    parts.out = linear(in + names_.out, width, query, config_.out_bias);
    if (config_.qk_norm) {
      parts.q_norm = norm(in + names_.q_norm, config_.head_size);
      parts.k_norm = norm(in + names_.k_norm, config_.head_size);
    }
    const layer::AttentionOptions options{
        .heads = config_.heads,
        .kv_heads = config_.kv_heads,
        .head_size = config_.head_size,
        .causal = true,
        .window = config_.windows.empty() ? 0 : config_.windows[static_cast<size_t>(index)],
        .dropout = config_.dropout};
    return std::make_shared<layer::Attention>(options, std::move(parts));
  }

  std::shared_ptr<layer::FeedForward> feed_forward(const std::string& in) const {
    const bool bias = config_.feed_forward_bias;
    const int64_t inner = config_.feed_forward;
    auto down = linear(in + names_.down, config_.width, inner, bias);
    if (config_.gated && !bias) {
      if (layer::Weight both = file_.stacked(
              {{in + names_.gate + ".weight", inner, {}}, {in + names_.up + ".weight", inner, {}}},
              config_.width)) {
        return std::make_shared<layer::FeedForward>(
            config_.activation, layer::FeedForward::GateUp{std::make_shared<layer::Linear>(std::move(both))},
            std::move(down));
      }
    }
    auto up = linear(in + names_.up, inner, config_.width, bias);
    auto gate = config_.gated ? linear(in + names_.gate, inner, config_.width, bias) : nullptr;
    return std::make_shared<layer::FeedForward>(config_.activation, std::move(up), std::move(down),
                                                std::move(gate));
  }

  std::shared_ptr<layer::Block> block(int64_t index) const {
    const std::string in = prefix_ + names_.layer + std::to_string(index) + ".";
    if (config_.experts > 0) {
      return std::make_shared<layer::Block>(
          layer::NormPlace::pre, attention(in, index), norm(in + names_.attention_norm, config_.width),
          mixture(in), norm(in + names_.feed_forward_norm, config_.width), config_.dropout);
    }
    return std::make_shared<layer::Block>(layer::NormPlace::pre, attention(in, index),
                                          norm(in + names_.attention_norm, config_.width), feed_forward(in),
                                          norm(in + names_.feed_forward_norm, config_.width),
                                          layer::CrossPart(), config_.dropout);
  }

  const TransformerConfig& config_;
  const WeightSource& file_;
  bool gpt2_;
  bool transposed_;  // [in, out]
  bool permuted_;
  const Names& names_;
  std::string prefix_;
};

}  // namespace

std::unique_ptr<Transformer> make_decoder(const TransformerConfig& config, const WeightSource& weights,
                                          Naming naming) {
  return std::make_unique<Transformer>(Builder(config, weights, naming).build());
}

}  // namespace regard::model
