// needs: none. Studies: the document of a page gives the study back, and what is none of a study is refused by its
// place. How their pages look is tests/cli/pages/report_page_check.py's.
#include "model/report/study.h"

#include <gmock/gmock.h>

#include <functional>

#include "base/error.h"
#include "tests/model/report/page_document.h"

namespace lumen::model::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

Study sample() {
  Study study{"Title", "About.", {{"size", "5", "of 7"}}, {}};
  Series dots{"s", {{1, 2}, {3, 4.5}}, 3};
  dots.labels = {"first", "second"};
  dots.dots = true;
  dots.line = false;
  Chart chart{"curve", "nats", {dots}};
  chart.across = "bits";
  chart.logarithmic = true;
  study.sections.push_back({"Compared", "A text", {{{"what", "n"}, {{"a", "1"}}, 1}}, {chart}});
  study.sections.push_back({"Pictures", "", {}, {}, {{"one", "data:image/png;base64,AA=="}}});
  return study;
}

std::string refusal(const std::function<void(json&)>& spoil) {
  json document = json::parse(study_document(sample()).dump());
  spoil(document);
  try {
    (void)study_of(document, "s.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Study, ThePageHoldsIt) {
  const ordered_json out = document_of(html_page(sample()));
  EXPECT_EQ(out["title"], "Title");
  EXPECT_EQ(out["study"]["tiles"][0]["remark"], "of 7");
  EXPECT_EQ(out["study"]["sections"][0]["tables"][0]["rows"][0][1], "1");
  EXPECT_EQ(out["study"]["sections"][0]["charts"][0]["series"][0]["points"][1][1], 4.5);
  EXPECT_EQ(out["study"]["sections"][1]["pictures"][0]["caption"], "one");
}

TEST(Study, TheDocumentOfAPageGivesItBack) {
  const std::string page = html_page(sample());
  const json document = json::parse(document_of(page).dump());
  EXPECT_TRUE(is_study(document));
  EXPECT_FALSE(is_study(json::object()));
  EXPECT_EQ(html_page(study_of(document, "s.json")), page);
}

TEST(Study, WhatIsNoneIsRefusedByItsPlace) {
  EXPECT_EQ(refusal([](json&) {}), "");
  EXPECT_THAT(refusal([](json& d) { d["study"]["sections"][0]["tables"][0]["rows"][0].push_back("2"); }),
              HasSubstr("s.json: study.sections[0].tables[0]: row 0 has 3 cells, not 2"));
  EXPECT_THAT(refusal([](json& d) { d["study"]["sections"][0]["tables"][0]["rows"][0][1] = 1; }),
              HasSubstr("study.sections[0].tables[0].rows[0].cells[1]: is no text"));
  EXPECT_THAT(refusal([](json& d) { d["study"]["sections"] = "none"; }), HasSubstr("\"sections\" is no list"));
  EXPECT_THAT(refusal([](json& d) { d["study"]["tiles"][0] = 7; }), HasSubstr("tiles[0]"));
  const auto series = [](json& d) -> json& { return d["study"]["sections"][0]["charts"][0]["series"][0]; };
  EXPECT_THAT(refusal([&](json& d) { series(d)["points"][0] = {1}; }), HasSubstr("points[0]: is no pair of numbers"));
  EXPECT_THAT(refusal([&](json& d) { series(d)["color"] = 8; }), HasSubstr("\"color\" is 8, not 0 to 7"));
  EXPECT_THAT(refusal([&](json& d) { series(d)["labels"] = {"one"}; }), HasSubstr("has 1 labels of 2 points"));
}

TEST(Study, AsText) {
  const std::string text = text_page(sample());
  EXPECT_THAT(text, HasSubstr("size: 5 of 7"));
  EXPECT_THAT(text, HasSubstr("what  n\na     1\n"));
}

}  // namespace
}  // namespace lumen::model::report
