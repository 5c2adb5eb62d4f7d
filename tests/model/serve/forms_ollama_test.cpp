// needs: none. Requests of Ollama's API become chats and completions, and answers are its lines of JSON.
#include <gtest/gtest.h>

#include <sstream>

#include "model/serve/forms/ollama.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const std::string& text) {
  return ordered_json::parse(text);
}

ServedModel& letters(bool has_chat = true) {
  static ServedModel with("letters", text::Tokenizer::characters("abcdefghij {}\":,"), 16),
      without("letters", text::Tokenizer::characters("abcdefghij"), 10);
  with.longest = without.longest = 100;
  with.longest_read = 4;
  if (!with.chat)
    with.chat.emplace(with.tokenizer, templates::ChatTemplate::parse("{{ messages[0]['content'] }}", "test"));
  return has_chat ? with : without;
}

Delta piece_of(const std::string& text, bool ended = false, infer::EndReason reason = infer::EndReason::end_token) {
  Delta out;
  out.text = text;
  out.ended = ended;
  out.answer.reason = reason;
  out.answer.made = 7;
  return out;
}

std::vector<ordered_json> lines_of(const std::string& text) {
  std::vector<ordered_json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(ordered_json::parse(line));
  return out;
}

TEST(ServeOllama, OptionsHaveOurNames) {
  const OllamaAsk ask = read_ollama_chat(json_of(
      R"({"model": "m:latest", "messages": [{"role": "user", "content": "a", "images": []}], "keep_alive": "5m",
          "options": {"temperature": 0.1, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "seed": 4, "num_predict": 9, "num_ctx": 4096,
                      "repeat_penalty": 1.2, "stop": ["x"], "mirostat": 0, "num_thread": 4}})"));
  const ordered_json& body = ask.body;
  EXPECT_EQ(body["temperature"], 0.1);
  EXPECT_EQ(body["top_k"], 3);
  EXPECT_EQ(body["min_p"], 0.1);
  EXPECT_EQ(body["seed"], 4);
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["repeat_penalty"], 1.2);
  EXPECT_EQ(body["stop"], json_of(R"(["x"])"));
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(ask.model, "m:latest");
  for (const char* unknown : {"num_ctx", "num_predict", "num_thread", "options", "keep_alive"})
    EXPECT_FALSE(body.contains(unknown)) << unknown;
  const OllamaAsk usual = read_ollama_chat(
      json_of(R"({"messages": [{"role": "user", "content": "a"}], "options": {"num_predict": -1}, "stream": false})"));
  EXPECT_EQ(usual.body["temperature"], 0.8);
  EXPECT_EQ(usual.body["repeat_penalty"], 1.1);
  EXPECT_EQ(usual.body["stream"], false);
  EXPECT_FALSE(usual.body.contains("max_tokens"));
  EXPECT_EQ(read_chat(usual.body, letters()).prompts.size(), 1U);
}

TEST(ServeOllama, FormatsThinkingAndCallsAreTranslated) {
  const OllamaAsk ask = read_ollama_chat(json_of(
      R"({"model": "m", "format": {"type": "object"}, "think": "low", "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "thinking": "", "tool_calls": [{"function": {"name": "get", "arguments": {"x": 1}}},
                                                                           {"function": {"name": "put", "arguments": {}}}]},
        {"role": "tool", "tool_name": "put", "content": "done"}, {"role": "tool", "content": "rain"}],
        "tools": [{"type": "function", "function": {"name": "get"}}]})"));
  EXPECT_EQ(ask.body["response_format"]["json_schema"]["schema"], json_of(R"({"type": "object"})"));
  EXPECT_EQ(ask.body["chat_template_kwargs"], json_of(R"({"enable_thinking": true, "reasoning_effort": "low"})"));
  const ordered_json& messages = ask.body["messages"];
  const std::string get = messages[1]["tool_calls"][0]["id"], put = messages[1]["tool_calls"][1]["id"];
  EXPECT_NE(get, put);
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], json_of(R"({"x": 1})"));
  EXPECT_FALSE(messages[1].contains("thinking"));
  EXPECT_EQ(messages[2]["tool_call_id"], put);
  EXPECT_EQ(messages[2]["name"], "put");
  EXPECT_EQ(messages[3]["tool_call_id"], get);
  EXPECT_EQ(ask.body["tools"].size(), 1U);
  EXPECT_EQ(read_ollama_chat(json_of(R"({"messages": [{"role": "user", "content": "a"}], "format": "json"})"))
                .body["response_format"]["type"],
            "json_object");
  EXPECT_EQ(read_ollama_chat(json_of(R"({"messages": [{"role": "user", "content": "a"}], "think": false})"))
                .body["chat_template_kwargs"]["enable_thinking"],
            false);
}

