// needs: none. Requests are read whole or refused: every bound, and tables of what nobody should send.
#include "model/serve/request.h"

#include <gtest/gtest.h>

#include <random>

#include "model/data/rows/shapes.h"
#include "tests/model/templates/chat_shapes.h"
#include "tests/model/tiny.h"

namespace lumen::model::serve {
namespace {

constexpr const char* kPlainChat = "{% for m in messages %}{{ m['content'] }}{% endfor %}";

ServedModel& letters() {
  static ServedModel model = [] { return ServedModel("letters", text::Tokenizer::characters("abcdefghij "), 11); }();
  model.longest = model.longest_read = 16;
  if (!model.chat) model.chat.emplace(model.tokenizer, templates::ChatTemplate::parse(kPlainChat));
  return model;
}

GenerationRequest completion(const std::string& body) {
  return read_completion(request_object(body), letters());
}
GenerationRequest chat(const std::string& body) {
  return read_chat(request_object(body), letters());
}

int status_of(const std::function<void()>& read, std::string* param = nullptr) {
  try {
    read();
  } catch (const Refusal& refusal) {
    if (param) *param = refusal.param;
    EXPECT_EQ(nlohmann::json::parse(refusal.body())["error"]["message"], std::string(refusal.what()));
    return refusal.status;
  }
  return 200;
}

TEST(ServeRequest, ACompletionIsRead) {
  const GenerationRequest r = completion(
      R"({"model": "letters", "prompt": ["abc", "de"], "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 7,
          "min_p": 0.1, "seed": 42, "stop": ["a", "b"], "n": 2, "echo": true, "logprobs": 2, "stream": true,
          "stream_options": {"include_usage": true}, "logit_bias": {"3": -100}, "presence_penalty": 0.5,
          "frequency_penalty": -0.5, "repetition_penalty": 1.1, "user": "me", "suffix": null})");
  EXPECT_EQ(r.prompts, (std::vector<std::vector<text::TokenId>>{{1, 2, 3}, {4, 5}}));
  EXPECT_EQ(r.echoed, (std::vector<std::string>{"abc", "de"}));
  EXPECT_EQ(r.generate.predict, 3);
  EXPECT_EQ(r.generate.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.top_p, 0.9);
  EXPECT_EQ(r.sampling.top_k, 7);
  EXPECT_EQ(r.sampling.min_p, 0.1);
  EXPECT_EQ(r.sampling.seed, 42U);
  EXPECT_EQ(r.sampling.presence_penalty, 0.5);
  EXPECT_EQ(r.sampling.frequency_penalty, -0.5);
  EXPECT_EQ(r.sampling.repeat_penalty, 1.1);
  EXPECT_EQ(r.sampling.bias, (std::vector<std::pair<text::TokenId, double>>{{3, -100.0}}));
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.top, 2);
  EXPECT_TRUE(r.echo && r.stream && r.include_usage && !r.is_chat);
}

TEST(ServeRequest, WhatIsNotSaidIsAsTheApiHasIt) {
  const GenerationRequest r = completion(R"({"prompt": [1, 2]})");
  EXPECT_EQ(r.prompts, (std::vector<std::vector<text::TokenId>>{{1, 2}}));
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_EQ(r.sampling.top_p, 1);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.min_p, 0);
  EXPECT_EQ(r.generate.predict, 16);
  EXPECT_EQ(r.top, -1);
  const GenerationRequest c = chat(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]}]})");
  EXPECT_EQ(c.prompts, (std::vector<std::vector<text::TokenId>>{{1, 2, 3}}));
  EXPECT_EQ(c.generate.predict, -1);
  EXPECT_EQ(completion(R"({"prompt": "a", "max_tokens": 0, "echo": true, "logprobs": 1})").generate.predict, 0);
}

