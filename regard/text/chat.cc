#include "regard/text/chat.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "regard/io/error.h"

namespace regard::text {
namespace {

constexpr std::string_view kStart = "<|im_start|>", kEnd = "<|im_end|>";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// The template without what does not change its output: white space inside tags, the kind of quotes, line
// breaks written as such or as \n, and the white space that tags take along (as transformers sets Jinja up:
// trim_blocks and lstrip_blocks).
std::string canonical(std::string_view jinja) {
  std::string out;
  for (size_t at = 0; at < jinja.size();) {
    const bool is_block = jinja.substr(at, 2) == "{%";
    if (!is_block && jinja.substr(at, 2) != "{{") {
      out.push_back(jinja[at++]);
      continue;
    }
    if (is_block)
      while (!out.empty() && (out.back() == ' ' || out.back() == '\t')) out.pop_back();
    out += jinja.substr(at, 2);
    at += 2;
    if (at < jinja.size() && jinja[at] == '-') {
      const std::string tag = out.substr(out.size() - 2);
      out.resize(out.size() - 2);
      while (!out.empty() && is_blank(out.back())) out.pop_back();
      out += tag;
      ++at;
    }
    const std::string_view close = is_block ? "%}" : "}}", strip_close = is_block ? "-%}" : "-}}";
    while (at < jinja.size() && jinja.substr(at, 2) != close && jinja.substr(at, 3) != strip_close) {
      const char c = jinja[at++];
      if (is_blank(c)) continue;
      if (c != '\'' && c != '"') {
        out.push_back(c);
        continue;
      }
      out.push_back('\'');
      while (at < jinja.size() && jinja[at] != c) {
        if (jinja[at] == '\n') {
          out += "\\n";
          ++at;
          continue;
        }
        if (jinja[at] == '\\' && at + 1 < jinja.size()) out.push_back(jinja[at++]);
        out.push_back(jinja[at++]);
      }
      out.push_back('\'');
      ++at;
    }
    const bool strips = at < jinja.size() && jinja[at] == '-';
    at = std::min(at + (strips ? 3 : 2), jinja.size());
    out += close;
    if (strips) {
      while (at < jinja.size() && is_blank(jinja[at])) ++at;
    } else if (is_block && at < jinja.size() && jinja[at] == '\n') {
      ++at;
    }
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// A template's "\n" is a line break, "\'" a quote.
std::string unescaped(std::string_view literal) {
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] == '\\' && i + 1 < literal.size()) {
      out.push_back(literal[++i] == 'n' ? '\n' : literal[i]);
    } else {
      out.push_back(literal[i]);
    }
  }
  return out;
}

// What marks the styles of other model families, for the refusal.
std::string_view other_style(std::string_view jinja) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kStyles{
      {{"<|start_header_id|>", "Llama 3"},
       {"[INST]", "Llama 2 or Mistral"},
       {"<start_of_turn>", "Gemma"},
       {"<|start_of_role|>", "Granite"},
       {"<|channel|>", "Harmony"},
       {"<|assistant|>", "Zephyr or Phi-3"},
       {"<|User|>", "DeepSeek"},
       {"<\xEF\xBD\x9CUser\xEF\xBD\x9C>", "DeepSeek"},
       {"### Instruction", "Alpaca"}}};
  for (const auto& [marker, name] : kStyles)
    if (contains(jinja, marker)) return name;
  return "an unknown style";
}

}  // namespace

ChatTemplate ChatTemplate::recognise(std::string_view jinja, std::string_view source) {
  const std::string text = canonical(jinja);
  if (!contains(text, kStart) || !contains(text, kEnd))
    io::fail(source, "the chat template is in " + std::string(other_style(jinja)) + "; only ChatML is known");
  const bool has_turn =
      contains(text, R"('<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>'+'\n')") ||
      contains(text, R"('<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>'+'\n')") ||
      contains(text, R"('<|im_start|>'+message.role+'\n'+content+'<|im_end|>'+'\n')");
  if (!has_turn || !contains(text, R"({{'<|im_start|>assistant\n'}})"))
    io::fail(source, "the chat template has ChatML's marks but not its turns; it is not known");
  ChatTemplate out;
  // Qwen 3's takes the thoughts out of earlier answers.
  out.thinking_ = contains(text, "<think>");
  for (const std::string_view beyond :
       {"strftime", "raise_exception", "bos_token", "|trim", "|upper", "|lower", "|replace"})
    if (contains(text, beyond))
      io::fail(source, "the chat template goes beyond ChatML (" + io::quoted(beyond) + "); it is not known");
  if (!out.thinking_ && (contains(text, ".strip(") || contains(text, ".split(")))
    io::fail(source, "the chat template changes the messages; it is not known");

  // The system message that is put in front: the one literal that is a whole system turn.
  constexpr std::string_view kSystem = "'<|im_start|>system\\n";
  for (size_t at = text.find(kSystem); at != text.npos; at = text.find(kSystem, at + 1)) {
    const size_t begin = at + kSystem.size();
    const size_t end = text.find(kEnd, begin);
    // A quote between them ends the literal: that turn is put together from a message.
    size_t quote = begin;
    while (quote < text.size() && text[quote] != '\'') quote += text[quote] == '\\' ? 2 : 1;
    if (end == text.npos || quote < end) continue;
    const std::string system = unescaped(std::string_view(text).substr(begin, end - begin));
    if (out.default_system_ && *out.default_system_ != system)
      io::fail(source, "the chat template has more than one system message of its own; it is not known");
    out.default_system_ = system;
  }
  return out;
}

std::string ChatTemplate::render(std::span<const Message> messages, bool add_generation_prompt) const {
  std::string out;
  const auto turn = [&](std::string_view role, std::string_view content) {
    out.append(kStart).append(role).append("\n").append(content).append(kEnd).append("\n");
  };
  if (default_system_ && !messages.empty() && messages[0].role != "system") turn("system", *default_system_);
  for (const Message& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant")
      throw std::invalid_argument("role is " + io::quoted(message.role) +
                                  "; system, user and assistant are allowed");
    if (thinking_ && message.role == "assistant")
      throw std::invalid_argument(
          "this model's template rewrites earlier answers, which is not supported: start a new conversation");
    turn(message.role, message.content);
  }
  if (add_generation_prompt) out.append(kStart).append("assistant\n");
  return out;
}

}  // namespace regard::text
