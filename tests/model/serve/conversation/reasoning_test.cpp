// needs: none. The marks of reasoning are learned from templates of every style, and outputs are split at them however
// they are cut.
#include "model/serve/conversation/reasoning.h"

#include <gtest/gtest.h>

#include "tests/model/serve/conversation/styles.h"
#include "tests/model/templates/chat_shapes.h"

namespace lumen::model::serve {
namespace {

std::string form_of(const templates::ChatRenderer& renderer) {
  const ReasoningForm form = learn_reasoning(renderer);
  return (form.marks ? form.marks->open + form.marks->close : "none") + " " + form.variable +
         (form.reads_effort ? "effort" : "");
}

TEST(ServeReasoning, MarksAreFoundByRendering) {
  EXPECT_EQ(form_of(style_renderer("qwen")), "<think></think> enable_thinking");
  EXPECT_EQ(form_of(style_renderer("glm")), "<think></think> enable_thinking");
  EXPECT_EQ(form_of(style_renderer("deepseek")), "<think></think> ");
  for (const char* style : {"gemma", "mistral", "chatml", "plain"})
    EXPECT_EQ(form_of(style_renderer(style)), "none ") << style;
  EXPECT_EQ(form_of(style_renderer("effort")), "none effort");
  for (const char* shape : {"last thoughts", "no thoughts", "closes thoughts"})
    EXPECT_EQ(
        form_of({templates::shapes_tokenizer(), templates::ChatTemplate::parse(templates::chat_shapes().at(shape))}),
        "<think></think> ")
        << shape;
  const auto in_channels = learn_reasoning({templates::shapes_tokenizer("<|return|>"),
                                            templates::ChatTemplate::parse(templates::chat_shapes().at("channels"))});
  ASSERT_TRUE(in_channels.marks);
  EXPECT_EQ(in_channels.marks->open, "<|channel|>analysis<|message|>");
  EXPECT_EQ(in_channels.marks->close, "<|end|><|start|>assistant");
  EXPECT_EQ(in_channels.marks->answer, "<|channel|>final<|message|>");
  EXPECT_EQ(in_channels.controls.size(), 4U);
  for (const char* shape : {"next role", "alternates"})
    EXPECT_EQ(
        form_of({templates::shapes_tokenizer(), templates::ChatTemplate::parse(templates::chat_shapes().at(shape))}),
        "none ")
        << shape;
}

// Other names of marks, and a switch whose default is off.
TEST(ServeReasoning, MarksMayHaveAnyName) {
  const auto renderer = [](const std::string& text) {
    return templates::ChatRenderer(text::Tokenizer::characters(all_letters()), templates::ChatTemplate::parse(text));
  };
  EXPECT_EQ(
      form_of(renderer("{%- for m in messages %}<{{ m.role }}>{% if m.thinking %}[T]{{ m.thinking }}[-T]{% endif %}"
                       "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")),
      "[T][-T] ");
  EXPECT_EQ(form_of(renderer("{%- for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}"
                             "{% if add_generation_prompt %}<assistant>{{ '<think>' if thinking else '</think>' }}"
                             "{% endif %}")),
            "<think></think> thinking");
}

// Tags that the template does not know, but the vocabulary has.
TEST(ServeReasoning, TokensOfTheVocabularyAreMarks) {
  text::BpeTraining options;
  options.specials = {"<|end|>", "[THINK]", "[/THINK]"};
  options.vocabulary = 256 + std::ssize(options.specials);
  options.end_of_text = "<|end|>";
  const text::Tokenizer tokenizer = text::Tokenizer::train("a", options);
  const ReasoningForm form = learn_reasoning({tokenizer, templates::ChatTemplate::parse(chat_styles().at("chatml"))});
  ASSERT_TRUE(form.marks);
  EXPECT_EQ(form.marks->open + form.marks->close, "[THINK][/THINK]");
  EXPECT_EQ(form.controls.size(), 2U);  // both are control tokens, which must be shown
}

struct Split {
  std::string reasoning, text;
  bool operator==(const Split&) const = default;
};

// Splits an output that comes in pieces of `size` bytes.
Split split(const std::string& output, bool is_open, size_t size, const std::string& before = "") {
  ReasoningReader reader({"<think>", "</think>"}, is_open, before);
  Split out;
  const auto add = [&](const ReasoningReader::Piece& piece) {
    out.reasoning += piece.reasoning;
    out.text += piece.text;
  };
  for (size_t at = 0; at < output.size(); at += size) add(reader.push(output.substr(at, size)));
  add(reader.finish());
  return out;
}

TEST(ServeReasoning, OutputsAreSplitHoweverTheyAreCut) {
  for (size_t size = 1; size < 40; ++size) {
    EXPECT_EQ(split("<think>\nSo a < b.\n\nYes </th\n</think>\n\nb > a", false, size),
              (Split{"So a < b.\n\nYes </th", "b > a"}));
    EXPECT_EQ(split("\nSo.\n</think>\n\nYes.", true, size), (Split{"So.", "Yes."}));
    EXPECT_EQ(split("<think>\n\n</think>\n\nYes.", false, size), (Split{"", "Yes."}));
    EXPECT_EQ(split("Yes <think>no</think>", false, size), (Split{"", "Yes <think>no</think>"}));
    EXPECT_EQ(split(" <thin", false, size), (Split{"", " <thin"}));
    EXPECT_EQ(split("So.\n</thin", true, size), (Split{"So.\n</thin", ""}));
    EXPECT_EQ(split("So.\n", true, size), (Split{"So.", ""}));
    EXPECT_EQ(split("So. <call>{}", true, size, "<call>"), (Split{"So.", "<call>{}"}));
    EXPECT_EQ(split("So.</think>\n<call>{}", true, size, "<call>"), (Split{"So.", "<call>{}"}));
  }
}

TEST(ServeReasoning, ChannelsAreSplitHoweverTheyAreCut) {
  const auto in_channels = [](const std::string& output, size_t size) {
    ReasoningReader reader({"<c>analysis<m>", "<e><s>assistant", "<c>final<m>"}, false);
    Split out;
    const auto add = [&](const ReasoningReader::Piece& piece) {
      out.reasoning += piece.reasoning;
      out.text += piece.text;
    };
    for (size_t at = 0; at < output.size(); at += size) add(reader.push(output.substr(at, size)));
    add(reader.finish());
    return out;
  };
  for (size_t size = 1; size < 60; ++size) {
    EXPECT_EQ(in_channels("<c>analysis<m>So <e>.<e><s>assistant<c>final<m>Yes, <c>.", size),
              (Split{"So <e>.", "Yes, <c>."}));
    EXPECT_EQ(in_channels("<c>analysis<m>So<e><s>assistant<c>analysis<m>it is<e><s>assistant<c>final<m>Yes", size),
              (Split{"So\n\nit is", "Yes"}));
    EXPECT_EQ(in_channels("<c>final<m>Yes", size), (Split{"", "Yes"}));
    EXPECT_EQ(in_channels("<c>analysis<m>So<e><s>assistant to=f<c>x", size), (Split{"So", " to=f<c>x"}));
    EXPECT_EQ(in_channels("Yes <c>analysis<m>", size), (Split{"", "Yes <c>analysis<m>"}));
    EXPECT_EQ(in_channels("<c>analysis<m>So", size), (Split{"So", ""}));
  }
}

TEST(ServeReasoning, WhatIsCertainIsReturnedAtOnce) {
  ReasoningReader reader({"<think>", "</think>"}, false);
  EXPECT_EQ(reader.push("<think>").reasoning, "");
  EXPECT_EQ(reader.push("\nab ").reasoning, "ab");
  EXPECT_EQ(reader.push("c <").reasoning, " c");
  EXPECT_EQ(reader.push("d").reasoning, " <d");
  EXPECT_EQ(reader.push("</think>\n").text, "");
  EXPECT_EQ(reader.push("e").text, "e");
}

}  // namespace
}  // namespace lumen::model::serve
