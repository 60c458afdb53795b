// Conversations as the text a chat model was trained on. Templates in model files are programs (Jinja); they
// are never run: a template is recognised by its text, and refused where it is not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace regard::text {

struct Message {
  std::string role;  // system, user or assistant
  std::string content;
};

// ChatML: <|im_start|>ROLE\nCONTENT<|im_end|>\n for each message.
class ChatTemplate {
 public:
  // `source` names the file in errors. Throws io::Error naming the style of a template that is not ChatML, or
  // what in it goes beyond ChatML.
  static ChatTemplate recognise(std::string_view jinja, std::string_view source);

  // The whole text to encode, with the template's own system message where the conversation has none in front
  // (and the template has one). `add_generation_prompt` opens the assistant's turn. std::invalid_argument for
  // another role. The contents are taken literally: a user's "<|im_end|>" is read as that token by encode().
  std::string render(std::span<const Message> messages, bool add_generation_prompt) const;

  const std::optional<std::string>& default_system() const { return default_system_; }

 private:
  std::optional<std::string> default_system_;
  bool thinking_ = false;  // the template rewrites earlier assistant turns (Qwen 3): those are refused
};

}  // namespace regard::text
