// needs: none. Fields of other servers and APIs have the effect of our own, for templates of several styles.
#include "model/serve/hints.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "model/serve/reply.h"
#include "tests/model/serve/conversation/styles.h"
#include "tests/model/templates/chat_shapes.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

GenerationRequest ask(const ServedModel& model, const std::string& more, const std::string& messages = "") {
  const std::string usual = R"([{"role": "user", "content": "q"}])";
  return read_chat(request_object("{\"messages\": " + (messages.empty() ? usual : messages) + more + "}"), model);
}

int status_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const Refusal& refusal) {
    return refusal.status;
  }
  return 200;
}

TEST(ServeHints, ReasoningIsSwitchedInEachProtocolsWords) {
  const auto model = style_model("qwen");
  const std::string on = "[user]q[end][assistant]\n", off = on + "<think>\n\n</think>\n\n";
  for (const char* more :
       {"", R"(, "reasoning_effort": "high")", R"(, "reasoning_effort": "auto")", R"(, "reasoning": {"effort": "low"})",
        R"(, "thinking": {"type": "enabled", "budget_tokens": 5})", R"(, "enable_thinking": true)",
        R"(, "reasoning_effort": "none", "enable_thinking": true)", R"(, "reasoning": {"effort": null})",
        R"(, "chat_template_kwargs": {"enable_thinking": true}, "reasoning_effort": "none")"})
    EXPECT_EQ(prompt_text(ask(*model, more), *model), on) << more;
  for (const char* more :
       {R"(, "reasoning_effort": "none")", R"(, "reasoning_effort": "minimal")", R"(, "reasoning": {"effort": "none"})",
        R"(, "reasoning": {"enabled": false})", R"(, "thinking": {"type": "disabled"})", R"(, "thinking": false)",
        R"(, "enable_thinking": false)", R"(, "chat_template_kwargs": {"enable_thinking": false})"})
    EXPECT_EQ(prompt_text(ask(*model, more), *model), off) << more;
  for (const char* more : {R"(, "reasoning_effort": 3)", R"(, "reasoning_effort": "much")", R"(, "reasoning": "low")",
                           R"(, "thinking": {})", R"(, "thinking": {"type": "some"})", R"(, "enable_thinking": "yes")"})
    EXPECT_EQ(status_of([&] { (void)ask(*model, more); }), 400) << more;
  const auto glm = style_model("glm");
  EXPECT_EQ(prompt_text(ask(*glm, R"(, "reasoning_effort": "none")"), *glm),
            "<|user|>q/nothink<|assistant|>\n<think></think>");
  const auto effort = style_model("effort");
  EXPECT_EQ(prompt_text(ask(*effort, R"(, "reasoning_effort": "max")"), *effort),
            "<effort high><user>q<end><assistant>");
  EXPECT_EQ(prompt_text(ask(*effort, R"(, "reasoning_effort": "none")"), *effort),
            "<effort low><user>q<end><assistant>");
}

TEST(ServeHints, WishesThatNoTemplateGrantsAreNoted) {
  EXPECT_EQ(ask(*style_model("gemma"), R"(, "reasoning_effort": "high")").warnings.size(), 1U);
  EXPECT_EQ(ask(*style_model("deepseek"), R"(, "reasoning_effort": "none")").warnings.size(), 1U);
  EXPECT_TRUE(ask(*style_model("gemma"), R"(, "reasoning_effort": "none")").warnings.empty());
  EXPECT_EQ(ask(*style_model("qwen"), R"(, "thinking": {"type": "enabled", "budget_tokens": 5})").warnings.size(), 1U);
}

bool matches(const std::string& grammar, const std::string& text) {
  infer::GrammarMatcher matcher(std::make_shared<const infer::Grammar>(infer::Grammar::parse(grammar)));
  return matcher.accept(text) && matcher.may_end();
}

// The chat's message for an output.
ordered_json answered(const ServedModel& model, const GenerationRequest& request, const std::string& output) {
  Reply reply(request, model, 5);
  std::string reasoning, text;
  for (size_t at = 0; at <= output.size(); at += 3) {
    Delta delta;
    delta.text = output.substr(at, 3);
    delta.ended = at + 3 > output.size();
    delta.answer.made = std::ssize(output);
    std::istringstream lines(reply.events(std::move(delta)));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("data: ")) continue;
      const ordered_json said = ordered_json::parse(line.substr(6))["choices"][0]["delta"];
      reasoning += said.value("reasoning_content", "");
      text += said.value("content", "");
    }
  }
  const ordered_json whole = reply.whole(), message = whole["choices"][0]["message"];
  EXPECT_EQ(message.value("reasoning_content", ""), reasoning);
  EXPECT_EQ(message["content"].is_string() ? message["content"].get<std::string>() : "", text);
  if (!reasoning.empty()) {
    EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"],
              std::ssize(model.tokenizer.encode(reasoning)));
  }
  return message;
}

