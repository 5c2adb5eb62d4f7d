// needs: none. The page of a compressed model holds its document; the table for terminals its main figures.
#include "model/report/compression/compression_page.h"

#include <gmock/gmock.h>

#include "tests/model/report/compression/compression_case.h"
#include "tests/model/report/page_document.h"

namespace lumen::model::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(CompressionPage, HoldsTheDocument) {
  const CompressionReport r = small_document();
  const nlohmann::ordered_json out = document_of(html_report(r));
  EXPECT_EQ(out["title"], "tiny");
  EXPECT_EQ(out["subtitle"], "15.6 KiB to 4.10 KiB \u00b7 2026-11-23");
  EXPECT_EQ(out["compression"], to_json(r));
}

TEST(CompressionPage, DocumentsWithHardlyAnything) {
  CompressionReport r;
  r.points.push_back({"one", "", 100, 0, {}, false});
  const nlohmann::ordered_json out = document_of(html_report(r));
  EXPECT_EQ(out["title"], "compressed model");
  EXPECT_EQ(out["subtitle"], "2 models compared");
  EXPECT_THAT(text_report(r), HasSubstr("one"));
}

TEST(CompressionPage, NamesCannotBecomeMarkup) {
  const std::string evil = "</script><img src=x onerror=alert(1)>\"'&\x1b[31m\u202e";
  CompressionReport r = small_document();
  r.model = r.created = r.text = r.budget = r.device = r.base.name = r.result->name = evil;
  for (auto& p : r.points) p.label = p.strategy = evil;
  for (auto& t : r.tasks) t.model = t.task = t.figure = evil;
  r.notes = {evil};
  const std::string page = html_report(r);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_EQ(count(page, "</script"), 2U);
  EXPECT_EQ(document_of(page)["title"], evil);
  EXPECT_THAT(text_report(r), Not(HasSubstr("\x1b")));
}

TEST(CompressionPage, AsText) {
  const std::string text = text_report(small_document());
  for (const char* part : {"tiny-f16.gguf", "4.200", "* mixed", "0.0225", "pairs acc", "one row was left as it is"})
    EXPECT_THAT(text, HasSubstr(part)) << part;
}

}  // namespace
}  // namespace lumen::model::report
