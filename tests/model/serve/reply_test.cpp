// needs: none. Answers and events have the forms clients read; what is counted is what Prometheus reads.
#include "model/serve/reply.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/structured/base64.h"
#include "model/serve/metrics.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

ServedModel& named_letters() {
  static ServedModel model("letters", text::Tokenizer::characters("abcdefghij \u00e9"), 12);
  return model;
}

Delta delta_of(int64_t index, const std::string& text, std::vector<std::optional<TokenChance>> tokens = {}) {
  Delta out;
  out.index = index;
  out.text = text;
  out.tokens = std::move(tokens);
  return out;
}

Delta ended(int64_t index, infer::EndReason reason, int64_t made, int64_t shared = 0) {
  Delta out;
  out.index = index;
  out.ended = true;
  out.answer.reason = reason;
  out.answer.made = made;
  out.answer.shared = shared;
  return out;
}

std::vector<std::string> data_of(const std::string& events) {
  std::vector<std::string> out;
  std::istringstream lines(events);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("data: ")) out.push_back(line.substr(6));
  return out;
}

TEST(ServeReply, ACompletionWithLogarithms) {
  GenerationRequest request;
  request.prompts = {{1, 2}};
  request.top = 1;
  Reply reply(request, named_letters(), 5);
  Delta first = delta_of(0, "ab", {std::nullopt, TokenChance{2, -1.5, {{3, -0.5}}}});
  first.first = 1;
  reply.add(first);
  reply.add(delta_of(0, "\u00e9c", {TokenChance{11, -0.25, {{11, -0.25}}}, TokenChance{3, -2, {{4, -1}}}}));
  reply.add(ended(0, infer::EndReason::limit, 2));
  ASSERT_TRUE(reply.has_ended());
  const ordered_json whole = reply.whole();
  EXPECT_EQ(whole["object"], "text_completion");
  EXPECT_EQ(whole["choices"][0]["text"], "ab\u00e9c");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  const ordered_json& told = whole["choices"][0]["logprobs"];
  EXPECT_EQ(told["tokens"], (ordered_json{"a", "b", "\u00e9", "c"}));
  EXPECT_EQ(told["token_logprobs"], (ordered_json{nullptr, -1.5, -0.25, -2.0}));
  EXPECT_EQ(told["text_offset"], (ordered_json{0, 1, 2, 3}));
  EXPECT_TRUE(told["top_logprobs"][0].is_null());
  EXPECT_EQ(told["top_logprobs"][1], (ordered_json{{"c", -0.5}, {"b", -1.5}}));
  EXPECT_EQ(told["top_logprobs"][2], (ordered_json{{"\u00e9", -0.25}}));
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 2);
  EXPECT_EQ(whole["usage"]["total_tokens"], 4);
}

