// Everything that `regard look` prints and that the page draws, as plain data: no views, no tensors, no
// model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace regard::lens {

// One token as the model received it.
struct Token {
  int64_t id = -1;    // -1: unknown (q, k, v that came from a file)
  std::string piece;  // as the vocabulary spells it
  std::string text;   // fit for people: no marker characters, never half a UTF-8 character
  int64_t begin = 0;  // bytes [begin, end) of Report::text; begin == end for special tokens
  int64_t end = 0;
  bool special = false;      // put there by the tokenizer: [CLS], [SEP], <s>, ...
  bool punctuation = false;  // no letter and no digit in it
  bool unknown = false;      // the model has no piece for this part of the text
};

// What a row or column of a picture stands for: one token, or the neighbouring tokens of one word.
struct Unit {
  std::string text;
  int64_t first = 0;  // tokens [first, first + count)
  int64_t count = 1;
  bool special = false;
  bool punctuation = false;
};

// What a head does on this text (head_scores.h defines the scores and the rule).
enum class Label : uint8_t { previous, next, self, first, special, same_token, induction, broad, mixed };
inline constexpr int kLabels = 9;
std::string_view name(Label label);         // "previous", "same token", ...
std::string_view description(Label label);  // "looks at the token before", one clause for a legend

// Mean share of a row's weight that fits a pattern, 0 to 1; NaN where this text cannot show it.
struct PatternScores {
  float previous = 0;
  float next = 0;  // NaN in a causal model: nothing after a token is visible
  float self = 0;
  float first = 0;
  float special = 0;     // NaN without special tokens
  float same_token = 0;  // NaN with fewer than four repeated tokens
  float induction = 0;   // NaN with fewer than four tokens that occurred before
  float broad = 0;       // how far the row is an even spread over all visible keys
};
float value(const PatternScores& scores, Label label);  // NaN for mixed

struct HeadReport {
  int64_t layer = 0;
  int64_t head = 0;
  Label label = Label::mixed;
  float label_score = 0;  // of that label; for mixed the best score, which was too small
  PatternScores scores;
  float entropy = 0;        // mean over rows, nats
  float entropy_share = 0;  // mean over rows of entropy / ln(visible keys): 0 one key, 1 all alike
  float sink = 0;           // mean mass on special tokens and, in a causal model, on the first token
  // [blocks, blocks] row-major, of Report::block_tokens tokens squared each: mean and largest weight. Pairs
  // that the mask hides count as 0.
  std::vector<float> block_mean;
  std::vector<float> block_max;
};

// `it = 0.21 animal + 0.14 it + ...`: terms by falling weight; terms + sinks + rest = 1.
struct MixtureTerm {
  int64_t unit = 0;
  float weight = 0;
};
struct Mixture {
  std::vector<MixtureTerm> terms;  // words
  std::vector<MixtureTerm> sinks;  // special tokens; in a causal model the first token too
  float sink_weight = 0;           // of all sinks
  float rest = 0;                  // of the words not named
  int64_t rest_units = 0;          // how many those are
};

// A head seen from the chosen word.
struct FocusHead {
  int64_t layer = 0;
  int64_t head = 0;
  Label label = Label::mixed;
  float label_score = 0;
  int64_t top_unit = -1;  // the other word (no special token, no punctuation) with the largest weight
  float top_weight = 0;
  std::vector<float> weights;  // [units], the chosen word's row; sums to 1
  Mixture mixture;             // the same row as the article's line
};

// The chosen word.
struct Focus {
  int64_t unit = -1;
  bool chosen_by_user = false;
  int64_t occurrence = 1;           // which of ...
  int64_t occurrences = 0;          // ... so many places of the same word this is, where the user chose it
  int64_t on_unit = -1;             // heads are ranked by their weight on this unit; -1: on any other word
  std::string reason;               // why this word, a sentence
  std::vector<float> mean_weights;  // [units], mean over all heads of the kept layers
  Mixture mean_mixture;
  std::vector<FocusHead> heads;  // by falling top_weight, the best few
  // [units], for each the two heads that give it the largest weights, largest first.
  struct Strongest {
    int64_t layer = 0;
    int64_t head = 0;
    Label label = Label::mixed;
    float weight = 0;
  };
  std::vector<std::vector<Strongest>> strongest;
  // Attention rollout: the mean map of each layer, half of it replaced by the residual path, multiplied over
  // all layers. Empty where the text is too long for it or not all layers were kept.
  std::vector<float> rollout;  // [units]
  // Who looks at the chosen word: mean over all heads of the weight that each unit gives to it, and the
  // strongest (head, unit) pairs.
  std::vector<float> received_mean;  // [units]
  struct Received {
    int64_t layer = 0;
    int64_t head = 0;
    Label label = Label::mixed;
    int64_t unit = 0;
    float weight = 0;
  };
  std::vector<Received> received;
};

// Keys of one KV head that carried heads share.
struct CarriedKeys {
  int64_t layer = 0;
  int64_t kv_head = 0;
  std::vector<float> k;  // [tokens, head_size]
};

// What is needed to compute any weight of one head exactly: exp(scale * q_i . k_j - lse_i).
struct CarriedHead {
  int64_t layer = 0;
  int64_t head = 0;
  int64_t keys = 0;  // index into Report::carried_keys
  int64_t head_size = 0;
  float scale = 1;
  std::vector<float> q;    // [tokens, head_size]
  std::vector<float> lse;  // [tokens]
};

struct Report {
  std::string model;         // as the user named it, or the file that q, k, v came from
  std::string architecture;  // "bert", "llama", ...; empty for a file
  std::string text;
  int64_t layers = 0;  // of the model
  int64_t heads = 0;   // query heads of each layer
  int64_t kv_heads = 0;
  std::vector<int64_t> kept_layers;  // what was recorded and is reported below
  bool causal = false;               // a token sees only itself and what precedes it
  int64_t window = 0;                // keys to the left that are visible; 0: all
  std::vector<uint8_t> dense_mask;   // [tokens, tokens], 1 = may attend; only when a file brought one
  bool approximate = false;          // q and k were kept in 16 bits
  bool weak = false;                 // fewer than 32 tokens: labels rest on few rows
  bool words = false;                // units are words (sub-words merged), else tokens
  bool special_hidden = false;       // special tokens left out and rows rescaled in focus and units
  int64_t tokens_before_cut = 0;     // > 0: the text had so many tokens and was cut
  std::vector<std::string> warnings;
  std::string command;  // the command that made this, up to --layer, --head and outputs

  std::vector<Token> tokens;
  std::vector<Unit> word_units;  // the text in words, special tokens included; empty when unknown
  std::vector<Unit> units;       // what focus counts in
  std::vector<HeadReport> grid;  // kept_layers x heads, in order
  int64_t blocks = 0;            // block maps have blocks x blocks cells
  int64_t block_tokens = 1;      // of so many tokens a side
  Focus focus;
  std::vector<CarriedKeys> carried_keys;
  std::vector<CarriedHead> carried;
};

// The JSON of `regard look --json`. Weights of the focus rows in full; block maps and carried arrays are left
// out (they are in the page and the NPZ file).
nlohmann::json to_json(const Report& report);

}  // namespace regard::lens
