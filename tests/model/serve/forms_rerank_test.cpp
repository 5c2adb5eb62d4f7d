// needs: none. Documents are scored by an answer of yes or no, or by vectors; results are sorted.
#include <gtest/gtest.h>

#include <cmath>

#include "model/serve/forms/rerank.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const std::string& text) {
  return ordered_json::parse(text);
}

constexpr const char* kQwen =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and "
    "enable_thinking is false %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}";

ServedModel& judge() {
  static ServedModel model(
      "judge",
      text::Tokenizer::train("yes yes yes no no no", {.vocabulary = 275, .specials = {"<|im_start|>", "<|im_end|>"}}),
      275);
  model.longest = 10000;
  if (!model.chat) model.chat.emplace(model.tokenizer, templates::ChatTemplate::parse(kQwen, "test"));
  return model;
}

ServedModel& encoder() {
  static ServedModel model("encoder", text::Tokenizer::characters("abcdefghij "), 11);
  model.longest_read = 8;
  return model;
}

TEST(ServeRerank, AJudgeIsAskedAsQwensModelCardSays) {
  ASSERT_EQ(judge().tokenizer.encode("yes").size(), 1U);
  const RerankRequest request = read_rerank(
      json_of(R"({"model": "m", "query": "q", "documents": ["a", {"text": "b<|im_end|>"}], "top_n": 5})"), judge());
  EXPECT_EQ(request.by, ScoreBy::yes_no);
  EXPECT_EQ(request.most, 2);
  const std::string begin =
      "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
      "provided. Note "
      "that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search "
      "query, retrieve "
      "relevant passages that answer the query\n<Query>: q\n<Document>: ";
  const std::string end = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_EQ(judge().tokenizer.decode(request.prompts[0], false), begin + "a" + end);
  EXPECT_EQ(judge().tokenizer.decode(request.prompts[1], false), begin + "b<|im_end|>" + end);
  // The mark in a document is text, not a control token.
  const text::TokenId mark = *judge().tokenizer.find("<|im_end|>");
  for (const auto& prompt : request.prompts) EXPECT_EQ(std::count(prompt.begin(), prompt.end(), mark), 2);

  const GenerationRequest generate = yes_no_request(request, judge(), 1, 2);
  EXPECT_EQ(generate.prompts, std::vector<std::vector<text::TokenId>>{request.prompts[1]});
  EXPECT_EQ(generate.watched, (std::vector<text::TokenId>{request.yes, request.no}));
  EXPECT_EQ(generate.generate.predict, 1);
}

TEST(ServeRerank, TheScoreIsTheProbabilityOfYes) {
  RerankRequest request;
  request.yes = 3;
  request.no = 4;
  Delta delta;
  EXPECT_FALSE(yes_no_score(request, delta));
  delta.tokens.emplace_back(TokenChance{9, -0.1, {{3, std::log(0.03)}, {4, std::log(0.01)}}});
  EXPECT_NEAR(*yes_no_score(request, delta), 0.75, 1e-12);
  delta.tokens[0]->top = {{4, -1000.0}, {3, -1.0}};
  EXPECT_NEAR(*yes_no_score(request, delta), 1, 1e-12);
}

TEST(ServeRerank, AnEncoderComparesVectors) {
  const RerankRequest request = read_rerank(json_of(R"({"query": "a b", "documents": ["c", "d e"]})"), encoder());
  EXPECT_EQ(request.by, ScoreBy::cosine);
  EXPECT_EQ(request.inputs.size(), 3U);
  EXPECT_EQ(request.prompt_tokens, 7);
  const std::vector<double> scores = cosine_scores(request, {{1, 0}, {0, 1}, {1, 1}});
  EXPECT_NEAR(scores[0], 0, 1e-9);
  EXPECT_NEAR(scores[1], std::sqrt(0.5), 1e-6);
  const RerankRequest pairs = read_score(json_of(R"({"text_1": ["a", "b"], "text_2": ["c", "d"]})"), encoder());
  const std::vector<double> each = cosine_scores(pairs, {{1, 0}, {0, 1}, {1, 0}, {1, 0}});
  EXPECT_NEAR(each[0], 1, 1e-9);
  EXPECT_NEAR(each[1], 0, 1e-9);
}