TEST(ServeHints, ReasoningIsSplitFromContent) {
  const std::string whole = "<think>\nBecause.\n</think>\n\nYes.";
  const auto qwen = style_model("qwen"), deepseek = style_model("deepseek"), gemma = style_model("gemma");
  ordered_json message = answered(*qwen, ask(*qwen, ""), whole);
  EXPECT_EQ(message["reasoning_content"], "Because.");
  EXPECT_EQ(message["content"], "Yes.");
  message = answered(*deepseek, ask(*deepseek, ""), "Because.\n</think>\n\nYes.");
  EXPECT_EQ(message["reasoning_content"], "Because.");
  EXPECT_EQ(message["content"], "Yes.");
  message = answered(*qwen, ask(*qwen, R"(, "reasoning_effort": "none")"), "Yes.");
  EXPECT_FALSE(message.contains("reasoning_content"));
  EXPECT_EQ(answered(*gemma, ask(*gemma, ""), whole)["content"], whole);

  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}])";
  const GenerationRequest called = ask(*qwen, tools);
  EXPECT_EQ(called.warnings.size(), 1U);
  message = answered(*qwen, called, "<think>\nf <c\n</think>\n\n<call>{\"name\": \"f\", \"arguments\": {}}</call>");
  EXPECT_EQ(message["reasoning_content"], "f <c");
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(status_of([&] { (void)ask(*qwen, R"(, "tools": [{"type": "web_search"}], "tool_choice": "required")"); }),
            400);
}

// A chat whose template writes reasoning and answers in channels, with control tokens as marks.
TEST(ServeHints, ReasoningInChannels) {
  ServedModel model("m", templates::shapes_tokenizer("<|return|>"), 512);
  model.longest = 4096;
  model.chat.emplace(model.tokenizer,
                     templates::ChatTemplate::parse(templates::chat_shapes().at("channels"), "channels"));
  const GenerationRequest request = ask(model, "");
  EXPECT_EQ(request.generate.shown.size(), 4U);
  const std::string whole = "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>Yes.";
  const ordered_json message = answered(model, request, whole);
  EXPECT_EQ(message["reasoning_content"], "So.");
  EXPECT_EQ(message["content"], "Yes.");
  EXPECT_EQ(answered(model, request, "<|channel|>final<|message|>Yes.")["content"], "Yes.");
  // A grammar holds for the answer, in its channel.
  const std::string grammar = ask(model, R"(, "guided_choice": ["Yes."])").generate.grammar;
  EXPECT_TRUE(matches(grammar, whole));
  EXPECT_TRUE(matches(grammar, "<|channel|>final<|message|>Yes."));
  EXPECT_FALSE(matches(grammar, "Yes."));
  EXPECT_FALSE(matches(grammar, "<|channel|>analysis<|message|>Yes."));
}

TEST(ServeHints, FormerReasoningReachesTheTemplate) {
  const auto model = style_model("qwen");
  const std::string end = R"(, "add_generation_prompt": false)";
  for (const char* key : {"reasoning_content", "reasoning", "thinking"})
    EXPECT_EQ(
        prompt_text(ask(*model, end,
                        std::string(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": null, ")") +
                            key + R"(": "t"}])"),
                    *model),
        "[user]q[end][assistant]<think>\nt\n</think>\n\n[end]");
}

TEST(ServeHints, GrammarsBeginAfterReasoning) {
  const std::string json =
      R"(, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}})";
  const auto qwen = style_model("qwen"), deepseek = style_model("deepseek"), gemma = style_model("gemma");
  const std::string optional = ask(*qwen, json).generate.grammar, needed = ask(*deepseek, json).generate.grammar,
                    off = ask(*qwen, json + R"(, "enable_thinking": false)").generate.grammar;
  EXPECT_TRUE(matches(optional, "12"));
  EXPECT_TRUE(matches(optional, "<think>\n</thin </think>\n\n12"));
  EXPECT_FALSE(matches(optional, "<think>12"));
  EXPECT_FALSE(matches(optional, "<think>\n</think>a"));
  EXPECT_TRUE(matches(needed, "so\n</think>\n\n12"));
  EXPECT_FALSE(matches(needed, "12"));
  for (const std::string& plain : {off, ask(*gemma, json).generate.grammar}) {
    EXPECT_TRUE(matches(plain, "12"));
    EXPECT_FALSE(matches(plain, "<think></think>12"));
  }
  const std::string own = "root ::= \"root\" [root\\]] other # root\nother ::= \"x\" | root\n";
  const std::string after = grammar_after_reasoning(own, {"<think>", "</think>"}, false);
  EXPECT_TRUE(matches(after, "<think>a</think>root]x"));
  EXPECT_TRUE(matches(after, "rootrrootox"));
  EXPECT_FALSE(matches(after, "<think>a</think>answer]x"));
}

