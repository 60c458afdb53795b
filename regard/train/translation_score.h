// How good translations are, in the two figures that papers give. Both equal sacreBLEU 2.x (Post 2018, "A
// Call for Clarity in Reporting BLEU Scores"), to the last digit it prints.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regard::train {

// How BLEU cuts a sentence into tokens.
enum class BleuTokens : uint8_t {
  mteval_13a,  // sacreBLEU's default, for languages that write spaces
  chinese,     // each Chinese character is a token, the rest as 13a: sacreBLEU's "zh"
  spaces       // the text is cut already: sacreBLEU's "none"
};

// The tokens with one space between. Throws std::invalid_argument for text that is not UTF-8.
std::string bleu_tokens(std::string_view sentence, BleuTokens how);

// 100 is the best. Precisions are those of 1 to 4 words, after smoothing; the penalty is 1 where the
// translations are no shorter than the references.
struct Bleu {
  double score = 0;
  std::array<double, 4> precisions{};
  double brevity_penalty = 1;
  int64_t length = 0;            // tokens of the translations
  int64_t reference_length = 0;  // of the references closest to them in length
};

// Over a whole test set (Papineni et al. 2002), orders without a match smoothed as mteval-v13a does ("exp").
// references[i]: one or more for translations[i]. Throws std::invalid_argument for unequal counts, an empty
// set, a sentence without references, and text that is not UTF-8.
Bleu bleu(std::span<const std::string> translations, std::span<const std::vector<std::string>> references,
          BleuTokens how = BleuTokens::mteval_13a);

// chrF2 (Popovic 2015): F-score with beta 2 of runs of 1 to 6 characters, white space left out; 100 is the
// best. Of several references the one that fits best counts. Throws as bleu() does.
double chrf(std::span<const std::string> translations, std::span<const std::vector<std::string>> references);

}  // namespace regard::train
