#include "regard/train/zipf_markov.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "regard/train/shuffle.h"

namespace regard::train {
namespace {

constexpr uint64_t kSuccessors = ~uint64_t{0};  // the stream that the language itself is drawn from

double uniform(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11) * 0x1p-53;
}

// Draws 0, 1, ... with weights 1, 1/2, 1/3, ...
class Zipf {
 public:
  explicit Zipf(int64_t count) {
    double sum = 0;
    for (int64_t i = 1; i <= count; ++i) sums_.push_back(sum += 1 / static_cast<double>(i));
  }
  int32_t draw(std::mt19937_64& generator) const {
    const double at = uniform(generator) * sums_.back();
    const auto found = std::upper_bound(sums_.begin(), sums_.end() - 1, at);
    return static_cast<int32_t>(found - sums_.begin());
  }
  double probability(int64_t rank) const { return 1 / (static_cast<double>(rank + 1) * sums_.back()); }

 private:
  std::vector<double> sums_;
};

class Language {
 public:
  explicit Language(const ZipfMarkov& of) : of_(of), items_(check(of)), ranks_(of.successors) {
    std::mt19937_64 generator = generator_of(of.seed, kSuccessors);
    successors_.resize(static_cast<size_t>(of.classes * of.classes * of.successors));
    for (int32_t& one : successors_) one = items_.draw(generator);
  }

  int32_t draw(int32_t before, int32_t last, std::mt19937_64& generator) const {
    if (uniform(generator) < of_.noise) return items_.draw(generator);
    return after(before, last)[ranks_.draw(generator)];
  }

  double probability(int32_t before, int32_t last, int32_t token) const {
    double out = of_.noise * items_.probability(token);
    const int32_t* likely = after(before, last);
    for (int64_t rank = 0; rank < of_.successors; ++rank) {
      if (likely[rank] == token) out += (1 - of_.noise) * ranks_.probability(rank);
    }
    return out;
  }

 private:
  static int64_t check(const ZipfMarkov& of) {
    if (of.items < 1 || of.items > INT32_MAX || of.classes < 1 || of.classes > 4096 || of.successors < 1 ||
        of.successors > 4096 || !(of.noise >= 0 && of.noise <= 1)) {
      throw std::invalid_argument("a Zipf language has " + std::to_string(of.items) + " items, " +
                                  std::to_string(of.classes) + " classes, " + std::to_string(of.successors) +
                                  " successors and noise " + std::to_string(of.noise) +
                                  "; the first three must be positive (classes and successors at most 4096), "
                                  "noise between 0 and 1");
    }
    return of.items;
  }
  const int32_t* after(int32_t before, int32_t last) const {
    return successors_.data() + (before % of_.classes * of_.classes + last % of_.classes) * of_.successors;
  }

  ZipfMarkov of_;
  Zipf items_, ranks_;
  std::vector<int32_t> successors_;
};

}  // namespace

std::vector<int32_t> zipf_markov(const ZipfMarkov& language, int64_t length, uint64_t stream) {
  const Language made(language);
  std::mt19937_64 generator = generator_of(language.seed, stream);
  std::vector<int32_t> out;
  int32_t before = 0;
  int32_t last = 0;
  for (int64_t i = 0; i < length; ++i) {
    const int32_t token = made.draw(before, last, generator);
    out.push_back(token);
    before = std::exchange(last, token);
  }
  return out;
}

double zipf_markov_loss(const ZipfMarkov& language, const std::vector<int32_t>& text) {
  const Language made(language);
  double sum = 0;
  int32_t before = 0;
  int32_t last = 0;
  for (const int32_t token : text) {
    sum -= std::log(made.probability(before, last, token));
    before = std::exchange(last, token);
  }
  return sum / static_cast<double>(text.size());
}

}  // namespace regard::train
