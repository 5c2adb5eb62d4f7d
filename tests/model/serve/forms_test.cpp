// needs: none. Requests of other APIs become chats, and answers have their forms and events in their order.
#include "model/serve/forms/forms.h"

#include <gtest/gtest.h>

#include <sstream>

#include "model/serve/hints.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const std::string& text) {
  return ordered_json::parse(text);
}

ServedModel& forms_model() {
  static ServedModel model("letters", text::Tokenizer::characters("abcdefghij {}\":,"), 16);
  return model;
}

std::shared_ptr<CallPlan> forms_plan() {
  auto plan = std::make_shared<CallPlan>();
  plan->form.open = "<";
  plan->form.middle = ":";
  plan->form.close = ">";
  plan->form.next = "<";
  plan->form.has_many = true;
  plan->tools.push_back({"get", {{"type", "object"}}});
  return plan;
}

GenerationRequest forms_request(bool with_calls) {
  GenerationRequest out;
  out.is_chat = out.stream = true;
  out.prompts = {{1, 2, 3}};
  if (with_calls) out.calls = forms_plan();
  return out;
}

Delta piece_of(const std::string& text, bool ended = false, infer::EndReason reason = infer::EndReason::end_token,
               const std::string& stop = "") {
  Delta out;
  out.text = text;
  out.ended = ended;
  out.answer.reason = reason;
  out.answer.made = 7;
  out.answer.stop = stop;
  return out;
}

// Names and data of events.
std::vector<std::pair<std::string, ordered_json>> told(const std::string& events) {
  std::vector<std::pair<std::string, ordered_json>> out;
  std::istringstream lines(events);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (line.starts_with("data: ")) out.emplace_back(name, ordered_json::parse(line.substr(6)));
  }
  for (const auto& [kind, data] : out) EXPECT_EQ(data["type"], kind);
  return out;
}

std::string names_of(const std::vector<std::pair<std::string, ordered_json>>& events) {
  std::string out;
  for (const auto& [name, data] : events) out += name + " ";
  return out;
}

TEST(ServeMessages, ARequestBecomesAChat) {
  const ordered_json chat = chat_of_messages(
      json_of(
          R"({"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
      "messages": [{"role": "user", "content": "a"},
                   {"role": "assistant", "content": [{"type": "text", "text": "Let me."}, {"type": "tool_use", "id": "t1", "name": "get", "input": {"x": 1}}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]}, {"type": "text", "text": "So?"}]}],
      "stop_sequences": ["x"], "temperature": 0.5, "top_k": 3, "stream": true, "metadata": {"user_id": "u"},
      "tools": [{"name": "get", "description": "Gets.", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}})"),
      false);
  EXPECT_EQ(chat["messages"], json_of(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"},
      {"role": "assistant", "content": "Let me.", "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "get", "arguments": "{\"x\":1}"}}]},
      {"role": "tool", "tool_call_id": "t1", "content": "rain"}, {"role": "user", "content": "So?"}])"));
  EXPECT_EQ(
      chat["tools"],
      json_of(
          R"([{"type": "function", "function": {"name": "get", "description": "Gets.", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(chat["tool_choice"], "required");
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  EXPECT_EQ(chat["stop"], json_of(R"(["x"])"));
  EXPECT_EQ(chat["max_tokens"], 5);
  EXPECT_EQ(
      chat_of_messages(
          json_of(
              R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "tool_choice": {"type": "tool", "name": "get"}})"),
          false)["tool_choice"],
      json_of(R"({"type": "function", "function": {"name": "get"}})"));
  EXPECT_NO_THROW((void)chat_of_messages(json_of(R"({"messages": [{"role": "user", "content": "a"}]})"), true));
  const std::string begin = R"({"max_tokens": 1, "messages": [{"role": "user", "content": )";
  for (const std::string& bad :
       {std::string(R"({"messages": [{"role": "user", "content": "a"}]})"), std::string(R"({"max_tokens": 1})"),
        begin + "3}]}", begin + R"([3]}]})", begin + R"([{"type": "image"}]}]})", begin + R"([{"type": "text"}]}]})",
        begin + R"([{"type": "text", "text": 3}]}]})",
        begin + R"([{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]})",
        begin + R"([{"type": "tool_result", "content": "a"}]}]})", begin + R"("a"}], "n": 2})",
        begin + R"("a"}], "tools": [{"type": "bash_20250124", "name": "bash"}]})",
        begin + R"("a"}], "tool_choice": {"type": "some"}})", begin + R"("a"}], "stop_sequences": "a"})",
        std::string(R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "a"}]})")})
    EXPECT_THROW((void)chat_of_messages(json_of(bad), false), Refusal) << bad;
  EXPECT_EQ(json_of(messages_error(Refusal(429, "wait"))),
            json_of(R"({"type": "error", "error": {"type": "rate_limit_error", "message": "wait"}})"));
}

