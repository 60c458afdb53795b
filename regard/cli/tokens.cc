#include <algorithm>
#include <charconv>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/output.h"
#include "regard/cli/text_input.h"
#include "regard/cli/verbs.h"
#include "regard/model/tokenizer.h"
#include "regard/text/display.h"

// tokens: a text as a model receives it.
namespace regard::cli {
namespace {

struct Tokens {
  TextInput input;
  std::string model = "minilm";
  bool no_special = false;
  bool decode = false;
  bool json = false;
  bool jsonl = false;
};

nlohmann::json to_json(const text::Encoding& encoding) {
  auto offsets = nlohmann::json::array();
  for (const text::Span& span : encoding.offsets) offsets.push_back({span.begin, span.end});
  nlohmann::json object{{"ids", encoding.ids}, {"pieces", encoding.pieces}, {"offsets", offsets}};
  if (encoding.unknown > 0) object["unknown"] = encoding.unknown;
  if (encoding.dropped_bytes > 0) object["dropped_bytes"] = encoding.dropped_bytes;
  return object;
}

void print_table(const text::Tokenizer& tokenizer, const text::Encoding& encoding, const std::string& text) {
  const std::vector<std::string> shown = tokenizer.display_pieces(encoding, text);
  size_t width = 5;
  for (const std::string& piece : shown) width = std::max(width, text::display_width(piece));
  width = std::min<size_t>(width, 40);
  std::cout << "    #      id  " << text::fit_to_width("piece", width) << "  bytes\n";
  for (size_t i = 0; i < encoding.size(); ++i) {
    std::cout << std::setw(5) << i << std::setw(8) << encoding.ids[i] << "  "
              << text::fit_to_width(shown[i], width) << "  ";
    if (encoding.offsets[i].empty()) {
      std::cout << "-\n";
    } else {
      std::cout << encoding.offsets[i].begin << '-' << encoding.offsets[i].end << '\n';
    }
  }
  std::cout << encoding.size() << (encoding.size() == 1 ? " token" : " tokens");
  if (encoding.unknown > 0) std::cout << ", " << encoding.unknown << " unknown to the model";
  if (encoding.dropped_bytes > 0) {
    std::cout << "; " << encoding.dropped_bytes << " bytes have no token in this vocabulary and are lost";
  }
  std::cout << '\n';
}

std::vector<text::TokenId> parse_ids(const std::string& text) {
  std::vector<text::TokenId> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    at = std::find_if(at, end, [](char c) {
      return c != ' ' && c != ',' && c != '\n' && c != '\t' && c != '[' && c != ']';
    });
    if (at == end) return ids;
    text::TokenId id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() ||
        (next != end && std::string_view(" ,\n\t]").find(*next) == std::string_view::npos)) {
      throw std::invalid_argument("--decode wants token ids with spaces or commas between, not '" +
                                  std::string(at, std::min<size_t>(20, static_cast<size_t>(end - at))) + "'");
    }
    ids.push_back(id);
    at = next;
  }
}

void run(const Tokens& options) {
  const auto tokenizer = model::load_tokenizer(options.model);
  text::EncodeOptions encode;
  encode.add_special = !options.no_special;
  if (options.jsonl) {
    options.input.lines([&](const std::string& line, size_t number) {
      std::cout << to_json(tokenizer->encode(json_line_string(line, number), encode)).dump() << '\n';
      flush_output();
    });
    return;
  }
  const std::string text = options.input.text();
  if (options.decode) {
    const std::string decoded = tokenizer->decode(parse_ids(text), options.no_special);
    std::cout << (options.json ? nlohmann::json{{"text", decoded}}.dump() : decoded) << '\n';
    return;
  }
  const text::Encoding encoding = tokenizer->encode(text, encode);
  if (options.json) {
    std::cout << to_json(encoding).dump() << '\n';
  } else {
    print_table(*tokenizer, encoding, text);
  }
}

}  // namespace

void add_tokens(CLI::App& app) {
  auto options = std::make_shared<Tokens>();
  CLI::App* verb = app.add_subcommand("tokens", "The tokens of a text as a model receives them, and back");
  options->input.add_to(*verb, "Text to cut into tokens");
  verb->add_option("--model", options->model,
                   "Model: a name of 'regard models', a folder, a GGUF file or ORG/NAME")
      ->capture_default_str();
  verb->add_flag("--no-special", options->no_special,
                 "Leave out the special tokens that the model puts around a text");
  verb->add_flag("--decode", options->decode, "The text is token ids; print the text that they stand for");
  verb->add_flag("--json", options->json, "One JSON object: ids, pieces, byte offsets");
  verb->add_flag("--jsonl", options->jsonl, "One JSON string a line in, one JSON object a line out");
  verb->footer("Example: regard tokens --model smollm2 'The capital of France is'");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
