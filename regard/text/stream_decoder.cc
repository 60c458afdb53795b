#include "regard/text/stream_decoder.h"

#include "regard/text/tokenizer.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Part part = next_part(bytes, at);
    if (part.kind == Utf8Part::Kind::cut) {
      pending_ = bytes.substr(at);
      return;
    }
    if (part.kind == Utf8Part::Kind::character) {
      out += bytes.substr(at, part.length);
    } else {
      out += kReplacement;
    }
    at += part.length;
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (!pending_.empty()) out += kReplacement;
  pending_.clear();
}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  if (skip_special_ && tokenizer_->is_special(id)) return out;
  std::string bytes;
  tokenizer_->append_bytes(id, first_, bytes);
  first_ = false;
  assembler_.push(bytes, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  assembler_.finish(out);
  first_ = true;
  return out;
}

}  // namespace regard::text
