#include "regard/lens/survey.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "regard/lens/units.h"

namespace regard::lens {
namespace {

// Weights held at once by a worker: rows x tokens floats. 1 MiB stays in the second-level cache.
constexpr int64_t kTileFloats = 256 * 1024;
constexpr int64_t kLanes = 8;

class Surveyor {
 public:
  Surveyor(const RecordedLayer& layer, int64_t head, const TextPatterns& text, std::span<const Unit> units,
           const Blocks& blocks)
      : layer_(layer), head_(head), text_(text), units_(units), blocks_(blocks) {
    const auto n = static_cast<size_t>(layer.tokens);
    out_.layer = layer.layer;
    out_.head = head;
    out_.row_entropy.resize(n);
    out_.column_sums.resize(n);
    out_.block_mean.resize(static_cast<size_t>(blocks.count * blocks.count));
    out_.block_max.resize(out_.block_mean.size());
    unit_row_.resize(units.size());
    merged_.resize(units.size());
  }

  HeadSurvey run() {
    const int64_t n = layer_.tokens;
    const int64_t rows_at_once = std::clamp<int64_t>(kTileFloats / std::max<int64_t>(n, 1), 1, 64);
    for (int64_t first = 0; first < n; first += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, n - first);
      // Keys that no row of the tile sees are not computed.
      int64_t begin = n;
      int64_t end = 0;
      visible_.clear();
      for (int64_t r = 0; r < rows; ++r) {
        visible_.push_back(layer_.visible(head_, first + r));
        begin = std::min(begin, visible_.back().begin);
        end = std::max(end, visible_.back().end);
      }
      begin = std::min(begin, end);
      const std::vector<float> tile = layer_.weights(head_, first, rows, begin, end - begin);
      row_.assign(static_cast<size_t>(n), 0);
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(tile.begin() + r * (end - begin), end - begin, row_.begin() + begin);
        add_row(first + r, visible_[static_cast<size_t>(r)]);
      }
    }
    return finish();
  }

 private:
  void add_row(int64_t i, const RecordedLayer::Visible& visible) {
    const std::span<const float> seen(row_.data() + visible.begin,
                                      static_cast<size_t>(visible.end - visible.begin));
    const RowStatistics row = row_statistics(seen, visible.count);
    out_.row_entropy[static_cast<size_t>(i)] = row.entropy;
    if (text_.counts(i)) {
      entropy_ += row.entropy;
      ++entropy_rows_;
      if (visible.count > 1) {
        share_ += row.entropy / std::log(static_cast<double>(visible.count));
        ++share_rows_;
      }
    }
    sums_.add(text_, i, row_, row.overlap, visible.count);
    float* columns = out_.column_sums.data() + visible.begin;
    for (size_t j = 0; j < seen.size(); ++j) columns[j] += seen[j];
    add_blocks(i, visible);
    add_unit_row(i, visible);
  }