TEST(ServeForms, FieldsThatTheirApisDoNotDefineReachTheChat) {
  for (const char* name : kExtensions) {
    const std::string more = fmt::format(R"("{}": 3}})", name);
    const ordered_json messages = chat_of_messages(
        json_of(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], )" + more), false);
    EXPECT_EQ(messages.value(name, 0), 3) << name;
    EXPECT_EQ(read_responses(json_of(R"({"input": "a", )" + more), ResponseStore()).chat.value(name, 0), 3) << name;
  }
  const ordered_json formatted =
      chat_of_messages(json_of(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}],
                  "output_config": {"format": {"type": "json_schema", "schema": {"type": "integer"}}}})"),
                       false);
  EXPECT_EQ(formatted["response_format"],
            json_of(R"({"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}})"));
  EXPECT_THROW((void)chat_of_messages(json_of(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}],
                                                  "output_config": {"format": {"type": "text"}}})"),
                                      false),
               Refusal);
}

TEST(ServeMessages, AnAnswerWithCallsAsEvents) {
  MessagesReply reply(forms_request(true), forms_model(), 5);
  std::string events = reply.first_events();
  for (const char* text : {"ab ", " <ge", "t:{\"a\"", ":1}", "><get:{}>"}) events += reply.events(piece_of(text));
  events += reply.events(piece_of("", true));
  ASSERT_TRUE(reply.has_ended());
  events += reply.last_events();
  const auto all = told(events);
  EXPECT_EQ(names_of(all),
            "message_start content_block_start content_block_delta content_block_stop content_block_start "
            "content_block_delta content_block_delta content_block_stop "
            "content_block_start content_block_delta content_block_stop message_delta message_stop ");
  EXPECT_EQ(all[0].second["message"]["content"], ordered_json::array());
  EXPECT_TRUE(all[0].second["message"]["stop_reason"].is_null());
  EXPECT_EQ(all[0].second["message"]["usage"]["input_tokens"], 3);
  EXPECT_EQ(all[2].second["delta"], json_of(R"({"type": "text_delta", "text": "ab"})"));
  EXPECT_EQ(all[4].second["content_block"]["name"], "get");
  EXPECT_EQ(all[4].second["index"], 1);
  EXPECT_EQ(all[5].second["delta"], json_of(R"({"type": "input_json_delta", "partial_json": "{\"a\""})"));
  EXPECT_EQ(all[11].second["delta"], json_of(R"({"stop_reason": "tool_use", "stop_sequence": null})"));
  EXPECT_EQ(all[11].second["usage"]["output_tokens"], 7);
  const ordered_json whole = reply.whole();
  EXPECT_EQ(whole["content"].size(), 3U);
  EXPECT_EQ(whole["content"][1]["input"], json_of(R"({"a": 1})"));
  EXPECT_EQ(whole["content"][1]["id"], all[4].second["content_block"]["id"]);
}

TEST(ServeMessages, WhyAnAnswerEnds) {
  const auto reason = [](infer::EndReason end, const std::string& stop) {
    GenerationRequest request = forms_request(false);
    request.generate.stops = {"xx"};
    MessagesReply reply(request, forms_model(), 5);
    reply.add(piece_of("ab", true, end, stop));
    return reply.whole();
  };
  EXPECT_EQ(reason(infer::EndReason::end_token, "")["stop_reason"], "end_turn");
  EXPECT_EQ(reason(infer::EndReason::limit, "")["stop_reason"], "max_tokens");
  EXPECT_EQ(reason(infer::EndReason::stop_string, "xx")["stop_reason"], "stop_sequence");
  EXPECT_EQ(reason(infer::EndReason::stop_string, "xx")["stop_sequence"], "xx");
  EXPECT_EQ(reason(infer::EndReason::stop_string, "the template's")["stop_reason"], "end_turn");
  MessagesReply failed(forms_request(false), forms_model(), 5);
  EXPECT_EQ(names_of(told(failed.failed_events(Refusal(500, "x")))), "error ");
}

TEST(ServeResponses, ARequestBecomesAChat) {
  ResponseStore store;
  const ResponsesAsk ask =
      read_responses(json_of(R"({"model": "m", "instructions": "Be brief.", "max_output_tokens": 9, "store": false,
      "input": [{"role": "developer", "content": "d"}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"type": "function_call", "call_id": "c1", "name": "get", "arguments": "{}"}, {"type": "function_call", "call_id": "c2", "name": "get", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "rain"}],
      "tools": [{"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": true}], "tool_choice": {"type": "function", "name": "get"},
      "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "integer"}}}})"),
                     store);
  EXPECT_EQ(ask.chat["messages"][0], json_of(R"({"role": "system", "content": "Be brief."})"));
  EXPECT_EQ(ask.chat["messages"][1]["role"], "developer");
  EXPECT_EQ(ask.chat["messages"][3]["tool_calls"].size(), 2U);
  EXPECT_EQ(ask.chat["messages"][4], json_of(R"({"role": "tool", "tool_call_id": "c1", "content": "rain"})"));
  EXPECT_EQ(ask.messages.size(), 4U);
  EXPECT_EQ(ask.chat["max_tokens"], 9);
  EXPECT_EQ(ask.chat["tools"][0]["function"]["name"], "get");
  EXPECT_EQ(ask.chat["tool_choice"], json_of(R"({"type": "function", "function": {"name": "get"}})"));
  EXPECT_EQ(ask.chat["response_format"],
            json_of(R"({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}})"));
  EXPECT_FALSE(ask.is_stored);
  for (const char* bad :
       {R"({})", R"({"input": 3})", R"({"input": []})", R"({"input": [3]})",
        R"({"input": [{"type": "item_reference", "id": "a"}]})", R"({"input": [{"type": "web_search_call"}]})",
        R"({"input": [{"role": "user"}]})", R"({"input": [{"role": "tool", "content": "a"}]})",
        R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})", R"({"input": "a", "n": 2})",
        R"({"input": "a", "background": true})", R"({"input": "a", "text": 3})",
        R"({"input": "a", "previous_response_id": "resp_1"})", R"({"input": "a", "store": 3})",
        R"({"input": "a", "instructions": 3})", R"({"input": [{"type": "function_call_output", "call_id": "a"}]})"})
    EXPECT_THROW((void)read_responses(json_of(bad), store), Refusal) << bad;
}

