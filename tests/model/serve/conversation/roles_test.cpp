// needs: none. No message of a chat is dropped: for every style of template each role is rendered, mapped to one that
// is, or refused; the tables below show which.
#include "model/serve/conversation/roles.h"

#include <gtest/gtest.h>

#include "model/templates/messages.h"
#include "tests/model/serve/conversation/styles.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

ordered_json said(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// Roles and contents after mapping, or "refused".
std::string mapped(const std::string& style, const ordered_json& messages) {
  const templates::ChatRenderer renderer = style_renderer(style);
  try {
    const ordered_json out = mapped_roles(messages, learn_roles(renderer), renderer);
    (void)renderer.prompt(out, ordered_json::object());  // the template accepts it
    std::string text;
    for (const ordered_json& one : out) {
      std::string content = one["content"];
      std::replace(content.begin(), content.end(), '\n', '/');
      text += (text.empty() ? "" : " ") + one["role"].get<std::string>() + ":" + content;
    }
    return text;
  } catch (const templates::MessageFault& fault) {
    EXPECT_NE(fault.reason.find("chat template"), std::string::npos);
    return "refused";
  }
}

TEST(ServeRoles, AreFoundByRendering) {
  const std::map<std::string, std::string> expected = {
      {"qwen", "system123 tool"}, {"glm", "system123 tool"},
      {"deepseek", "system123"},  {"gemma", ""},
      {"mistral", "system1"},     {"chatml", "system123 developer123 tool function"},
      {"plain", "system123"},     {"effort", "system123 developer123 tool function"}};
  for (const auto& [style, roles] : expected) {
    const RenderedRoles found = learn_roles(style_renderer(style));
    std::string text;
    const auto add = [&](const std::string& name) { text += (text.empty() ? "" : " ") + name; };
    const auto places = [&](const char* name, const RenderedInstructions& of) {
      const std::string at = std::string(of.first ? "1" : "") + (of.second ? "2" : "") + (of.later ? "3" : "");
      if (!at.empty()) add(name + at);
    };
    places("system", found.system);
    places("developer", found.developer);
    if (found.tool) add("tool");
    if (found.function) add("function");
    EXPECT_EQ(text, roles) << style;
  }
}

TEST(ServeRoles, InstructionsAreNeverDropped) {
  const ordered_json first = ordered_json::array({said("developer", "d"), said("user", "u")});
  for (const char* style : {"qwen", "glm", "deepseek", "mistral", "plain"})
    EXPECT_EQ(mapped(style, first), "system:d user:u") << style;
  EXPECT_EQ(mapped("gemma", first), "user:d//u");
  EXPECT_EQ(mapped("chatml", first), "developer:d user:u");

  const ordered_json both = ordered_json::array({said("system", "s"), said("developer", "d"), said("user", "u")});
  EXPECT_EQ(mapped("qwen", both), "system:s system:d user:u");
  EXPECT_EQ(mapped("mistral", both), "system:s//d user:u");
  EXPECT_EQ(mapped("gemma", both), "user:s//d//u");

  const ordered_json later = ordered_json::array(
      {said("user", "a"), said("assistant", "b"), said("system", "s"), said("user", "u"), said("assistant", "c")});
  EXPECT_EQ(mapped("glm", later), "user:a assistant:b system:s user:u assistant:c");
  EXPECT_EQ(mapped("mistral", later), "user:a assistant:b user:s//u assistant:c");
  EXPECT_EQ(mapped("gemma", later), "user:a assistant:b user:s//u assistant:c");

  // No user message follows.
  EXPECT_EQ(mapped("gemma", ordered_json::array({said("system", "s")})), "user:s");
  EXPECT_EQ(mapped("gemma", ordered_json::array({said("user", "u"), said("system", "s")})), "user:u//s");
  EXPECT_EQ(mapped("mistral", ordered_json::array({said("user", "u"), said("assistant", "a"), said("developer", "d")})),
            "user:u assistant:a user:d");
}

TEST(ServeRoles, ResultsAreRenderedOrRefused) {
  ordered_json messages = ordered_json::parse(
      R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "qcallone1",
          "type": "function", "function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "content": "r"}])");
  for (const char* role : {"tool", "function"}) {
    messages[2]["role"] = role;
    EXPECT_EQ(mapped("qwen", messages), "user:u assistant: tool:r");
    EXPECT_EQ(mapped("glm", messages), "user:u assistant: tool:r");
    EXPECT_EQ(mapped("chatml", messages), std::string("user:u assistant: ") + role + ":r");
    for (const char* style : {"deepseek", "gemma", "mistral", "plain"}) EXPECT_EQ(mapped(style, messages), "refused");
  }
}

TEST(ServeRoles, OtherRolesAreRenderedOrRefused) {
  const ordered_json messages = ordered_json::array({said("user", "u"), said("assistant", "a"), said("ipython", "i")});
  EXPECT_EQ(mapped("chatml", messages), "user:u assistant:a ipython:i");
  for (const char* style : {"qwen", "glm", "deepseek", "mistral", "plain"})
    EXPECT_EQ(mapped(style, messages), "refused") << style;
}

}  // namespace
}  // namespace lumen::model::serve