TEST(ServeRequest, FormatsAreGrammars) {
  const std::string begin = R"({"messages": [{"role": "user", "content": "a"}], "response_format": )";
  EXPECT_TRUE(chat(begin + R"({"type": "json_object"}})").constraint != nullptr);
  EXPECT_TRUE(chat(begin + R"({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}})")
                  .constraint != nullptr);
  EXPECT_TRUE(chat(begin + R"({"type": "text"}})").constraint == nullptr);
  for (const char* bad : {R"({"type": "json_schema"}})", R"({"type": "yaml"}})", "3}",
                          R"({"type": "json_schema", "json_schema": {"schema": {"type": "wrong"}}}})",
                          R"({"type": "json_object", "more": 1}})"})
    EXPECT_EQ(status_of([&] { (void)chat(begin + bad); }), 400) << bad;
  EXPECT_EQ(status_of([] { (void)completion(R"({"prompt": "a", "grammar": "root := x"})"); }), 400);
}

TEST(ServeRequest, PredictionsAreTexts) {
  const std::string begin = R"({"messages": [{"role": "user", "content": "a"}], "prediction": )";
  EXPECT_EQ(*chat(begin + R"({"type": "content", "content": "abc"}})").expected, (std::vector<text::TokenId>{1, 2, 3}));
  EXPECT_EQ(*chat(begin + R"({"type": "content", "content": [{"type": "text", "text": "a"},
                                                              {"type": "text", "text": "b"}]}})")
                 .expected,
            (std::vector<text::TokenId>{1, 2}));
  EXPECT_TRUE(chat(begin + R"({"type": "content", "content": ""}})").expected->empty());
  EXPECT_TRUE(chat(begin + "null}").expected == nullptr);
  const std::string endless(100'000, 'a');
  for (const std::string& bad :
       {std::string("3}"), std::string("\"abc\"}"), std::string("[]}"), std::string("{}}"),
        std::string(R"({"type": "content"}})"), std::string(R"({"type": "text", "content": "a"}})"),
        std::string(R"({"type": "content", "content": null}})"), std::string(R"({"type": "content", "content": 3}})"),
        std::string(R"({"type": "content", "content": {"text": "a"}}})"),
        std::string(R"({"type": "content", "content": [3]}})"),
        std::string(R"({"type": "content", "content": [{"type": "image_url"}]}})"),
        std::string(R"({"type": ["content"], "content": "a"}})"),
        std::string(R"({"type": "content", "content": "a", "more": 1}})"),
        R"({"type": "content", "content": ")" + endless + "\"}}"})
    EXPECT_EQ(status_of([&] { (void)chat(begin + bad); }), 400) << bad.substr(0, 80);
  EXPECT_EQ(completion(R"({"prompt": "a", "prediction": {"type": "content", "content": "a"}})").warnings.size(), 1U);
}

