// What another form of attention would make of recorded queries and keys, beside softmax.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/lens/recording.h"

namespace regard::lens {

// A form by name, and its one number: block (positions of a block), nystrom (landmarks), linformer (rank),
// lsh (buckets), linear, additive, cosine (none).
struct FormChoice {
  std::string name;
  int64_t size = 0;  // 0: a default that fits the text
};

// "block" or "block=32". Throws std::invalid_argument that lists the forms.
FormChoice form_choice(const std::string& text);

struct FormHead {
  int64_t layer = 0;
  int64_t head = 0;
  float weight_error = 0;  // |A' - A| / |A| of the two maps (Frobenius)
  float moved = 0;         // mean over rows of half the sum of |a' - a|: the mass that lies elsewhere
  float same_top = 0;      // share of rows whose largest weight is on the same key
  float output_error = 0;  // |A' v - A v| / |A v|; NaN where v was not kept
};

struct FormReport {
  std::string name;
  std::string description;  // the form with its settings, a sentence
  std::vector<FormHead> heads;
  int64_t layer = 0;  // of the rows below
  int64_t head = 0;
  int64_t row = 0;
  std::vector<float> softmax;  // [tokens] weights of the row
  std::vector<float> form;     // the same by the form; Nystrom's may be below 0
};

// Compares all heads of the recording and keeps the rows of (layer, head, row). The form's map is what it
// makes of the identity in the place of v: all these forms are linear in v. O(tokens^2) memory, so at most
// 4,096 tokens. Parameters that a model would have learned are fixed: linformer draws its projections,
// additive weighs its hidden units alike, lsh takes q for both. Throws std::invalid_argument for longer texts
// and for forms that cannot be causal where the recording is.
FormReport compare_form(const Recording& recording, const FormChoice& choice, int64_t layer, int64_t head,
                        int64_t row);

nlohmann::json to_json(const FormReport& report);

}  // namespace regard::lens