TEST(ServeOllama, WhatCannotBeDoneIsRefused) {
  for (const char* bad :
       {R"({"messages": [{"role": "user", "content": "a", "images": [3]}]})", R"({"messages": {}})",
        R"({"messages": [3]})", R"({"messages": [], "format": 3})", R"({"messages": [], "think": "much"})",
        R"({"messages": [], "options": []})", R"({"messages": [], "options": {"num_predict": "x"}})",
        R"({"messages": [], "options": {"messages": []}})", R"({"messages": [], "stream": 3})",
        R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "x"}]}]})"})
    EXPECT_THROW((void)read_ollama_chat(json_of(bad)), Refusal) << bad;
  for (const char* bad : {R"({"prompt": "a", "images": "aGk="})", R"({"prompt": 3})",
                          R"({"prompt": "a", "context": [1]})", R"({"prompt": "a", "template": "{{ .Prompt }}"})",
                          R"({"prompt": "a", "suffix": "b"})", R"({"prompt": "a", "raw": true, "system": "b"})"})
    EXPECT_THROW((void)read_ollama_generate(json_of(bad), letters()), Refusal) << bad;
  EXPECT_EQ(ollama_error(Refusal(404, "no such model")), R"({"error":"no such model"})");
}

TEST(ServeOllama, APromptIsAMessageOrRaw) {
  const OllamaAsk chat = read_ollama_generate(json_of(R"({"prompt": "a", "system": "b"})"), letters());
  EXPECT_TRUE(chat.is_chat && !chat.is_load);
  EXPECT_EQ(chat.body["messages"],
            json_of(R"([{"role": "system", "content": "b"}, {"role": "user", "content": "a"}])"));
  const OllamaAsk raw = read_ollama_generate(json_of(R"({"prompt": "ab", "raw": true})"), letters());
  EXPECT_FALSE(raw.is_chat);
  const GenerationRequest request = read_completion(raw.body, letters());
  EXPECT_EQ(request.prompts[0].size(), 2U);
  EXPECT_EQ(request.generate.predict, 100);  // as many as fit
  EXPECT_FALSE(read_ollama_generate(json_of(R"({"prompt": "ab"})"), letters(false)).is_chat);
  const OllamaAsk load = read_ollama_generate(json_of(R"({"model": "m"})"), letters());
  EXPECT_TRUE(load.is_load);
  EXPECT_EQ(ollama_loaded(load, 0).dump(),
            R"({"model":"m","created_at":"1970-01-01T00:00:00Z","response":"","done":true,"done_reason":"load"})");
  EXPECT_TRUE(read_ollama_chat(json_of(R"({"model": "m", "messages": []})")).is_load);
}

GenerationRequest request_with_calls() {
  GenerationRequest out;
  out.is_chat = out.stream = true;
  out.prompts = {{1, 2, 3}};
  auto plan = std::make_shared<CallPlan>();
  plan->form.open = "<";
  plan->form.middle = ":";
  plan->form.close = ">";
  plan->form.next = "<";
  plan->form.has_many = true;
  plan->tools.push_back({"get", {{"type", "object"}}});
  out.calls = plan;
  return out;
}