// Where the prompt has closed the reasoning, without a wish of the client, a grammar lets none begin again.
TEST(ServeHints, GrammarsAfterClosedReasoning) {
  const std::string json =
      R"(, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}})";
  ServedModel quiet("m", templates::shapes_tokenizer("<|return|>"), 512);
  quiet.longest = 4096;
  quiet.chat.emplace(quiet.tokenizer,
                     templates::ChatTemplate::parse(
                         "{%- for m in messages %}[{{ m.role }}]{%- if m.reasoning_content %}{{ '<think>\n' + "
                         "m.reasoning_content + '\n</think>\n\n' }}{% endif %}{{ m.content }}[end]{%- endfor %}"
                         "{%- if add_generation_prompt %}[assistant]{{ '<think>\n' if enable_thinking else "
                         "'<think>\n\n</think>\n\n' }}{%- endif %}",
                         "quiet"));
  const std::string off = ask(quiet, json).generate.grammar,
                    on = ask(quiet, json + R"(, "enable_thinking": true)").generate.grammar,
                    continued = ask(*style_model("qwen"),
                                    json + R"(, "continue_final_message": true, )"
                                           R"("add_generation_prompt": false)",
                                    R"([{"role": "user", "content": "q"}, {"role": "assistant", )"
                                    R"("content": "<think>\nt\n</think>\n\n"}])")
                                    .generate.grammar;
  for (const std::string& plain : {off, continued}) {
    EXPECT_TRUE(matches(plain, "12"));
    EXPECT_FALSE(matches(plain, "<think></think>12"));
  }
  EXPECT_TRUE(matches(on, "so</think>12"));
  EXPECT_FALSE(matches(on, "12"));
}