TEST(ServeResponses, AnAnswerAsEventsAndWhatFollowsIt) {
  ResponseStore store;
  ResponsesAsk ask = read_responses(json_of(R"({"input": "a", "instructions": "i"})"), store);
  ResponsesReply reply(forms_request(true), forms_model(), 5, ask, &store);
  std::string events = reply.first_events();
  for (const char* text : {"ab", "c", "<get:{\"a\":", "1}>"}) events += reply.events(piece_of(text));
  events += reply.events(piece_of("", true));
  events += reply.last_events();
  const auto all = told(events);
  EXPECT_EQ(names_of(all),
            "response.created response.in_progress response.output_item.added response.content_part.added "
            "response.output_text.delta response.output_text.delta "
            "response.output_text.done response.content_part.done response.output_item.done response.output_item.added "
            "response.function_call_arguments.delta "
            "response.function_call_arguments.delta response.function_call_arguments.done response.output_item.done "
            "response.completed ");
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].second["sequence_number"], int64_t(i));
  const ordered_json last = all.back().second["response"];
  EXPECT_EQ(last["status"], "completed");
  EXPECT_EQ(last["output"][0]["content"][0]["text"], "abc");
  EXPECT_EQ(last["output"][0], all[8].second["item"]);
  EXPECT_EQ(last["output"][1], all[13].second["item"]);
  EXPECT_EQ(last["output"][1]["arguments"], "{\"a\":1}");
  EXPECT_EQ(last["usage"]["total_tokens"], 10);
  EXPECT_EQ(last["instructions"], "i");

  // Instructions are not kept, all else is.
  const ResponsesAsk next = read_responses({{"input", "more"}, {"previous_response_id", reply.id()}}, store);
  ASSERT_EQ(next.chat["messages"].size(), 3U);
  EXPECT_EQ(next.chat["messages"][1]["tool_calls"][0]["id"], last["output"][1]["call_id"]);
  EXPECT_EQ(next.chat["messages"][2]["content"], "more");

  ResponsesReply cut(forms_request(false), forms_model(), 5, ask, &store);
  cut.add(piece_of("ab", true, infer::EndReason::limit));
  EXPECT_EQ(cut.whole()["status"], "incomplete");
  EXPECT_EQ(cut.whole()["incomplete_details"]["reason"], "max_output_tokens");
  ResponsesReply silent(forms_request(false), forms_model(), 5, ask, &store);
  events = silent.first_events();
  events += silent.events(piece_of("", true));
  events += silent.last_events();
  EXPECT_EQ(told(events).back().second["response"]["output"].size(), 1U);
}