TEST(ServeRequest, WhatIsOutOfBoundsIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> fields = {
      {"max_tokens", "-2"},
      {"max_tokens", "1e3"},
      {"max_tokens", "99999999999999999999"},
      {"max_tokens", "\"3\""},
      {"temperature", "-0.1"},
      {"temperature", "1e300"},
      {"temperature", "true"},
      {"top_p", "0"},
      {"top_p", "1.5"},
      {"top_k", "-2"},
      {"top_k", "1.5"},
      {"min_p", "1"},
      {"seed", "18446744073709551616"},
      {"seed", "1.0"},
      {"min_tokens", "-1"},
      {"min_tokens", "1.5"},
      {"dry_multiplier", "-1"},
      {"dry_base", "0.5"},
      {"dry_allowed_length", "-1"},
      {"dry_penalty_last_n", "-2"},
      {"dry_sequence_breakers", "\"a\""},
      {"dry_sequence_breakers", "[\"\"]"},
      {"stop_token_ids", "3"},
      {"stop_token_ids", "[11]"},
      {"guided_regex", "\"a(\""},
      {"guided_regex", "3"},
      {"guided_choice", "[]"},
      {"guided_json", "\"{\""},
      {"n", "0"},
      {"n", "65"},
      {"n", "-9223372036854775808"},
      {"logprobs", "21"},
      {"logprobs", "true"},
      {"stop", "3"},
      {"stop", "[\"\"]"},
      {"stop", "[1]"},
      {"logit_bias", "[]"},
      {"logit_bias", "{\"11\": 1}"},
      {"logit_bias", "{\"-1\": 1}"},
      {"logit_bias", "{\"1\": 101}"},
      {"logit_bias", "{\"1x\": 1}"},
      {"stream", "1"},
      {"echo", "\"yes\""},
      {"presence_penalty", "1e9"},
      {"repetition_penalty", "0"},
      {"best_of", "3"},
      {"suffix", "\"x\""},
      {"stream_options", "{}"},
  };
  for (const auto& [name, value] : fields) {
    std::string param;
    const std::string body = fmt::format("{{\"prompt\": \"a\", \"{}\": {}}}", name, value);
    EXPECT_EQ(status_of([&] { (void)completion(body); }, &param), 400) << body;
    EXPECT_EQ(param, name) << body;
  }
  for (const char* name : {"tools", "functions"})
    EXPECT_EQ(status_of([&] {
                (void)chat(fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}], "{}": [{{}}]}})", name));
              }),
              400);
}

TEST(ServeRequest, PromptsThatAreNoneAreRefused) {
  for (const char* prompt :
       {"null", "3", "{}", "[]", "\"\"", "[\"a\", 3]", "[1, \"a\"]", "[[1], [11]]", "[-1]", "[1.5]", "[[]]", "[[[1]]]",
        "[4294967297]", "\"xyz\"", "[\"a\", \"Z\"]", "\"abcdefghijabcdefg\""}) {
    const std::string body = fmt::format("{{\"prompt\": {}}}", prompt);
    EXPECT_EQ(status_of([&] { (void)completion(body); }), 400) << body;
  }
  EXPECT_EQ(status_of([] { (void)completion("{}"); }), 400);
  std::string many = "{\"prompt\": [\"a\"";
  for (int i = 0; i < 64; ++i) many += ",\"a\"";
  EXPECT_EQ(status_of([&] { (void)completion(many + "]}"); }), 400);
}

TEST(ServeRequest, MessagesThatAreNoneAreRefused) {
  for (const char* messages :
       {"null", "[]", "{}", "[3]", "[{}]", R"([{"role": "user"}])", R"([{"role": 3, "content": "a"}])",
        R"([{"role": "user", "content": 3}])", R"([{"role": "user", "content": null}])",
        R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}])",
        R"([{"role": "user", "content": "a", "tool_calls": [{}]}])", R"([{"role": "user", "content": "xyz"}])"}) {
    const std::string body = fmt::format("{{\"messages\": {}}}", messages);
    EXPECT_EQ(status_of([&] { (void)chat(body); }), 400) << body;
  }
}

