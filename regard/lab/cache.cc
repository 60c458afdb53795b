#include "regard/attention/cache.h"

#include <ATen/ATen.h>

#include <cmath>

#include "regard/autograd/attention.h"
#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/published.h"
#include "regard/lab/tensors.h"
#include "regard/layer/kv_cache.h"
#include "regard/model/model.h"
#include "regard/model/registry.h"

// What a decoder must keep of the tokens it has read, in bytes of real caches, and that it needs nothing
// else.
namespace regard::lab {
namespace {

constexpr int64_t kHeads = 8;
constexpr int64_t kHeadSize = 64;
// The proportions of DeepSeek-V2 (arXiv 2405.04434, section 2.1.4): a latent of 4 heads and a rotated half.
constexpr int64_t kLatent = 4 * kHeadSize;
constexpr int64_t kRotated = kHeadSize / 2;

layer::KvCache make_cache(int64_t kv_heads, int64_t head_size, int64_t capacity, kernel::CacheType type) {
  layer::KvCache::Shape shape;
  shape.layers = 1;
  shape.kv_heads = kv_heads;
  shape.key_size = shape.value_size = head_size;
  shape.capacity = capacity;
  shape.type = type;
  return layer::KvCache(shape);
}

// Bytes in use after so many tokens.
int64_t bytes(int64_t kv_heads, int64_t head_size, int64_t tokens,
              kernel::CacheType type = kernel::CacheType::f32) {
  layer::KvCache cache = make_cache(kv_heads, head_size, tokens, type);
  const at::Tensor rows = at::zeros({1, kv_heads, tokens, head_size});
  cache.append(0, rows, rows);
  return cache.bytes();
}

int64_t latent_bytes(int64_t tokens) {
  attention::KvCache::Shape shape;
  shape.kv_heads = 1;
  shape.key_size = kLatent + kRotated;
  shape.value_size = kLatent;
  shape.values_in_keys = true;
  shape.pages = (tokens + shape.page_size - 1) / shape.page_size;
  return static_cast<int64_t>(attention::KvCache(shape).bytes());
}

// A token's share of what a model keeps, in every type: of the models that are here, by their files, and of
// published ones. Encoders keep nothing.
Table models(std::vector<std::string>& absent, bool& in_proportion, std::string& grouped) {
  Table table{"cache-models",
              "bytes that a token adds, all layers (KV heads / query heads), and GB at 8,192 tokens in bf16",
              {text("model"), text("layers, heads, size"), count("f32"), count("bf16"), count("i8"),
               number("GB", 3), number("% of MHA", 1)},
              {}};
  constexpr int64_t kTokens = 64;
  const auto add = [&](const std::string& name, int64_t layers, int64_t heads, int64_t kv_heads,
                       int64_t head_size, bool writes) {
    const auto token = [&](int64_t of, kernel::CacheType type) {
      return writes ? layers * bytes(of, head_size, kTokens, type) / kTokens : 0;
    };
    const int64_t f32 = token(kv_heads, kernel::CacheType::f32);
    const int64_t bf16 = token(kv_heads, kernel::CacheType::bf16);
    const int64_t all = token(heads, kernel::CacheType::f32);
    const double share = writes ? 100.0 * static_cast<double>(f32) / static_cast<double>(all) : 0;
    in_proportion = in_proportion && f32 * heads == all * kv_heads;
    if (writes && kv_heads < heads)
      grouped += say("%s%s %.0f %% (%lld of %lld heads), %lld bytes a token in bf16",
                     grouped.empty() ? "" : "; ", name.c_str(), share, static_cast<long long>(kv_heads),
                     static_cast<long long>(heads), static_cast<long long>(bf16));
    table.add(
        {name,
         say("%lld, %lld / %lld, %lld", static_cast<long long>(layers), static_cast<long long>(kv_heads),
             static_cast<long long>(heads), static_cast<long long>(head_size)),
         f32, bf16, token(kv_heads, kernel::CacheType::i8), 8192e-9 * static_cast<double>(bf16), share});
  };
  for (const model::KnownModel& known : model::known_models()) {
    if (!known.installed()) {
      absent.push_back(known.name);
      continue;
    }
    const model::Loaded loaded = model::load(known.name);
    const model::Config& config = loaded.model->config();
    add(known.title, config.layers, config.heads, config.kv_heads, config.head_size, config.causal);
  }
  for (const PublishedModel& p : kPublished)
    add(p.name, p.layers, p.heads, p.kv_heads, p.head_size, p.writes);
  return table;
}

}  // namespace

Result measure_cache(const Options& options) {
  const int64_t longest = options.size(8192, 2048);
  Table table{"cache",
              say("bytes a layer, float32: %lld query heads of %lld; MLA: a latent of %lld and %lld rotated",
                  static_cast<long long>(kHeads), static_cast<long long>(kHeadSize),
                  static_cast<long long>(kLatent), static_cast<long long>(kRotated)),
              {count("tokens"), count("q"), count("k and v: MHA"), count("GQA, 2 groups"), count("MQA"),
               count("MLA")},
              {}};
  Curve curves[] = {{"MHA", {}, {}}, {"GQA", {}, {}}, {"MQA", {}, {}}, {"MLA", {}, {}}};
  // Decoding keeps one row of queries whatever came before.
  const at::Tensor query = at::zeros({1, kHeads, 1, kHeadSize});
  const auto query_bytes = static_cast<int64_t>(query.nbytes());
  for (int64_t tokens = 256; tokens <= longest; tokens *= 2) {
    const int64_t values[] = {bytes(kHeads, kHeadSize, tokens), bytes(2, kHeadSize, tokens),
                              bytes(1, kHeadSize, tokens), latent_bytes(tokens)};
    table.add({tokens, query_bytes, values[0], values[1], values[2], values[3]});
    for (size_t i = 0; i < std::size(curves); ++i) {
      curves[i].x.push_back(static_cast<double>(tokens));
      curves[i].y.push_back(static_cast<double>(values[i]));
    }
  }
  const size_t last = table.rows.size() - 1;
  bool linear = true, in_proportion = true;
  for (size_t row = 0; row <= last; ++row) {
    const double grown = table.number(row, "tokens") / table.number(0, "tokens");
    for (const char* column : {"k and v: MHA", "GQA, 2 groups", "MQA", "MLA"})
      linear = linear && table.number(row, column) == grown * table.number(0, column);
    in_proportion = in_proportion &&
                    table.number(row, "GQA, 2 groups") * kHeads == 2 * table.number(row, "k and v: MHA") &&
                    table.number(row, "MQA") * kHeads == table.number(row, "k and v: MHA");
  }
  const bool query_grows = table.number(last, "q") > table.number(0, "q");

  Table types{"cache-types",
              say("MHA at %lld tokens by what is kept of each number", static_cast<long long>(longest)),
              {text("type"), count("bytes")},
              {}};
  types.add({std::string("f32"), bytes(kHeads, kHeadSize, longest)});
  types.add({std::string("bf16"), bytes(kHeads, kHeadSize, longest, kernel::CacheType::bf16)});
  types.add({std::string("i8"), bytes(kHeads, kHeadSize, longest, kernel::CacheType::i8)});

  // Decode from keys and values alone equals the whole computation.
  const int64_t n = 64;
  Draws draws(0, 1);
  const at::Tensor q = normal(draws, {1, kHeads, n, kHeadSize}, at::kFloat);
  const at::Tensor k = normal(draws, {1, kHeads, n, kHeadSize}, at::kFloat);
  const at::Tensor v = normal(draws, {1, kHeads, n, kHeadSize}, at::kFloat);
  attention::Spec causal;
  causal.mask = attention::Mask::causal(attention::Align::bottom_right);
  const at::Tensor whole = autograd::attention(causal, q, k, v);
  layer::KvCache cache = make_cache(kHeads, kHeadSize, n, kernel::CacheType::f32);
  double most = 0;
  for (int64_t i = 0; i < n; ++i) {
    cache.append(0, k.narrow(2, i, 1), v.narrow(2, i, 1));
    most = std::max(most, difference(cache.attend(0, {}, q.narrow(2, i, 1)), whole.narrow(2, i, 1)));
  }

  options.tell("caches of real models");
  std::vector<std::string> absent;
  std::string grouped;
  bool real_in_proportion = true;
  Table real = models(absent, real_in_proportion, grouped);

  Result result;
  result.findings = {
      {"The storage of Q, K and V grows with the context.", std::string(kSeries) + ", 1.3",
       say("K and V do, in proportion (%s); of Q one row is enough, %lld bytes at any length, and decoding "
           "from K and V "
           "alone differs from the whole computation by %.0e",
           linear ? "exactly" : "not exactly", static_cast<long long>(query_bytes), most),
       decided(query_grows || most > 1e-4)},
      {"Fewer key heads cost less memory in exact proportion.", std::string(kSeries) + ", 4.1",
       say("at %lld tokens: MHA %.0f bytes, GQA with 2 groups %.0f, MQA %.0f, MLA %.0f",
           static_cast<long long>(longest), table.number(last, "k and v: MHA"),
           table.number(last, "GQA, 2 groups"), table.number(last, "MQA"), table.number(last, "MLA")),
       decided(in_proportion && linear)},
      {"Models with groups of heads keep that much less.", std::string(kSeries) + ", 4.1",
       "of what a key head for each query head would keep: " + grouped,
       decided(real_in_proportion && !grouped.empty())}};
  for (const std::string& name : absent)
    result.notes.push_back("'regard models get " + name + "' lets its file be counted too.");
  result.plots = {{"bytes of a layer's cache",
                   "tokens",
                   "bytes",
                   true,
                   true,
                   {},
                   {std::begin(curves), std::end(curves)}}};
  result.tables = {std::move(table), std::move(types), std::move(real)};
  return result;
}

}  // namespace regard::lab
