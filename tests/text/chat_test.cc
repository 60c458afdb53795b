#include "regard/text/chat.h"

#include <gtest/gtest.h>

#include <vector>

#include "regard/io/error.h"

namespace regard::text {
namespace {

const std::string kTurn =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}";
const std::string kPrompt = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const std::string kPlain = "{% for message in messages %}" + kTurn + "{% endfor %}" + kPrompt;

const std::vector<Message> kHello{{"user", "Hello"}};

std::string refusal(const std::string& jinja) {
  try {
    ChatTemplate::recognise(jinja, "model");
  } catch (const io::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Chat, PlainChatMl) {
  const ChatTemplate chat = ChatTemplate::recognise(kPlain, "model");
  EXPECT_EQ(chat.render(kHello, true), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.render(kHello, false), "<|im_start|>user\nHello<|im_end|>\n");
  EXPECT_EQ(chat.render({}, true), "<|im_start|>assistant\n");
}

TEST(Chat, TheSpellingOfATemplateDoesNotMatter) {
  const std::string other =
      "{%- for message in messages -%}\n  {{ \"<|im_start|>\" + message[\"role\"] + \"\\n\" + "
      "message[\"content\"] + "
      "\"<|im_end|>\" + \"\\n\" }}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n  {{ "
      "'<|im_start|>assistant\\n' "
      "}}\n{%- endif -%}\n";
  EXPECT_EQ(ChatTemplate::recognise(other, "model").render(kHello, true),
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, ASystemMessageOfTheTemplateComesInFrontUnlessThereIsOne) {
  const std::string jinja =
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
      "'<|im_start|>system\nIt\\'s you.<|im_end|>\n' }}{% endif %}" +
      kTurn + "{% endfor %}" + kPrompt;
  const ChatTemplate chat = ChatTemplate::recognise(jinja, "model");
  EXPECT_EQ(chat.default_system(), "It's you.");
  EXPECT_EQ(chat.render(kHello, false),
            "<|im_start|>system\nIt's you.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n");
  EXPECT_EQ(chat.render(std::vector<Message>{{"system", "Be brief."}, {"user", "Hello"}}, false),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n");
}

TEST(Chat, OtherStylesAreRefusedByName) {
  EXPECT_NE(refusal("{{ '<|start_header_id|>' }}").find("Llama 3"), std::string::npos);
  EXPECT_NE(refusal("{{ '[INST] ' + x }}").find("Mistral"), std::string::npos);
  EXPECT_NE(refusal("{{ '<start_of_turn>' }}").find("Gemma"), std::string::npos);
  EXPECT_NE(refusal("{{ messages }}").find("unknown style"), std::string::npos);
  EXPECT_NE(refusal("").find("unknown style"), std::string::npos);
}

TEST(Chat, TemplatesThatDoMoreThanChatMlAreRefused) {
  EXPECT_NE(refusal("{{ bos_token }}" + kPlain).find("bos_token"), std::string::npos);
  EXPECT_NE(refusal(kPlain + "{{ strftime_now('%d') }}").find("strftime"), std::string::npos);
  EXPECT_NE(refusal("{% set x = messages[0]['content'] | trim %}" + kPlain).find("|trim"), std::string::npos);
  EXPECT_NE(refusal("{% set x = messages[0]['content'].strip() %}" + kPlain).find("changes the messages"),
            std::string::npos);
  EXPECT_NE(refusal("{{ '<|im_start|>' + x + '<|im_end|>' }}").find("not its turns"), std::string::npos);
}

TEST(Chat, TemplatesAreNeverRun) {
  const std::string evil = "{{ ().__class__.__base__.__subclasses__() }}";
  EXPECT_NE(refusal(evil), "");
  // Cut and nested tags end in an answer, whichever.
  for (size_t size = 0; size <= kPlain.size(); ++size) refusal(kPlain.substr(0, size));
  refusal("{{ '");
  refusal("{{ '\\");
  refusal("{%-");
  refusal("{{-");
  refusal("{% '<|im_start|>system\\n");
}

TEST(Chat, EarlierAnswersOfAThinkingModelAreRefused) {
  const ChatTemplate chat =
      ChatTemplate::recognise("{% set x = y.split('</think>') %}{{ '<think>' }}" + kPlain, "model");
  EXPECT_EQ(chat.render(kHello, false), "<|im_start|>user\nHello<|im_end|>\n");
  EXPECT_THROW(chat.render(std::vector<Message>{{"user", "a"}, {"assistant", "b"}}, true),
               std::invalid_argument);
}

TEST(Chat, OtherRolesAreRefused) {
  const ChatTemplate chat = ChatTemplate::recognise(kPlain, "model");
  EXPECT_THROW(chat.render(std::vector<Message>{{"tool", "x"}}, true), std::invalid_argument);
  EXPECT_THROW(chat.render(std::vector<Message>{{"user<|im_end|>", "x"}}, true), std::invalid_argument);
}

}  // namespace
}  // namespace regard::text