GenerationRequest reasoning_request() {
  GenerationRequest out = forms_request(true);
  out.reasoning.emplace(ReasoningMarks{"{a}", "{b}"}, false, "<");
  out.warnings = {"w"};
  return out;
}

constexpr const char* kReasoned[] = {"{", "a}ab", " c", "{b", "}d", "<get:{}>"};

TEST(ServeMessages, ReasoningIsABlock) {
  FieldNotes notes;
  const ordered_json chat = chat_of_messages(
      json_of(R"({"max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 3}, "unheard_of": 1,
      "tools": [{"type": "web_search_20250305", "name": "web_search"}],
      "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t",
        "signature": "s"}, {"type": "redacted_thinking", "data": "d"}]}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]})"),
      false, &notes);
  EXPECT_EQ(chat["messages"][1], json_of(R"({"role": "assistant", "content": "", "reasoning_content": "t"})"));
  EXPECT_EQ(chat["thinking"]["type"], "enabled");
  EXPECT_EQ(chat["tools"], ordered_json::array());
  EXPECT_EQ(chat["continue_final_message"], true);  // as Anthropic's API does
  EXPECT_EQ(notes.warnings.size(), 3U);

  MessagesReply reply(reasoning_request(), forms_model(), 5);
  std::string events = reply.first_events();
  for (const char* text : kReasoned) events += reply.events(piece_of(text));
  events += reply.events(piece_of("", true));
  events += reply.last_events();
  const auto all = told(events);
  EXPECT_EQ(names_of(all),
            "message_start content_block_start content_block_delta content_block_delta content_block_stop "
            "content_block_start content_block_delta content_block_stop content_block_start content_block_delta "
            "content_block_stop message_delta message_stop ");
  EXPECT_EQ(all[0].second["message"]["warnings"], json_of(R"(["w"])"));
  EXPECT_EQ(all[1].second["content_block"], json_of(R"({"type": "thinking", "thinking": "", "signature": ""})"));
  EXPECT_EQ(all[2].second["delta"], json_of(R"({"type": "thinking_delta", "thinking": "ab"})"));
  EXPECT_EQ(all[6].second["delta"], json_of(R"({"type": "text_delta", "text": "d"})"));
  const ordered_json content = reply.whole()["content"];
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[0], json_of(R"({"type": "thinking", "thinking": "ab c", "signature": ""})"));
  EXPECT_EQ(content[1]["text"], "d");
}