// Fields that have no effect, in each form of a request.
TEST(ServeRequest, OtherFieldsAreIgnoredUnlessTheServerIsStrict) {
  ServedModel strict("letters", text::Tokenizer::characters("abcdefghij "), 11);
  strict.longest = strict.longest_read = 16;
  strict.is_strict = true;
  strict.chat.emplace(strict.tokenizer, templates::ChatTemplate::parse(kPlainChat));
  const auto chat_of = [](const std::string& more) {
    return request_object(R"({"messages": [{"role": "user", "content": "a")" + more + "}");
  };
  for (const char* more :
       {R"(}], "unheard_of": 1)", R"(}], "verbosity": "low")", R"(, "weight": 1}])",
        R"(}], "tools": [{"type": "web_search"}])", R"(}], "stream": true, "stream_options": {"x": 1})"}) {
    const GenerationRequest request = read_chat(chat_of(more), letters());
    EXPECT_EQ(request.prompts.at(0), (std::vector<text::TokenId>{1})) << more;
    EXPECT_EQ(request.warnings.size(), 1U) << more;
    EXPECT_FALSE(request.calls);
    EXPECT_EQ(status_of([&] { (void)read_chat(chat_of(more), strict); }), 400) << more;
  }
  // null is absent, and these fields change nothing here.
  for (const char* more :
       {R"(}], "unheard_of": null, "tools": null, "temperature": null, "reasoning": null, "max_tokens": null)",
        R"(}], "store": true, "service_tier": "auto", "user": "u", "metadata": {"a": "b"}, "cache_prompt": false,
            "prompt_cache_key": "k", "safety_identifier": "s", "modalities": ["text"], "truncation": "auto")"})
    for (const ServedModel* model : {&letters(), &strict})
      EXPECT_TRUE(read_chat(chat_of(more), *model).warnings.empty()) << more;
  const auto completion_body = request_object(R"({"prompt": "a", "unheard_of": 1})");
  EXPECT_EQ(read_completion(completion_body, letters()).warnings,
            (std::vector<std::string>{"the field 'unheard_of' has no effect here"}));
  EXPECT_EQ(status_of([&] { (void)read_completion(completion_body, strict); }), 400);
  const auto embedding_body = request_object(R"({"input": "a", "unheard_of": 1})");
  EXPECT_EQ(read_embedding(embedding_body, letters()).warnings.size(), 1U);
  EXPECT_EQ(status_of([&] { (void)read_embedding(embedding_body, strict); }), 400);
  std::string many = R"({"prompt": "a")";
  for (int i = 0; i < 100; ++i) many += fmt::format(R"(, "unheard_of{}": 1)", i);
  EXPECT_EQ(read_completion(request_object(many + "}"), letters()).warnings.size(), 32U);
}

// Requests and rows of data reach the template by one road.
TEST(ServeRequest, CallsAreReadAsRowsAre) {
  ServedModel model("calls", templates::shapes_tokenizer(), 270);
  model.longest = 512;
  model.chat.emplace(model.tokenizer, templates::ChatTemplate::parse(templates::chat_shapes().at("json calls")));
  std::vector<std::vector<text::TokenId>> found;
  for (const char* content : {"null", "\"\""})
    for (const char* arguments : {R"("{\"k\": \"v\"}")", R"({"k": "v"})"}) {
      const auto body = nlohmann::ordered_json::parse(fmt::format(
          R"({{"messages": [{{"role": "user", "content": "q", "name": null}}, {{"role": "assistant", "content": {}, "tool_calls":
              [{{"id": "1", "type": "function", "function": {{"name": "f", "arguments": {}}}}}]}},
              {{"role": "tool", "tool_call_id": "1", "content": "r"}}]}})",
          content, arguments));
      found.push_back(read_chat(body, model).prompts.at(0));
      const data::Example row = data::example_of(body, {});
      found.push_back(model.chat->prompt(row.messages, row.more));
    }
  EXPECT_EQ(model.tokenizer.decode(found[0], false),
            "<|user|>q<|end|><|assistant|><call>{\"name\": \"f\", \"arguments\": {\"k\": \"v\"}}</call><|end|>"
            "<|tool|>r<|end|><|assistant|>");
  for (const auto& tokens : found) EXPECT_EQ(tokens, found[0]);
}

TEST(ServeRequest, TextsThatAreNoJsonAreRefused) {
  std::string deep(100, '[');
  for (const std::string& body :
       {std::string(), std::string("x"), std::string("[]"), std::string("3"), std::string("{\"a\": 1, \"a\": 2}"),
        std::string("{\"prompt\": \"\xff\"}"), std::string("{\"prompt\": \"\xc3\"}"), "{\"prompt\": " + deep,
        std::string("{\"prompt\": 1e999}"), std::string("{} {}"), std::string("{\"a\": \0}", 8)})
    EXPECT_EQ(status_of([&] { (void)request_object(body); }), 400) << body;
  std::string closed = "{\"prompt\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(status_of([&] { (void)request_object(closed); }), 400);
}