TEST(ServeReply, AChatAsEvents) {
  GenerationRequest request;
  request.is_chat = request.stream = request.include_usage = true;
  request.prompts = {{1, 2, 3}};
  request.n = 2;
  Reply reply(request, named_letters(), 5);
  std::string events = reply.events(delta_of(1, "ab")) + reply.events(delta_of(0, "c"));
  events +=
      reply.events(ended(0, infer::EndReason::end_token, 2, 1)) + reply.events(ended(1, infer::EndReason::limit, 3, 2));
  EXPECT_TRUE(reply.has_ended());
  events += reply.last_events();
  const std::vector<std::string> data = data_of(events);
  ASSERT_EQ(data.size(), 8U);
  EXPECT_EQ(data.back(), "[DONE]");
  const ordered_json begin = ordered_json::parse(data[0]), text = ordered_json::parse(data[1]);
  EXPECT_EQ(begin["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(begin["choices"][0]["index"], 1);
  EXPECT_TRUE(begin["usage"].is_null());
  EXPECT_EQ(text["choices"][0]["delta"]["content"], "ab");
  EXPECT_TRUE(text["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(ordered_json::parse(data[4])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(ordered_json::parse(data[5])["choices"][0]["finish_reason"], "length");
  const ordered_json last = ordered_json::parse(data[6]);
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], 5);
  EXPECT_EQ(last["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

// Where nothing drafts and nothing was expected, nothing of it is told.
TEST(ServeReply, WhatWasExpectedIsCounted) {
  GenerationRequest request;
  request.is_chat = true;
  request.prompts = {{1}};
  EXPECT_FALSE(Reply(request, named_letters(), 5).whole()["usage"].contains("completion_tokens_details"));
  request.expected = std::make_shared<const std::vector<text::TokenId>>(std::vector<text::TokenId>{1, 2});
  Reply reply(request, named_letters(), 5);
  Delta last = ended(0, infer::EndReason::limit, 9);
  last.answer.drafted = 7;
  last.answer.accepted = 5;
  reply.add(last);
  EXPECT_EQ(reply.whole()["usage"]["completion_tokens_details"],
            (ordered_json{{"accepted_prediction_tokens", 5}, {"rejected_prediction_tokens", 2}}));
}

TEST(ServeReply, ChatLogarithmsHaveBytes) {
  GenerationRequest request;
  request.is_chat = true;
  request.top = 1;
  request.prompts = {{1}};
  Reply reply(request, named_letters(), 5);
  reply.add(delta_of(0, "\u00e9", {TokenChance{11, -0.5, {{1, -0.1}}}}));
  reply.add(ended(0, infer::EndReason::stop_string, 1));
  const ordered_json choice = reply.whole()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "\u00e9");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["logprobs"]["content"][0]["bytes"], (ordered_json{0xc3, 0xa9}));
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"][0]["token"], "a");
}

TEST(ServeReply, VectorsInBothForms) {
  EmbeddingRequest request;
  request.inputs = {{1, 2}, {3}};
  const std::vector<std::vector<float>> vectors = {{1, -0.5F}, {0, 2}};
  EXPECT_EQ(embedding_reply(request, named_letters(), vectors)["data"][0]["embedding"], (ordered_json{1.0, -0.5}));
  request.base64 = true;
  const ordered_json packed = embedding_reply(request, named_letters(), vectors);
  const std::string bytes = decode_base64(packed["data"][1]["embedding"].get<std::string>(), "test");
  EXPECT_EQ(bytes, std::string("\0\0\0\0\0\0\0\x40", 8));
  EXPECT_EQ(packed["usage"]["total_tokens"], 3);
}

TEST(ServeReply, MetricsArePrometheusText) {
  ServeNumbers numbers;
  numbers.running = 2;
  numbers.pages = 8;
  numbers.free_pages = 6;
  numbers.whole.add(0.3);
  numbers.whole.add(100);
  RequestCounts requests;
  requests.add("/v1/models", 200);
  requests.add("/v1/models", 200);
  const std::string text = metrics_text({{"a\"b", numbers}}, requests);
  for (const char* line :
       {"lumen_requests_running{model=\"a\\\"b\"} 2\n", "lumen_cache_usage_ratio{model=\"a\\\"b\"} 0.25\n",
        "lumen_request_seconds_bucket{model=\"a\\\"b\",le=\"0.25\"} 0\n",
        "lumen_request_seconds_bucket{model=\"a\\\"b\",le=\"0.5\"} 1\n",
        "lumen_request_seconds_bucket{model=\"a\\\"b\",le=\"+Inf\"} 2\n",
        "lumen_request_seconds_count{model=\"a\\\"b\"} 2\n",
        "lumen_http_requests_total{path=\"/v1/models\",code=\"200\"} 2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

// Byte-level tokens that are parts of a character would all read as U+FFFD, and only one would stay in `top_logprobs`.
TEST(ServeReply, PartsOfCharactersAreBytesInCompletions) {
  ServedModel model("bytes", text::Tokenizer::train("aaaa", {.vocabulary = 256, .specials = {}}), 256);
  std::vector<text::TokenId> parts = model.tokenizer.encode("\u00e9");
  ASSERT_EQ(parts.size(), 2U);
  GenerationRequest request;
  request.prompts = {{1}};
  request.top = 2;
  Reply reply(request, model, 1);
  reply.add(delta_of(0, "", {TokenChance{parts[0], -1, {{parts[0], -1}, {parts[1], -2}}}}));
  reply.add(ended(0, infer::EndReason::limit, 1));
  const ordered_json told = reply.whole()["choices"][0]["logprobs"];
  EXPECT_EQ(told["tokens"][0], "bytes:\\xc3");
  EXPECT_EQ(told["top_logprobs"][0].dump(), R"({"bytes:\\xc3":-1.0,"bytes:\\xa9":-2.0})");
}

TEST(ServeReply, DeltasThatWaitAreMerged) {
  Delta first = delta_of(1, "a", {TokenChance{1, -1, {}}});
  append(&first, delta_of(1, "b", {TokenChance{2, -2, {}}}));
  append(&first, ended(1, infer::EndReason::limit, 3));
  EXPECT_EQ(first.text, "ab");
  ASSERT_EQ(first.tokens.size(), 2U);
  EXPECT_EQ(first.tokens[1]->id, 2);
  EXPECT_TRUE(first.ended);
  EXPECT_EQ(first.answer.made, 3);
}

}  // namespace
}  // namespace lumen::model::serve