  void add_blocks(int64_t i, const RecordedLayer::Visible& visible) {
    const int64_t block_row = i / blocks_.tokens * blocks_.count;
    for (int64_t j = visible.begin; j < visible.end;) {
      const int64_t block = j / blocks_.tokens;
      const int64_t stop = std::min(visible.end, (block + 1) * blocks_.tokens);
      // Independent sums: one after the other they would wait for each other.
      std::array<float, kLanes> sums{};
      std::array<float, kLanes> maxima{};
      for (; j + kLanes <= stop; j += kLanes) {
        const float* w = row_.data() + j;
        for (size_t lane = 0; lane < kLanes; ++lane) {
          sums[lane] += w[lane];
          maxima[lane] = std::max(maxima[lane], w[lane]);
        }
      }
      float sum = 0;
      float largest = 0;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        sum += sums[lane];
        largest = std::max(largest, maxima[lane]);
      }
      for (; j < stop; ++j) {
        sum += row_[static_cast<size_t>(j)];
        largest = std::max(largest, row_[static_cast<size_t>(j)]);
      }
      const auto cell = static_cast<size_t>(block_row + block);
      out_.block_mean[cell] += sum;
      out_.block_max[cell] = std::max(out_.block_max[cell], largest);
    }
  }

  // Rows come in order, so a word's rows follow each other.
  void add_unit_row(int64_t i, const RecordedLayer::Visible& visible) {
    if (unit_ >= static_cast<int64_t>(units_.size())) return;
    const Unit& unit = units_[static_cast<size_t>(unit_)];
    const bool wanted = !unit.special && !unit.punctuation;
    if (wanted) {
      // Units beyond the last visible key hold nothing.
      while (visible_units_ < units_.size() && units_[visible_units_].first < visible.end) ++visible_units_;
      merge_keys(row_, units_.first(visible_units_), merged_);
      for (size_t u = 0; u < visible_units_; ++u) unit_row_[u] += merged_[u];
    }
    if (i + 1 < unit.first + unit.count) return;
    if (wanted) look_for_best(unit, visible);
    std::fill(unit_row_.begin(), unit_row_.end(), 0.0F);
    ++unit_;
  }

  void look_for_best(const Unit& unit, const RecordedLayer::Visible& visible) {
    const float share = 1.0F / static_cast<float>(unit.count);
    const float lift_share = share * static_cast<float>(visible.count);
    for (size_t u = 0; u < visible_units_; ++u) {
      const float lift = unit_row_[u] * lift_share;
      if (lift <= out_.best_lift) continue;
      const Unit& key = units_[u];
      if (static_cast<int64_t>(u) == unit_ || key.special || key.punctuation) continue;
      if (text_.causal() && key.first == 0) continue;  // the resting place of idle heads
      out_.best_lift = lift;
      out_.best_weight = unit_row_[u] * share;
      out_.best_row = unit_;
      out_.best_key = static_cast<int64_t>(u);
    }
  }

  HeadSurvey finish() {
    const int64_t n = layer_.tokens;
    const auto tokens_in = [&](int64_t block) {
      return std::min(blocks_.tokens, n - block * blocks_.tokens);
    };
    for (int64_t r = 0; r < blocks_.count; ++r) {
      for (int64_t c = 0; c < blocks_.count; ++c) {
        out_.block_mean[static_cast<size_t>(r * blocks_.count + c)] /=
            static_cast<float>(tokens_in(r) * tokens_in(c));
      }
    }
    out_.scores = sums_.scores(text_);
    out_.sink = sums_.sink(text_);
    out_.label = label_of(out_.scores, text_.causal());
    if (entropy_rows_ > 0) out_.entropy = static_cast<float>(entropy_ / static_cast<double>(entropy_rows_));
    if (share_rows_ > 0) out_.entropy_share = static_cast<float>(share_ / static_cast<double>(share_rows_));
    return std::move(out_);
  }

  const RecordedLayer& layer_;
  int64_t head_;
  const TextPatterns& text_;
  std::span<const Unit> units_;
  Blocks blocks_;
  HeadSurvey out_;
  PatternSums sums_;
  double entropy_ = 0;
  double share_ = 0;
  int64_t entropy_rows_ = 0;
  int64_t share_rows_ = 0;
  int64_t unit_ = 0;
  size_t visible_units_ = 0;  // grows: later rows never see less to the right
  std::vector<float> row_;
  std::vector<float> unit_row_;
  std::vector<float> merged_;
  std::vector<RecordedLayer::Visible> visible_;
};

}  // namespace

Blocks choose_blocks(int64_t tokens, int64_t at_most) {
  Blocks blocks;
  blocks.tokens = std::max<int64_t>(1, (tokens + at_most - 1) / at_most);
  blocks.count = (tokens + blocks.tokens - 1) / blocks.tokens;
  return blocks;
}

TextPatterns text_patterns(const Recording& recording) {
  std::vector<int64_t> ids;
  std::vector<uint8_t> special;
  for (const Token& token : recording.tokens) {
    ids.push_back(token.unknown ? -1 : token.id);  // two unknown words need not be the same
    special.push_back(token.special ? 1 : 0);
  }
  return {std::move(ids), std::move(special), recording.causal};
}

std::vector<HeadSurvey> survey(const Recording& recording, std::span<const Unit> units,
                               const SurveyOptions& options) {
  const TextPatterns text = text_patterns(recording);
  const Blocks blocks = choose_blocks(recording.size(), options.blocks);
  std::vector<std::pair<const RecordedLayer*, int64_t>> heads;
  for (const RecordedLayer& layer : recording.layers) {
    for (int64_t head = 0; head < layer.heads; ++head) heads.emplace_back(&layer, head);
  }
  std::vector<HeadSurvey> out(heads.size());
  std::mutex mutex;
  int64_t done = 0;
  kernel::Parallel& parallel = options.parallel != nullptr ? *options.parallel : kernel::default_parallel();
  parallel.run(static_cast<int64_t>(heads.size()), [&](int64_t task, int) {
    const auto& [layer, head] = heads[static_cast<size_t>(task)];
    out[static_cast<size_t>(task)] = Surveyor(*layer, head, text, units, blocks).run();
    const std::lock_guard lock(mutex);
    ++done;
    if (options.progress) options.progress(done, static_cast<int64_t>(heads.size()));
  });
  return out;
}

}  // namespace regard::lens