TEST(ServeOllama, AnswersAreLines) {
  OllamaAsk ask;
  ask.model = "m";
  OllamaReply stream(request_with_calls(), letters(), 0, ask);
  EXPECT_STREQ(stream.stream_type(), "application/x-ndjson");
  std::string text = stream.first_events();
  text += stream.events(piece_of("ab"));
  text += stream.events(piece_of("<get:{\"a\": 1}"));
  text += stream.events(piece_of(">", true));
  text += stream.last_events();
  const std::vector<ordered_json> lines = lines_of(text);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["message"], json_of(R"({"role": "assistant", "content": "ab"})"));
  EXPECT_EQ(lines[0]["done"], false);
  EXPECT_EQ(lines[1]["message"]["tool_calls"][0]["function"]["arguments"], json_of(R"({"a": 1})"));
  EXPECT_EQ(lines[1]["message"]["tool_calls"][0]["function"]["name"], "get");
  EXPECT_EQ(lines[2]["done"], true);
  EXPECT_EQ(lines[2]["done_reason"], "stop");
  EXPECT_EQ(lines[2]["eval_count"], 7);
  EXPECT_EQ(lines[2]["prompt_eval_count"], 3);
  EXPECT_TRUE(lines[2]["total_duration"].is_number_integer() && lines[2]["eval_duration"].is_number_integer());
  EXPECT_GE(lines[2]["total_duration"].get<int64_t>(), lines[2]["prompt_eval_duration"].get<int64_t>());

  OllamaReply whole(request_with_calls(), letters(), 0, ask);
  whole.add(piece_of("ab<get:{\"a\": 1}>", true));
  const ordered_json said = whole.whole();
  EXPECT_EQ(said["message"]["content"], "ab");
  EXPECT_EQ(said["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(said["done"], true);

  // A call that the token limit has cut is no call.
  OllamaReply cut(request_with_calls(), letters(), 0, ask);
  text = cut.events(piece_of("<get:{\"a\": ", true, infer::EndReason::limit)) + cut.last_events();
  EXPECT_EQ(lines_of(text).size(), 1U);
  EXPECT_EQ(lines_of(text)[0]["done_reason"], "length");

  ask.is_generate = true;
  GenerationRequest plain;
  plain.prompts = {{1}};
  OllamaReply generated(plain, letters(), 0, ask);
  generated.add(piece_of("ab", true, infer::EndReason::limit));
  EXPECT_EQ(generated.whole()["response"], "ab");
  EXPECT_FALSE(generated.whole().contains("message"));
  EXPECT_EQ(lines_of(generated.failed_events(Refusal(500, "no")))[0]["error"], "no");
}

TEST(ServeOllama, VectorsAreCutAsAsked) {
  const OllamaEmbedding many =
      read_ollama_embedding(json_of(R"({"model": "m", "input": ["ab", "abcdef"], "dimensions": 2})"), letters(), false);
  EXPECT_EQ(many.request.inputs[0].size(), 2U);
  EXPECT_EQ(many.request.inputs[1].size(), 4U);  // as many as the context holds
  const ordered_json reply = ollama_embedding_reply(many, {{3, 4, 5}, {0, 1, 0}});
  EXPECT_NEAR(reply["embeddings"][0][0].get<double>(), 0.6, 1e-6);
  EXPECT_EQ(reply["embeddings"][0].size(), 2U);
  EXPECT_EQ(reply["prompt_eval_count"], 6);
  EXPECT_THROW((void)read_ollama_embedding(json_of(R"({"input": "abcdef", "truncate": false})"), letters(), false),
               Refusal);
  EXPECT_THROW((void)read_ollama_embedding(json_of(R"({"input": [1]})"), letters(), false), Refusal);
  const OllamaEmbedding one = read_ollama_embedding(json_of(R"({"prompt": "ab"})"), letters(), true);
  EXPECT_EQ(ollama_embedding_reply(one, {{1, 0}}).dump(), R"({"embedding":[1.0,0.0]})");
}

TEST(ServeOllama, ModelsAreDescribed) {
  letters().facts = {"llama", "x.gguf", "q4_0", std::string(64, 'a'), 1'500'000'000, 800, 86400};
  const ordered_json tags = ollama_models({&letters()}, false)["models"][0];
  EXPECT_EQ(tags["name"], "letters");
  EXPECT_EQ(tags["modified_at"], "1970-01-02T00:00:00Z");
  EXPECT_EQ(tags["details"]["parameter_size"], "1.5B");
  EXPECT_EQ(tags["details"]["format"], "gguf");
  EXPECT_TRUE(ollama_models({&letters()}, true)["models"][0].contains("expires_at"));
  const ordered_json shown = ollama_model(letters());
  EXPECT_EQ(shown["model_info"]["llama.context_length"], 100);
  EXPECT_EQ(shown["capabilities"][0], "completion");
}

}  // namespace
}  // namespace lumen::model::serve
