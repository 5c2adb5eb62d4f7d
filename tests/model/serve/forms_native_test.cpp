// needs: none. Requests of llama.cpp's own API become completions, and answers have its members.
#include <gtest/gtest.h>

#include "model/serve/forms/infill.h"
#include "model/serve/forms/native.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const std::string& text) {
  return ordered_json::parse(text);
}

ServedModel& code_model() {
  static ServedModel model(
      "code",
      text::Tokenizer::train(
          "def f(x): return x\n",
          {.vocabulary = 260, .specials = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"}}),
      260);
  model.longest = 100;
  return model;
}

TEST(ServeNative, FieldsHaveOurNamesAndDefaults) {
  const NativeAsk ask = read_native_completion(
      json_of(
          R"({"prompt": "ab", "n_predict": 5, "cache_prompt": true, "id_slot": -1, "mirostat": 0, "seed": 4294967295, "n_probs": 3,
                  "samplers": ["top_k"], "stop": [], "logit_bias": [[97, -1.5], ["b", false]], "json_schema": {"type": "object"}})"),
      code_model());
  EXPECT_EQ(ask.body["temperature"], 0.8);
  EXPECT_EQ(ask.body["top_k"], 40);
  EXPECT_EQ(ask.body["max_tokens"], 5);
  EXPECT_EQ(ask.body["seed"], -1);
  EXPECT_EQ(ask.body["logprobs"], 3);
  EXPECT_EQ(ask.body["logit_bias"]["97"], -1.5);
  const std::string b = std::to_string(code_model().tokenizer.encode("b")[0]);
  EXPECT_EQ(ask.body["logit_bias"][b], -100);
  EXPECT_EQ(read_completion(ask.body, code_model()).sampling.bias.size(), 2U);
  const NativeAsk open =
      read_native_completion(json_of(R"({"prompt": "a", "n_predict": -1, "grammar": ""})"), code_model());
  EXPECT_EQ(read_completion(open.body, code_model()).generate.predict, 100);
  // One prompt of strings and ids, or several prompts.
  const NativeAsk mixed = read_native_completion(json_of(R"({"prompt": [97, "bc", 98]})"), code_model());
  EXPECT_EQ(read_completion(mixed.body, code_model()).prompts.size(), 1U);
  EXPECT_EQ(mixed.body["prompt"].size(), 4U);
  EXPECT_EQ(
      read_completion(read_native_completion(json_of(R"({"prompt": ["a", "bc"]})"), code_model()).body, code_model())
          .prompts.size(),
      2U);
  for (const char* bad : {R"({"prompt": "a", "n_predict": -3})", R"({"prompt": "a", "logit_bias": [[1]]})",
                          R"({"prompt": "a", "logit_bias": [[1000, 1]]})", R"({"prompt": "a", "return_tokens": 1})"})
    EXPECT_THROW((void)read_native_completion(json_of(bad), code_model()), Refusal) << bad;
  // What would change the output is taken, or reported.
  const auto read = [](const char* body) {
    return read_completion(read_native_completion(json_of(body), code_model()).body, code_model());
  };
  EXPECT_EQ(read(R"({"prompt": "a", "mirostat": 2, "mirostat_tau": 3})").sampling.mirostat, 2);
  EXPECT_EQ(read(R"({"prompt": "a", "mirostat": 2, "mirostat_tau": 3})").sampling.mirostat_entropy, 3);
  EXPECT_EQ(read(R"({"prompt": "a", "dry_multiplier": 0})").warnings.size(), 0U);
  EXPECT_EQ(read(R"({"prompt": "a", "dry_multiplier": 1, "dry_base": 2})").sampling.dry_multiplier, 1);
  EXPECT_EQ(read(R"({"prompt": "a", "dry_multiplier": 1, "dry_base": 2})").sampling.dry_base, 2);
  EXPECT_EQ(read(R"({"prompt": "a", "dynatemp_range": 1})").warnings.size(), 1U);
}

Delta piece_of(const std::string& text, text::TokenId id, bool ended = false) {
  Delta out;
  out.text = text;
  out.tokens.emplace_back(TokenChance{id, -0.5, {{id, -0.5}}});
  out.ended = ended;
  out.answer.reason = infer::EndReason::limit;
  out.answer.made = 2;
  out.answer.read = 1;
  out.answer.shared = 2;
  return out;
}

TEST(ServeNative, AnswersHaveLlamaCppsMembers) {
  GenerationRequest request;
  request.prompts = {{1, 2, 3}};
  request.top = 1;
  NativeAsk ask;
  ask.with_chances = ask.with_tokens = true;
  NativeReply whole(request, code_model(), 0, ask);
  whole.add(piece_of("a", 97));
  whole.add(piece_of("b\n", 98, true));
  const ordered_json said = whole.whole();
  EXPECT_EQ(said["content"], "ab\n");
  EXPECT_EQ(said["stop"], true);
  EXPECT_EQ(said["stop_type"], "limit");
  EXPECT_EQ(said["tokens"], json_of("[97, 98]"));
  EXPECT_EQ(said["tokens_predicted"], 2);
  EXPECT_EQ(said["tokens_evaluated"], 3);
  EXPECT_EQ(said["tokens_cached"], 2);
  EXPECT_EQ(said["has_new_line"], true);
  EXPECT_EQ(said["completion_probabilities"].size(), 2U);
  EXPECT_EQ(said["completion_probabilities"][1]["id"], 98);
  EXPECT_EQ(said["timings"]["predicted_n"], 2);
  EXPECT_TRUE(said["timings"]["prompt_ms"].is_number_float());

  NativeReply stream(request, code_model(), 0, ask);
  std::string events = stream.events(piece_of("a", 97));
  EXPECT_TRUE(events.starts_with("data: {\"index\":0,\"content\":\"a\",\"tokens\":[97],\"stop\":false"));
  events = stream.events(piece_of("b", 98, true)) + stream.last_events();
  const ordered_json last = json_of(events.substr(events.rfind("data: ") + 6));
  EXPECT_EQ(last["stop"], true);
  EXPECT_EQ(last["content"], "");
  EXPECT_EQ(events.find("[DONE]"), std::string::npos);

  request.prompts = {{1}, {2}};
  NativeReply both(request, code_model(), 0, {});
  both.add(piece_of("a", 97, true));
  Delta second = piece_of("b", 98, true);
  second.index = 1;
  both.add(second);
  ASSERT_EQ(both.whole().size(), 2U);
  EXPECT_EQ(both.whole()[1]["index"], 1);
  EXPECT_FALSE(both.whole()[1].contains("completion_probabilities"));
}

TEST(ServeNative, TheMiddleOfAFileFollowsItsMarks) {
  const text::Tokenizer& tokenizer = code_model().tokenizer;
  const auto text = [&](const std::vector<text::TokenId>& ids) { return tokenizer.decode(ids, false); };
  EXPECT_TRUE(has_infill(code_model()));
  EXPECT_EQ(text(infill_prompt(code_model(), "def ", "return x", {})),
            "<|fim_prefix|>def <|fim_suffix|>return x<|fim_middle|>");
  const NativeAsk ask = read_infill(
      json_of(
          R"({"input_prefix": "a", "input_suffix": "<|fim_middle|>", "prompt": "c", "input_extra": [{"filename": "f.py", "text": "x"}]})"),
      code_model());
  const auto ids = ask.body["prompt"].get<std::vector<text::TokenId>>();
  EXPECT_EQ(text(ids),
            "<|file_sep|>f.py\nx<|file_sep|>filename\n<|fim_prefix|>a<|fim_suffix|><|fim_middle|><|fim_middle|>c");
  // The mark in the user's text is no control token.
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer.find("<|fim_middle|>")), 1);
  for (const char* bad :
       {R"({"input_prefix": 3})", R"({"input_extra": {}})", R"({"input_extra": [{"filename": "a"}]})"})
    EXPECT_THROW((void)read_infill(json_of(bad), code_model()), Refusal) << bad;
  ServedModel plain("letters", text::Tokenizer::characters("abc"), 3);
  plain.longest = 10;
  EXPECT_FALSE(has_infill(plain));
  EXPECT_THROW((void)infill_prompt(plain, "a", "b", {}), Refusal);
}

