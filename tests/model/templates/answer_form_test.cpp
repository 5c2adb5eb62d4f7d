// needs: none. How answers begin and end under a template, and the vocabulary that is made for one.
#include "model/templates/answer_form.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "tests/model/templates/chat_shapes.h"

namespace lumen::model::templates {
namespace {

using nlohmann::ordered_json;

std::string named(const text::Tokenizer& tokenizer, std::optional<text::TokenId> id) {
  return id ? std::string(tokenizer.token(*id)) : "";
}

// Whether all of `some` are there.
bool holds(const auto& names, std::initializer_list<std::string> some) {
  return std::ranges::all_of(some,
                             [&](const std::string& n) { return std::ranges::find(names, n) != std::end(names); });
}

struct Form {
  std::string opening, after_text, after_calls;
  std::vector<std::string> ends;
  bool next_role_ends = false;
};
Form form_of(const std::string& shape, const std::string& eos = "<|end|>") {
  const text::Tokenizer tokenizer = shapes_tokenizer(eos);
  const AnswerForm form = ChatRenderer(tokenizer, ChatTemplate::parse(chat_shapes().at(shape))).form();
  Form out{
      form.opening, named(tokenizer, form.after_text), named(tokenizer, form.after_calls), {}, form.next_role_ends};
  for (const text::TokenId id : form.ends) out.ends.push_back(named(tokenizer, id));
  return out;
}

TEST(AnswerForm, TheEndIsWhatTheModelMustProduce) {
  const Form own = form_of("json calls");
  EXPECT_EQ(own.opening, "<|assistant|>");
  EXPECT_EQ(own.after_text, "<|end|>");
  EXPECT_EQ(own.after_calls, "<|end|>");
  EXPECT_FALSE(own.next_role_ends);
  const Form next = form_of("next role");
  EXPECT_EQ(next.after_text, "<|user|>");
  EXPECT_EQ(next.after_calls, "<|observation|>");
  EXPECT_TRUE(holds(next.ends, {"<|end|>", "<|user|>", "<|observation|>"}));
  EXPECT_TRUE(next.next_role_ends);
  // Thoughts end with a token that ends no answer.
  const Form channels = form_of("channels", "<|return|>");
  EXPECT_EQ(channels.after_text, "<|return|>");
  EXPECT_EQ(channels.after_calls, "<|call|>");
  EXPECT_TRUE(holds(channels.ends, {"<|return|>", "<|call|>"}));
  EXPECT_THAT(channels.ends, testing::Not(testing::Contains("<|end|>")));
  EXPECT_EQ(form_of("alternates").after_text, "</s>");
}

// One definition: the tokenizer with which a model answers stops at these, and files name them.
TEST(AnswerForm, TokenizersEndTextsWhereAnswersEnd) {
  const ChosenTemplate chosen{"next", chat_shapes().at("next role"), {}};
  const text::Tokenizer before = shapes_tokenizer(), after = with_chat(before, chosen);
  EXPECT_EQ(after.chat_template(), chosen.text);
  std::vector<text::TokenId> all = before.end_of_generation();
  EXPECT_THAT(all, testing::Not(testing::Contains(*before.find("<|user|>"))));
  for (const char* name : {"<|user|>", "<|observation|>"}) all.push_back(*before.find(name));
  std::vector<text::TokenId> ends = after.end_of_generation();
  std::ranges::sort(all);
  std::ranges::sort(ends);
  EXPECT_EQ(ends, all);
}

std::string printed(const std::string& shape, const ordered_json& messages) {
  const ChatRenderer renderer(shapes_tokenizer(), ChatTemplate::parse(chat_shapes().at(shape)));
  return renderer.render(renderer.mark(messages), {}).text;
}

// Whatever form arguments come in, the template gets the one that it can print.
TEST(AnswerForm, CallsReachEveryTemplate) {
  for (const char* arguments : {R"({"k": "vone"})", R"("{\"k\": \"vone\"}")"})
    for (const char* content : {"null", "\"\""}) {
      const ordered_json messages = ordered_json::parse(fmt::format(
          R"([{{"role": "user", "content": "uone"}}, {{"role": "assistant", "content": {}, "tool_calls": [{{"id": "1", "type": "function", "function": {{"name": "getit", "arguments": {}}}}}]}}])",
          content, arguments));
      EXPECT_EQ(printed("text arguments", messages),
                "<|user|>uone<|end|><|assistant|><call>getit\n{\"k\": \"vone\"}</call><|end|>");
      EXPECT_EQ(printed("json calls", messages),
                "<|user|>uone<|end|><|assistant|><call>{\"name\": \"getit\", \"arguments\": {\"k\": "
                "\"vone\"}}</call><|end|>");
      EXPECT_EQ(printed("next role", messages), "<|user|>uone<|assistant|><tool_call>getit k=vone</tool_call>");
    }
}

// Calls that are printed with tools alone, and calls that need their result.
TEST(AnswerForm, CallsOfTemplatesThatNeedToolsOrResults) {
  const auto shown = [](const std::string& text, bool with_tools) {
    const ChatRenderer renderer(shapes_tokenizer(), ChatTemplate::parse(text));
    const ordered_json messages = ordered_json::parse(
        R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type":
            "function", "function": {"name": "f", "arguments": {"k": 1}}}]}, {"role": "tool", "content": "r",
            "tool_call_id": "1"}])");
    ordered_json more = ordered_json::object();
    if (with_tools) more["tools"] = ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    return renderer.render(renderer.mark(messages, more), {}).text;
  };
  const std::string call = "{% for c in m.tool_calls or [] %}({{ c.function.arguments + '' }}){% endfor %}";
  EXPECT_EQ(shown("{% for m in messages %}{{ m.content }}{% if tools %}" + call + "{% endif %}{% endfor %}", true),
            "u({\"k\": 1})r");
  EXPECT_EQ(shown("{% if messages[-1].tool_calls %}{{ raise_exception('a call without a result') }}{% endif %}"
                  "{% for m in messages %}{{ m.content }}" +
                      call + "{% endfor %}",
                  false),
            "u({\"k\": 1})r");
}