TEST(ServeRerank, ResultsAreSortedAndCut) {
  RerankRequest request = read_rerank(
      json_of(R"({"query": "a", "documents": ["c", "d", "e"], "top_n": 2, "return_documents": true})"), encoder());
  ordered_json reply = rerank_reply(request, encoder(), {0.1, 0.9, 0.5});
  ASSERT_EQ(reply["results"].size(), 2U);
  EXPECT_EQ(reply["results"][0], json_of(R"({"index": 1, "relevance_score": 0.9, "document": {"text": "d"}})"));
  EXPECT_EQ(reply["results"][1]["index"], 2);
  EXPECT_EQ(reply["usage"]["total_tokens"], 4);
  request = read_rerank(json_of(R"({"query": "a", "texts": ["c", "d"], "return_text": false})"), encoder());
  EXPECT_EQ(rerank_reply(request, encoder(), {0.25, 0.5}),
            json_of(R"([{"index": 1, "score": 0.5}, {"index": 0, "score": 0.25}])"));
  const RerankRequest score = read_score(json_of(R"({"text_1": "a", "text_2": "c"})"), encoder());
  EXPECT_EQ(score_reply(score, encoder(), {0.5}, 3)["data"],
            json_of(R"([{"index": 0, "object": "score", "score": 0.5}])"));
}

TEST(ServeRerank, WhatCannotBeScoredIsRefused) {
  for (const char* bad : {R"({"documents": ["a"]})", R"({"query": "a"})", R"({"query": "a", "documents": []})",
                          R"({"query": "a", "documents": [3]})", R"({"query": "a", "documents": ["a"], "top_n": 0})",
                          R"({"query": "a", "documents": ["a"], "other": 1})",
                          R"({"query": "a", "documents": ["abcdefghi"]})", R"({"query": "a", "documents": [""]})"})
    EXPECT_THROW((void)read_rerank(json_of(bad), encoder()), Refusal) << bad;
  EXPECT_THROW((void)read_score(json_of(R"({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})"), encoder()), Refusal);
  ServedModel neither("letters", text::Tokenizer::characters("abc"), 3);
  neither.longest = 10;
  try {
    (void)read_rerank(json_of(R"({"query": "a", "documents": ["b"]})"), neither);
    FAIL();
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status, 400);
    EXPECT_EQ(refusal.code, "unsupported_model");
  }
}

// A head reads each query with its document; what it says is a logit.
TEST(ServeRerank, AHeadReadsPairs) {
  const std::string words =
      R"({"model": {"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0, "[": 1, "]": 2, "a": 3, "b": 4}},
          "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [],
          "post_processor": {"type": "BertProcessing", "cls": ["[", 1], "sep": ["]", 2]}})";
  ServedModel model("head", text::Tokenizer::from_json(words, "test"), 5);
  model.longest_read = 7;
  model.scores_pairs = true;
  const RerankRequest request =
      read_rerank(json_of(R"({"query": "a", "documents": ["b", "a b"], "raw_scores": true})"), model);
  EXPECT_EQ(request.by, ScoreBy::head);
  EXPECT_EQ(request.inputs, (std::vector<std::vector<text::TokenId>>{{1, 3, 2, 4, 2}, {1, 3, 2, 3, 4, 2}}));
  EXPECT_EQ(request.seconds, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(request.prompt_tokens, 11);
  EXPECT_EQ(head_scores(request, {{-2}, {0}}), (std::vector<double>{-2, 0}));
  const RerankRequest usual = read_rerank(json_of(R"({"query": "a", "documents": ["b", "a b"]})"), model);
  EXPECT_DOUBLE_EQ(head_scores(usual, {{-2}, {0}})[0], 1 / (1 + std::exp(2.0)));
  EXPECT_EQ(head_scores(usual, {{-2}, {0}})[1], 0.5);
  const RerankRequest score = read_score(json_of(R"({"text_1": ["a", "b"], "text_2": ["b", "a"]})"), model);
  EXPECT_EQ(score.inputs[1], (std::vector<text::TokenId>{1, 4, 2, 3, 2}));
  EXPECT_THROW(read_rerank(json_of(R"({"query": "a a a", "documents": ["b b"]})"), model), Refusal) << "too long";
  EXPECT_THROW(read_rerank(json_of(R"({"query": "a", "documents": ["b"], "raw_scores": true})"), judge()), Refusal);
}

}  // namespace
}  // namespace lumen::model::serve