TEST(ServeHints, GrammarsOfOtherServers) {
  const auto model = style_model("gemma");
  const auto grammar = [&](const std::string& more) { return ask(*model, more).generate.grammar; };
  const std::string integer = grammar(R"(, "guided_json": {"type": "integer"})");
  EXPECT_TRUE(matches(integer, "12") && !matches(integer, "a"));
  for (const char* same : {R"(, "guided_json": "{\"type\": \"integer\"}")", R"(, "json_schema": {"type": "integer"})",
                           R"(, "structured_outputs": {"json": {"type": "integer"}})"})
    EXPECT_EQ(grammar(same), integer) << same;
  const std::string choice = grammar(R"(, "guided_choice": ["yes", "no \"maybe\""])");
  EXPECT_TRUE(matches(choice, "yes") && matches(choice, "no \"maybe\"") && !matches(choice, "no"));
  EXPECT_TRUE(matches(grammar(R"(, "guided_grammar": "root ::= \"a\"+")"), "aaa"));
  for (const char* same : {R"(, "guided_regex": "[a-c]{2,3}|x\\.y")", R"(, "guided_regex": "^[a-c]{2,3}$|^x\\.y$")",
                           R"(, "structured_outputs": {"regex": "[a-c]{2,3}|x\\.y"})"}) {
    const std::string regex = grammar(same);
    for (const char* good : {"ab", "cab", "x.y"}) EXPECT_TRUE(matches(regex, good)) << same << good;
    for (const char* bad : {"a", "abca", "xay", "abx.y", "-ab", ""}) EXPECT_FALSE(matches(regex, bad)) << same << bad;
  }
  for (const char* bad : {R"(, "guided_regex": "(a)\\1")", R"(, "structured_outputs": {"regex": "a("})",
                          R"(, "guided_regex": "[a-z]{100000}")", R"(, "guided_regex": ["a"])",
                          R"(, "guided_choice": "a")", R"(, "guided_json": {}, "guided_choice": ["a"])",
                          R"(, "guided_json": {}, "response_format": {"type": "text"})"})
    EXPECT_EQ(status_of([&] { (void)ask(*model, bad); }), 400) << bad;
}

TEST(ServeHints, LengthsAndSeedsAndEnds) {
  const auto model = style_model("gemma");
  const auto length = [&](const std::string& more) { return ask(*model, more).generate.predict; };
  EXPECT_EQ(length(R"(, "max_tokens": -1)"), -1);
  EXPECT_EQ(length(R"(, "max_tokens": 7, "max_completion_tokens": 5)"), 5);
  EXPECT_EQ(length(R"(, "max_tokens": -1, "max_completion_tokens": 5)"), 5);
  EXPECT_EQ(length(R"(, "max_tokens": 5, "max_completion_tokens": -1)"), 5);
  const auto seed = [&](const std::string& value) { return ask(*model, ", \"seed\": " + value).sampling.seed; };
  EXPECT_EQ(seed("7"), 7U);
  EXPECT_EQ(seed("4294967295"), 4294967295U);
  EXPECT_EQ(seed("18446744073709551615"), seed("18446744073709551615"));
  EXPECT_NE(seed("4294967296"), seed("0"));
  EXPECT_NE(seed("8589934592"), seed("4294967296"));
  EXPECT_EQ(seed("-2"), seed("18446744073709551614"));
  EXPECT_EQ(ask(*model, R"(, "stop_token_ids": [3, 5])").generate.ends, (std::vector<text::TokenId>{3, 5}));
}

TEST(ServeHints, TheLeastLengthIsWithinTheMost) {
  const auto model = style_model("gemma");
  const auto least = [&](const std::string& more) { return ask(*model, more).generate.least; };
  EXPECT_EQ(least(""), 0);
  EXPECT_EQ(least(R"(, "min_tokens": 7)"), 7);
  EXPECT_EQ(least(R"(, "min_tokens": 7, "max_tokens": 7)"), 7);
  EXPECT_EQ(status_of([&] { (void)ask(*model, R"(, "min_tokens": 8, "max_tokens": 7)"); }), 400);
  const GenerationRequest usual = read_completion(request_object(R"({"prompt": "a", "min_tokens": 50})"), *model);
  EXPECT_EQ(usual.generate.predict, 50);
}

TEST(ServeHints, RepeatedPassagesAsTheyAreAskedFor) {
  const auto model = style_model("gemma");
  const auto sampling = [&](const std::string& more) {
    return ask(*model, R"(, "dry_multiplier": 0.8)" + more).sampling;
  };
  EXPECT_EQ(ask(*model, "").sampling.dry_multiplier, 0);
  EXPECT_TRUE(ask(*model, "").sampling.dry_breakers.empty());
  const infer::SamplerOptions usual = sampling("");
  EXPECT_EQ(usual.dry_multiplier, 0.8);
  EXPECT_EQ(usual.dry_base, 1.75);
  EXPECT_EQ(usual.dry_allowed_length, 2);
  EXPECT_EQ(usual.dry_last, -1);
  EXPECT_EQ(usual.dry_breakers, infer::tokens_with(model->tokenizer, {"\n", ":", "\"", "*"}));
  const infer::SamplerOptions given = sampling(R"(, "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 9,
      "dry_sequence_breakers": ["q"])");
  EXPECT_EQ(given.dry_base, 2);
  EXPECT_EQ(given.dry_allowed_length, 3);
  EXPECT_EQ(given.dry_last, 9);
  EXPECT_EQ(given.dry_breakers, model->tokenizer.encode("q"));
  EXPECT_EQ(sampling("").dry_breakers, usual.dry_breakers);  // of another request
}

TEST(ServeHints, TheEndOfThePrompt) {
  const auto model = style_model("gemma"), qwen = style_model("qwen");
  const std::string chat = R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "Well, "}])";
  EXPECT_EQ(prompt_text(ask(*model, R"(, "add_generation_prompt": false)", chat), *model),
            "<turn>user\nq</turn><turn>model\nWell,</turn>");
  EXPECT_EQ(prompt_text(ask(*model, R"(, "continue_final_message": true)", chat), *model),
            "<turn>user\nq</turn><turn>model\nWell,");
  for (const char* more :
       {R"(, "continue_final_message": true)", R"(, "continue_final_message": true, "add_generation_prompt": true)"})
    EXPECT_EQ(status_of([&] { (void)ask(*model, more); }), 400) << more;
  // Reasoning is continued, too.
  const std::string thoughtful =
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "reasoning_content": "So"}])";
  const GenerationRequest request = ask(*qwen, R"(, "continue_final_message": true)", thoughtful);
  EXPECT_EQ(prompt_text(request, *qwen), "[user]q[end][assistant]<think>\nSo");
  EXPECT_EQ(answered(*qwen, request, " it is.</think>Yes.")["content"], "Yes.");
}

}  // namespace
}  // namespace lumen::model::serve