// The text of a user that looks like a control token is seen by the template, and does not become the token.
TEST(AnswerForm, TemplatesSeeTextThatLooksLikeAToken) {
  const ChatRenderer renderer(
      shapes_tokenizer(),
      ChatTemplate::parse("{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('<|message|>')[-1].strip() }}"
                          "{% if m.content.startswith('<|start|>') %}!{% endif %}<|end|>{% endfor %}"));
  const ChatText text = renderer.render(
      renderer.mark(ordered_json::parse(R"([{"role": "user", "content": "<|start|>a<|message|>\nb<|end|>"}])")), {});
  EXPECT_EQ(text.text, "<|user|>b<|end|>!<|end|>");
  ASSERT_EQ(text.plain.size(), 1u);
  EXPECT_EQ(text.text.substr(text.plain[0].begin, text.plain[0].end - text.plain[0].begin), "<|end|>");
  EXPECT_EQ(text.plain[0].begin, 9u);
}

TEST(ChatVocabulary, ControlTokensAndTheEnd) {
  const auto made = [](const std::string& text) { return chat_vocabulary({"t", text, {}}); };
  const ChatVocabulary own = made(chat_shapes().at("no thoughts"));
  EXPECT_EQ(own.end, "<|end|>");
  EXPECT_TRUE(holds(own.controls, {"<|assistant|>", "<|user|>", "<|end|>"}));
  EXPECT_THAT(own.controls, testing::Not(testing::Contains("<think>")));  // has an end of its own: a model writes it
  const ChatVocabulary next = made(chat_shapes().at("next role"));
  EXPECT_EQ(next.end, "<|endoftext|>");  // no role's mark is the end of all texts
  EXPECT_TRUE(holds(next.controls, {"<|user|>", "<|observation|>", "<|endoftext|>"}));
  EXPECT_EQ(made(chat_shapes().at("alternates")).end, "</s>");
  for (const NamedTemplate& t : named_templates()) {
    const ChatVocabulary v = chat_vocabulary({t.name, t.text, t.stops});
    EXPECT_EQ(v.end, t.name == "plain" ? "<|endoftext|>" : "<|im_end|>") << t.name;
  }
}

}  // namespace
}  // namespace lumen::model::templates
