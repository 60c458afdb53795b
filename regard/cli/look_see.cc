#include "regard/cli/look_see.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "regard/cli/interrupt.h"
#include "regard/cli/look_print.h"
#include "regard/cli/progress.h"
#include "regard/cli/unreadable.h"
#include "regard/lens/make_report.h"
#include "regard/lens/qkv_file.h"
#include "regard/lens/record.h"

namespace regard::cli {
namespace {

text::Encoding encode(const model::Loaded& loaded, const Look& options, const std::string& text) {
  const int64_t limit = loaded.model->config().max_positions;
  text::EncodeOptions encode;
  if (options.truncate) encode.max_length = static_cast<size_t>(std::max<int64_t>(limit, 0));
  text::Encoding encoding = options.pieces.empty() ? loaded.tokenizer->encode(text, encode)
                                                   : loaded.tokenizer->encode_pieces(options.pieces, encode);
  const auto tokens = static_cast<int64_t>(encoding.size());
  if (limit > 0 && tokens > limit) {
    throw std::invalid_argument("the text has " + count_text(tokens) + " tokens; " + loaded.name +
                                " reads at most " + count_text(limit) + " (--truncate cuts it there)");
  }
  const auto own = std::count(encoding.special.begin(), encoding.special.end(), 0);
  if (own == 0 && encoding.unknown == 0) {
    throw std::invalid_argument("the text is empty: there is no word to look at");
  }
  return encoding;
}

void make(Seen& seen, const Look& options) {
  Progress progress("measuring", "heads");
  lens::ReportOptions report = report_options(options);
  report.progress = [&](int64_t done, int64_t all) {
    stop_if_interrupted();
    progress.update(done, all);
  };
  seen.report = lens::make_report(seen.recording, report);
  seen.report.command = command_of(options);
}

}  // namespace

Seen look_at(const model::Loaded& loaded, const Look& options, const std::string& text) {
  const text::Encoding encoding = encode(loaded, options, text);
  Unreadable unreadable(loaded);
  unreadable.count(encoding);
  unreadable.warn();
  lens::RecordOptions record;
  record.layers = options.layers;
  record.precision = precision_of(options);
  record.keep_values = options.trace || !options.npz.empty() || !options.as.empty();
  record.keep_inputs = options.trace;
  Seen seen;
  {
    Progress progress("reading", "layers");
    record.progress = [&](int64_t done, int64_t all) {
      stop_if_interrupted();
      progress.update(done, all);
    };
    seen.recording = lens::record(loaded, encoding, text, record);
  }
  make(seen, options);
  if (encoding.truncated > 0) {
    seen.report.tokens_before_cut = static_cast<int64_t>(encoding.size() + encoding.truncated);
  }
  return seen;
}

Seen look_at_file(const Look& options) {
  std::optional<std::filesystem::path> tokens;
  if (!options.token_file.empty()) tokens = options.token_file;
  Seen seen;
  seen.recording = lens::read_qkv(options.qkv, tokens, precision_of(options));
  make(seen, options);
  return seen;
}

}  // namespace regard::cli