TEST(ServeResponses, ReasoningIsAnItem) {
  ResponseStore store;
  FieldNotes notes;
  const ResponsesAsk ask = read_responses(
      json_of(R"({"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "unheard_of": 1,
      "tools": [{"type": "web_search"}], "text": {"verbosity": "low"}, "input": [{"role": "user", "content": "a"},
      {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
      {"type": "web_search_call", "id": "w"}, {"type": "reasoning", "summary": [], "encrypted_content": "e"},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "x"},
      {"type": "custom_tool_call_output", "call_id": "2", "output": "y"},
      {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]}]})"),
      store, &notes);
  EXPECT_EQ(ask.chat["messages"], json_of(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": "c", "reasoning_content": "t", "tool_calls":
        [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
         {"id": "2", "type": "function", "function": {"name": "g", "arguments": {"input": "x"}}}]},
      {"role": "tool", "tool_call_id": "2", "content": "y"}, {"role": "assistant", "content": "", "reasoning_content": "t"}])"));
  EXPECT_EQ(ask.chat["reasoning"], json_of(R"({"effort": "low"})"));
  EXPECT_EQ(ask.chat["tools"], json_of(R"([{"type": "web_search"}])"));  // chats ignore it
  EXPECT_EQ(notes.warnings.size(), 3U);

  ResponsesReply reply(reasoning_request(), forms_model(), 5, ask, &store);
  std::string events = reply.first_events();
  for (const char* text : kReasoned) events += reply.events(piece_of(text));
  events += reply.events(piece_of("", true));
  events += reply.last_events();
  const auto all = told(events);
  EXPECT_EQ(names_of(all),
            "response.created response.in_progress response.output_item.added response.reasoning_text.delta "
            "response.reasoning_text.delta response.reasoning_text.done response.output_item.done "
            "response.output_item.added response.content_part.added response.output_text.delta "
            "response.output_text.done response.content_part.done response.output_item.done response.output_item.added "
            "response.function_call_arguments.delta response.function_call_arguments.done response.output_item.done "
            "response.completed ");
  const ordered_json last = all.back().second["response"];
  EXPECT_EQ(last["warnings"], json_of(R"(["w"])"));
  ASSERT_EQ(last["output"].size(), 3U);
  EXPECT_EQ(last["output"][0]["content"], json_of(R"([{"type": "reasoning_text", "text": "ab c"}])"));
  EXPECT_EQ(last["output"][0], all[6].second["item"]);
  EXPECT_EQ(last["output"][1]["content"][0]["text"], "d");
  EXPECT_EQ(last["usage"]["output_tokens_details"]["reasoning_tokens"], 4);
  const ResponsesAsk next = read_responses({{"input", "more"}, {"previous_response_id", reply.id()}}, store);
  EXPECT_EQ(next.chat["messages"][4]["reasoning_content"], "ab c");
}

TEST(ServeResponses, TheStoreIsBounded) {
  ResponseStore store(2, 100);
  store.put("a", {"1"});
  store.put("b", {"2"});
  store.put("c", {"3"});
  EXPECT_FALSE(store.find("a"));
  EXPECT_TRUE(store.find("b") && store.find("c"));
  store.put("d", {std::string(95, 'x')});
  EXPECT_FALSE(store.find("b") || store.find("c"));
  store.put("e", {std::string(200, 'x')});
  EXPECT_TRUE(store.find("d") && !store.find("e"));
}

TEST(ServeResponses, AStoredResponseIsReadAndErased) {
  ResponseStore store;
  const ResponsesAsk ask = read_responses(json_of(R"({"input": "a"})"), store);
  ResponsesReply reply(forms_request(false), forms_model(), 5, ask, &store);
  reply.add(piece_of("ab", true));
  const ordered_json sent = reply.whole();
  const std::string id = sent["id"];
  ASSERT_TRUE(store.response(id));
  EXPECT_EQ(*store.response(id), sent);
  EXPECT_TRUE(store.find(id));
  EXPECT_TRUE(store.erase(id));
  EXPECT_FALSE(store.response(id) || store.find(id) || store.erase(id));

  // A call that the token limit has cut: the response can be read, but not continued.
  ResponsesReply cut(forms_request(true), forms_model(), 5, ask, &store);
  cut.add(piece_of("<get:{\"a\":", true, infer::EndReason::limit));
  const std::string other = cut.whole()["id"];
  EXPECT_TRUE(store.response(other) && !store.find(other));

  const ResponsesAsk unstored = read_responses(json_of(R"({"input": "a", "store": false})"), store);
  ResponsesReply gone(forms_request(false), forms_model(), 5, unstored, &store);
  gone.add(piece_of("ab", true));
  EXPECT_FALSE(store.response(gone.whole()["id"].get<std::string>()));
}

}  // namespace
}  // namespace lumen::model::serve