TEST(ServeNative, TokensHaveTheirPieces) {
  const ordered_json pieces = native_tokens(code_model().tokenizer.encode("a\u00e9"), code_model())["tokens"];
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0]["piece"], "a");
  EXPECT_EQ(pieces[1]["piece"], json_of("[195]"));
  EXPECT_EQ(plain_tokenize(json_of(R"({"content": "a", "with_pieces": true})")),
            json_of(R"({"content": "a", "add_special": false})"));
  EXPECT_EQ(plain_tokenize(json_of(R"({"prompt": "a"})")), json_of(R"({"prompt": "a"})"));
  EXPECT_THROW((void)plain_tokenize(json_of(R"({"content": "a", "with_pieces": 3})")), Refusal);
}

TEST(ServeNative, TheServerIsDescribed) {
  const ordered_json props = native_props(code_model(), 4, "1.0");
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 100);
  const ordered_json slots = native_slots(code_model(), 3, 1);
  EXPECT_EQ(slots.size(), 3U);
  EXPECT_TRUE(slots[0]["is_processing"] == true && slots[1]["is_processing"] == false);
  EXPECT_THROW((void)apply_template(json_of(R"({"messages": [{"role": "user", "content": "a"}]})"), code_model()),
               Refusal);
  static ServedModel chat("chat", text::Tokenizer::characters("abc<>"), 5);
  chat.longest = 100;
  chat.chat.emplace(chat.tokenizer, templates::ChatTemplate::parse("<{{ messages[0]['content'] }}>", "test"));
  EXPECT_EQ(apply_template(json_of(R"({"messages": [{"role": "user", "content": "ab"}]})"), chat)["prompt"], "<ab>");
}

}  // namespace
}  // namespace lumen::model::serve