// Bodies with bytes changed, cut, doubled and put into each other: each is read or refused, and nothing else happens.
TEST(ServeRequest, AnyBytesAreReadOrRefused) {
  const std::vector<std::string> bodies = {
      R"({"prompt": ["abc", "de"], "max_tokens": 3, "temperature": 0.5, "seed": 4, "stop": "a", "logit_bias": {"3": -1},
          "logprobs": 2, "echo": true, "n": 2, "top_k": 5, "grammar": "root ::= [a-c]+"})",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "abc"}]}], "stream": true, "stream_options":
          {"include_usage": true}, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema":
          {"type": "object", "properties": {"a": {"enum": [1, "b"]}}}}}})",
      R"({"input": [[1, 2], [3]], "encoding_format": "base64"})", R"({"tokens": [1, 2, 3], "prompt": "abc"})"};
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return random() % n; };
  int64_t taken = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string body = bodies[below(bodies.size())];
    for (size_t changes = below(4); changes > 0; --changes) {
      const size_t at = below(body.size()), count = 1 + below(8);
      const std::string& other = bodies[below(bodies.size())];
      switch (below(4)) {
        case 0:
          body[at] = char(below(256));
          break;
        case 1:
          body.erase(at, count);
          break;
        case 2:
          body.insert(at, other.substr(below(other.size()), count));
          break;
        default:
          body.insert(at, "0123456789-e.{}[]\"," + at % 19, 1);
      }
      if (body.empty()) body = "{";
    }
    try {
      const auto object = request_object(body);
      switch (below(5)) {
        case 0:
          (void)read_completion(object, letters());
          break;
        case 1:
          (void)read_chat(object, letters());
          break;
        case 2:
          (void)read_embedding(object, letters());
          break;
        case 3:
          (void)read_tokenize(object, letters());
          break;
        default:
          (void)read_detokenize(object, letters());
      }
      ++taken;
    } catch (const Refusal& refusal) {
      EXPECT_TRUE(refusal.status == 400 && nlohmann::json::accept(refusal.body()));
      ++refused;
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
}

TEST(ServeRequest, TokensAndTexts) {
  EXPECT_EQ(read_tokenize(request_object(R"({"prompt": "abc"})"), letters()), (std::vector<text::TokenId>{1, 2, 3}));
  EXPECT_EQ(read_tokenize(request_object(R"({"content": "j", "add_special": false})"), letters()),
            (std::vector<text::TokenId>{10}));
  EXPECT_EQ(read_detokenize(request_object(R"({"tokens": [1, 2]})"), letters()), (std::vector<text::TokenId>{1, 2}));
  EXPECT_EQ(status_of([] { (void)read_detokenize(request_object(R"({"tokens": [11]})"), letters()); }), 400);
  EXPECT_EQ(status_of([] { (void)read_tokenize(request_object(R"({"prompt": 3})"), letters()); }), 400);
  EXPECT_EQ(read_embedding(request_object(R"({"input": ["a", "b"], "encoding_format": "base64"})"), letters()).base64,
            true);
  EXPECT_EQ(status_of([] { (void)read_embedding(request_object(R"({"input": "a", "dimensions": 3})"), letters()); }),
            400);
}

TEST(ServeRequest, BudgetsOfTheServerHold) {
  ServedModel capped("letters", text::Tokenizer::characters("abcdefghij "), 11);
  capped.longest = 16;
  capped.most_tokens = 4;
  EXPECT_EQ(read_completion(request_object(R"({"prompt": "a"})"), capped).generate.predict, 4);
  EXPECT_EQ(status_of([&] { (void)read_completion(request_object(R"({"prompt": "a", "max_tokens": 5})"), capped); }),
            400);
  EXPECT_EQ(status_of([&] { (void)read_embedding(request_object(R"({"input": "a"})"), capped); }), 400);
}

}  // namespace
}  // namespace lumen::model::serve
