#include "regard/text/added_tokens.h"

#include <utility>

#include "regard/text/unicode.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

size_t skip_space_back(std::string_view text, size_t at, size_t lowest) {
  while (at > lowest) {
    const CodePoint before = decode_before(text, at);
    if (!is_space(before.value)) break;
    at -= before.length;
  }
  return at;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint next = decode_valid(text, at);
    if (!is_space(next.value)) break;
    at += next.length;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, uint32_t>> entries;
  for (uint32_t i = 0; i < tokens_.size(); ++i) entries.emplace_back(tokens_[i].content, i);
  trie_ = Trie(std::move(entries));
}

const AddedToken* AddedTokens::match(std::string_view text, size_t at, bool parse_special) const {
  const AddedToken* best = nullptr;
  trie_.prefixes(text.substr(at), [&](size_t, uint32_t index) {
    if (parse_special || !tokens_[index].special) best = &tokens_[index];
  });
  if (best && best->single_word) {
    const size_t end = at + best->content.size();
    if ((at > 0 && is_word_character(decode_before(text, at).value)) ||
        (end < text.size() && is_word_character(decode_valid(text, end).value)))
      return nullptr;
  }
  return best;
}

void AddedTokens::split(std::string_view text, bool parse_special, const std::function<void(Span)>& on_text,
                        const std::function<void(const AddedToken&, Span)>& on_token) const {
  size_t done = 0;  // everything before is given out
  size_t at = 0;
  while (!tokens_.empty() && at < text.size()) {
    const AddedToken* token = match(text, at, parse_special);
    if (!token) {
      ++at;
      continue;
    }
    const size_t match_end = at + token->content.size();
    const size_t begin = token->lstrip ? skip_space_back(text, at, done) : at;
    const size_t end = token->rstrip ? skip_space(text, match_end) : match_end;
    if (done < begin) on_text({done, begin});
    on_token(*token, {begin, end});
    done = at = end;
  }
  if (done < text.size()) on_text({done, text.size()});
}

}  // namespace regard::text
