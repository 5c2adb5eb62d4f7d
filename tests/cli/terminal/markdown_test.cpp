// needs: none. Markdown in colours: where they begin and end, and that no character of the text changes.
#include "cli/terminal/markdown.h"

#include <gtest/gtest.h>

namespace lumen::cli {
namespace {

// The colours as letters: <h heading, <b bold, <c code, <d bold code, <f fence, <i item, > the end.
std::string coloured(const std::string& text, size_t piece) {
  MarkdownColours colours;
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += colours.add(text.substr(at, piece));
  out += colours.finish();
  const std::pair<const char*, const char*> kNames[] = {{"\x1b[0m", ">"},   {"\x1b[1;36m", "<h"}, {"\x1b[1m", "<b"},
                                                        {"\x1b[33m", "<c"}, {"\x1b[1;33m", "<d"}, {"\x1b[2m", "<f"},
                                                        {"\x1b[36m", "<i"}};
  for (const auto& [code, name] : kNames)
    for (size_t at = 0; (at = out.find(code, at)) != std::string::npos;)
      out.replace(at, std::string(code).size(), name);
  return out;
}

TEST(Markdown, ColoursOfEachKind) {
  const std::pair<const char*, const char*> kCases[] = {
      {"plain\n", "plain\n"},
      {"# Title\nmore", "<h# Title>\nmore"},
      {"### 제목 **b**\n", "<h### 제목 **b**>\n"},
      {"#tag ####### no\n", "#tag ####### no\n"},
      {"a **bold** b", "a <b**bold**> b"},
      {"a ** b ** c 2*3*4\n", "a ** b ** c 2*3*4\n"},
      {"**open\nnext", "<b**open>\nnext"},
      {"call `f(*x)` now `", "call <c`f(*x)`> now <c`>"},
      {"**a `b` c**", "<b**a ><d`b`><b c**>"},
      {"- one\n  * two\n12. three\n", "<i- >one\n<i  * >two\n<i12. >three\n"},
      {"-5 is\n3.5 is\n* * *\n", "-5 is\n3.5 is\n<i* >* *\n"},
      {"```py\n# x **y**\n\n- z\n```\nend", "<f```py>\n<c# x **y**>\n\n<c- z>\n<f```>\nend"},
      {"**", "**"},
      {"", ""},
  };
  for (const auto& [text, want] : kCases)
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{1000}}) {
      EXPECT_EQ(coloured(text, piece), want) << text << " in pieces of " << piece;
    }
}

TEST(Markdown, TheTextStays) {
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525 + 1013904223;
      text += "#`*-1. \nab"[(state >> 16) % 10];
    }
    MarkdownColours colours;
    std::string out = colours.add(text);
    out += colours.finish();
    for (size_t at = 0; (at = out.find('\x1b', at)) != std::string::npos;) out.erase(at, out.find('m', at) + 1 - at);
    ASSERT_EQ(out, text);
  }
}

}  // namespace
}  // namespace lumen::cli
