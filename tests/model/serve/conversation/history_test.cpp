// needs: none. Messages that clients send back are repaired: no former turn makes a conversation unusable.
#include "model/serve/conversation/history.h"

#include <gtest/gtest.h>

#include "model/templates/messages.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

// The repaired message in normal form.
ordered_json repaired(const std::string& message, size_t changes) {
  const RepairedMessages out = repaired_messages(ordered_json::parse("[" + message + "]"));
  EXPECT_EQ(out.changes.size(), changes) << message;
  EXPECT_EQ(repaired_messages(out.messages).messages, out.messages) << message;  // again changes nothing
  return normal_messages(out.messages, templates::OtherKeys::refused)[0];
}

TEST(ServeHistory, EmptyAnswersAreAnswers) {
  const ordered_json empty = {{"role", "assistant"}, {"content", ""}};
  for (const char* given : {R"({"role": "assistant"})", R"({"role": "assistant", "content": null})",
                            R"({"role": "assistant", "content": ""})", R"({"role": "assistant", "content": []})",
                            R"({"role": "assistant", "content": null, "tool_calls": null, "function_call": null})",
                            R"({"role": "assistant", "content": null, "tool_calls": [], "refusal": null})"})
    EXPECT_EQ(repaired(given, 0), empty) << given;
  EXPECT_EQ(repaired(R"({"role": "tool", "tool_call_id": "1", "content": null})", 0)["content"], "");
  EXPECT_THROW(repaired(R"({"role": "user", "content": null})", 0), templates::MessageFault);
}

TEST(ServeHistory, ReasoningInEveryForm) {
  for (const char* given :
       {R"({"role": "assistant", "reasoning_content": "t"})",
        R"({"role": "assistant", "content": null, "reasoning": "t"})",
        R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}]})",
        R"({"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]})",
        R"({"role": "assistant", "content": "", "reasoning": {"text": "t"}})"}) {
    const ordered_json message = repaired(given, 0);
    EXPECT_EQ(templates::thoughts_of(message), "t") << given;
    EXPECT_EQ(message["content"], "") << given;
  }
}

TEST(ServeHistory, BrokenArgumentsStayAsText) {
  const auto arguments = [](const std::string& given, size_t changes) {
    return repaired(R"({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function":
        {"name": "f", "arguments": )" +
                        given + "}}]}",
                    changes)["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments(R"("{\"a\": 1}")", 0), (ordered_json{{"a", 1}}));
  EXPECT_EQ(arguments(R"({"a": 1})", 0), (ordered_json{{"a", 1}}));
  EXPECT_EQ(arguments("\"\"", 0), ordered_json::object());
  EXPECT_EQ(arguments("null", 0), ordered_json::object());
  EXPECT_EQ(arguments(R"("{\"a\": \"b")", 1), (ordered_json{{"arguments", "{\"a\": \"b"}}));
  EXPECT_EQ(arguments(R"("[1]")", 1), (ordered_json{{"arguments", "[1]"}}));
  EXPECT_EQ(arguments("[1]", 1), (ordered_json{{"arguments", "[1]"}}));
}

TEST(ServeHistory, OtherMembersAreRemoved) {
  const ordered_json plain = {{"role", "user"}, {"content", "a"}};
  EXPECT_EQ(repaired(R"({"role": "user", "content": "a", "id": null})", 0), plain);
  EXPECT_EQ(repaired(R"({"role": "user", "content": "a", "cache_control": {}, "id": "x"})", 2), plain);
}

}  // namespace
}  // namespace lumen::model::serve
