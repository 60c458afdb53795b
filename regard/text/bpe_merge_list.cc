#include "regard/text/bpe_merge_list.h"

#include <string>

#include "regard/io/error.h"

namespace regard::text {

void add_merge(std::string_view left, std::string_view right, size_t number, const Vocabulary& vocabulary,
               BpeMerges& merges) {
  const auto fail = [&](std::string_view what) {
    io::fail(vocabulary.source(), "merge " + std::to_string(number) + " (" + io::quoted(left) + ", " +
                                      io::quoted(right) + "): " + std::string(what));
  };
  if (left.empty() || right.empty()) fail("a part is empty");
  const auto id = [&](std::string_view piece) {
    const auto found = vocabulary.find(piece);
    if (!found) fail(io::quoted(piece) + " is not in the vocabulary");
    return *found;
  };
  const TokenId left_id = id(left), right_id = id(right);
  if (!merges.add(left_id, right_id, id(std::string(left) + std::string(right)))) fail("is given twice");
}

void add_written_merge(std::string_view written, size_t number, const Vocabulary& vocabulary,
                       BpeMerges& merges) {
  const size_t space = written.find(' ');
  if (space == written.npos || written.find(' ', space + 1) != written.npos)
    io::fail(vocabulary.source(), "merge " + std::to_string(number) + " is " + io::quoted(written) +
                                      "; it must be two pieces with one space between");
  add_merge(written.substr(0, space), written.substr(space + 1), number, vocabulary, merges);
}

}  // namespace regard::text
