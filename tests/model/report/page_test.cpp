// needs: none. Pages: the document is in the file, cannot leave its element, and the policy allows nothing but the
// page's own style and script. How pages look is tests/cli/pages/report_page_check.py's.
#include "model/report/page.h"

#include <gmock/gmock.h>

#include "base/structured/page_policy.h"
#include "tests/model/report/page_document.h"

namespace lumen::model::report {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kEvil = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\"'&";

TEST(Page, HoldsTheDocument) {
  const ordered_json report = {{"title", "a"}, {"runs", {{{"loss", 0.125}, {"name", "\u2028 POLICY DATA"}}}}};
  EXPECT_EQ(document_of(html_page(report)), report);
}

TEST(Page, NeedsNothingElse) {
  const std::string page = html_page(ordered_json{{"title", "a"}});
  for (const char* part : {"https:", "@import", "url(", "src=", "innerHTML", "outerHTML", "insertAdjacent",
                           "document.write", "eval(", "fetch(", "XMLHttpRequest", "POLICY", ">DATA<"})
    EXPECT_THAT(page, Not(HasSubstr(part))) << part;
  EXPECT_EQ(count(page, "http:"), count(page, "\"http://www.w3.org/2000/svg\""))
      << "the name of a space, not an address";
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; img-src data:; style-src " + policy_digest(page, "style") +
                              "; script-src " + policy_digest(page, "script") + "; base-uri 'none'"));
  EXPECT_THAT(page, HasSubstr("require-trusted-types-for 'script'"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, HasSubstr("@media print"));
}

TEST(Page, NoTextLeavesItsElement) {
  const ordered_json report = {{"title", kEvil}, {kEvil, {kEvil}}};
  const std::string page = html_page(report), empty = html_page(ordered_json{{"title", "a"}});
  EXPECT_EQ(document_of(page), report);
  for (const char* part : {"<", "</script", "<script", "<img", "<!--"})
    EXPECT_EQ(count(page, part), count(empty, part)) << part;
}

TEST(Page, InvalidUtf8IsReplaced) {
  EXPECT_EQ(document_of(html_page(ordered_json{{"title", "a\xff"}}))["title"], "a\ufffd");
}

TEST(Page, TablesAsText) {
  EXPECT_EQ(text_table({{"name", "n"}, {{"a", "10"}, {"été", "7"}}, 1}),
            "name   n\n"
            "a     10\n"
            "été    7\n");
  EXPECT_EQ(text_table({{}, {{"a", "b"}}, 2}), "a  b\n");
}

}  // namespace
}  // namespace lumen::model::report
