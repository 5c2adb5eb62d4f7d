// base/place: diagnostics show file:line:column, the line, a caret and a hint.
#include "base/place.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

Place at(const std::string& text, uint32_t begin, uint32_t end) {
  return {std::make_shared<const Source>(Source{"x.lum", text}), begin, end};
}

TEST(Place, CountsLinesAndCodePoints) {
  const std::string text = "ab\n한글 x\n";
  EXPECT_EQ(line_column(at(text, 0, 1)).line, 1);
  const LineColumn c = line_column(at(text, 10, 11));  // x, behind two syllables of three bytes and a space
  EXPECT_EQ(c.line, 2);
  EXPECT_EQ(c.column, 4);
}

TEST(Place, RendersCaretAndHint) {
  EXPECT_EQ(render_diagnostic(at("let y = foo(x)\n", 8, 11), "unknown function 'foo'", "did you mean 'floor'?"),
            "x.lum:1:9: error: unknown function 'foo'\n"
            "    let y = foo(x)\n"
            "            ^~~\n"
            "  hint: did you mean 'floor'?");
}

TEST(Place, SurvivesPlacesAtAndBehindTheEnd) {
  EXPECT_NE(render_diagnostic(at("abc", 3, 3), "m", "").find("x.lum:1:4"), std::string::npos);
  EXPECT_NE(render_diagnostic(at("", 0, 0), "m", "").find("x.lum:1:1"), std::string::npos);
  EXPECT_NE(render_diagnostic(at("abc", 99, 120), "m", "").find("x.lum:1:4"), std::string::npos);
}

TEST(Place, LongLinesAreCut) {
  const std::string text(100000, 'x');
  EXPECT_LT(render_diagnostic(at(text, 50000, 90000), "m", "").size(), 600u);
}

}  // namespace
}  // namespace lumen
