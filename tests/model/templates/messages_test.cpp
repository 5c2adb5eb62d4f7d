// needs: none. Messages of chats in the form that templates get, whatever form they were given in.
#include "model/templates/messages.h"

#include <gtest/gtest.h>

namespace lumen::model::templates {
namespace {

using nlohmann::ordered_json;

std::string normal(const char* text, OtherKeys other = OtherKeys::kept) {
  try {
    const ordered_json once = normal_messages(ordered_json::parse(text), other);
    EXPECT_EQ(normal_messages(once, other), once) << text;  // again changes nothing
    return once.dump();
  } catch (const MessageFault& fault) {
    return "fault: " + fault.reason;
  }
}

constexpr const char* kCalled =
    R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"k":"v"}}}]}])";

TEST(Messages, CallsInEveryForm) {
  for (
      const char* given :
      {R"([{"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":{"k":"v"}}}]}])",
       R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"k\": \"v\"}"}}]}])",
       R"([{"role":"assistant","content":"","tool_calls":[{"name":"f","arguments":"\"{\\\"k\\\": \\\"v\\\"}\""}]}])",
       R"([{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"k\":\"v\"}"}}])"})
    EXPECT_EQ(normal(given), kCalled) << given;
  EXPECT_EQ(normal(R"([{"role":"assistant","content":"a","tool_calls":[],"name":null}])"),
            R"([{"role":"assistant","content":"a"}])");
  EXPECT_EQ(
      normal(R"([{"role":"assistant","content":"","tool_calls":[{"name":"f","arguments":" "}]}])"),
      R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]}])");
}

TEST(Messages, ContentsAndResults) {
  EXPECT_EQ(normal(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
            R"([{"role":"user","content":"ab"}])");
  EXPECT_EQ(normal(R"([{"role":"assistant","reasoning_content":"r","content":null}])"),
            R"([{"role":"assistant","reasoning_content":"r","content":""}])");
  const ordered_json named = normal_messages(ordered_json::parse(
      R"([{"role":"assistant","tool_calls":[{"id":"1","name":"f"}]},{"role":"tool","tool_call_id":"1","content":"r"}])"));
  EXPECT_EQ(named[1]["name"], "f");
  EXPECT_EQ(normal(R"([{"role":"user","content":"a","weight":0}])"), R"([{"role":"user","content":"a","weight":0}])");
}

TEST(Messages, WhatIsNoMessage) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({})", "messages are not a list"},
      {R"([3])", "a message is not an object"},
      {R"([{"content":"a"}])", "a message without a role"},
      {R"([{"role":"user","content":null}])", "a message without content"},
      {R"([{"role":"user","content":7}])", "a message's content is not text"},
      {R"([{"role":"user","content":[{"type":"image"}]}])", "a message has content other than text"},
      {R"([{"role":"user","content":"a","name":7}])", "\"name\" of a message is not a string"},
      {R"([{"role":"user","content":"a","tool_calls":[{"name":"f"}]}])",
       "calls in a message that is not from an assistant"},
      {R"([{"role":"assistant","tool_calls":7}])", "\"tool_calls\" is not a list"},
      {R"([{"role":"assistant","tool_calls":[{}]}])", "a call without a function name"},
      {R"([{"role":"assistant","tool_calls":[{"name":"f","arguments":"{\"a\""}]}])",
       "the arguments of a call are not valid JSON"},
      {R"([{"role":"assistant","tool_calls":[{"name":"f","arguments":"[1]"}]}])",
       "the arguments of a call are not a JSON object"}};
  for (const auto& [given, reason] : kCases) EXPECT_EQ(normal(given), std::string("fault: ") + reason) << given;
  EXPECT_EQ(normal(R"([{"role":"user","content":"a","weight":1}])", OtherKeys::refused),
            "fault: a message has no \"weight\"");
}

TEST(Messages, ThoughtsUnderEveryKey) {
  for (const char* key : {"reasoning_content", "reasoning", "thinking"}) {
    ordered_json message = {{"role", "assistant"}, {"content", "a"}, {key, "t"}};
    EXPECT_EQ(thoughts_of(message), "t");
    share_thoughts(message);
    for (const char* each : {"reasoning_content", "reasoning", "thinking"}) EXPECT_EQ(message[each], "t") << key;
  }
  ordered_json none = {{"role", "assistant"}, {"content", "a"}, {"reasoning", ""}};
  share_thoughts(none);
  EXPECT_FALSE(none.contains("thinking"));
}

}  // namespace
}  // namespace lumen::model::templates
