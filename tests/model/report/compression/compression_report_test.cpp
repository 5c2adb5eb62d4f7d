// needs: none. The document: what is written is read; what is no document is refused with its place.
#include "model/report/compression/compression_report.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "tests/model/report/compression/compression_case.h"

namespace lumen::model::report {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    (void)parse_compression_report(text, "r.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user) << text;
    return e.what();
  }
  return "accepted";
}

std::string changed(const std::function<void(json&)>& change) {
  json document = to_json(small_document());
  change(document);
  return refusal(document.dump());
}

TEST(CompressionReport, IsReadAsWritten) {
  const CompressionReport r = small_document();
  const std::string text = compression_json(r);
  const CompressionReport again = parse_compression_report(text, "r.json");
  EXPECT_EQ(compression_json(again), text);
  EXPECT_EQ(again.tensors.size(), 7U);
  EXPECT_EQ(again.tensors[4].histogram->after, (std::vector<double>{4, 4, 2}));
  EXPECT_EQ(again.tensors[6].layer, -1);
  EXPECT_EQ(again.result->quality.kl, 0.0225);
  EXPECT_FALSE(again.base.quality.kl);
  EXPECT_TRUE(again.points[2].chosen);
  EXPECT_EQ(again.proved, true);
  EXPECT_EQ(again.spikes[1].ratio, 480);
  // Hardly anything.
  CompressionReport few;
  EXPECT_EQ(compression_json(parse_compression_report(compression_json(few), "r.json")), compression_json(few));
}

TEST(CompressionReport, TextsThatAreNoUtf8AreMended) {
  CompressionReport r = small_document();
  r.model = "a\xff b";
  EXPECT_NO_THROW((void)parse_compression_report(compression_json(r), "r.json"));
}

TEST(CompressionReport, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_THAT(refusal("[]"), HasSubstr("r.json is no object"));
  EXPECT_THAT(refusal("{"), HasSubstr("r.json"));
  EXPECT_THAT(refusal("{}"), HasSubstr("has no 'lumen_compression'"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("r.json"));
  EXPECT_THAT(changed([](json& d) { d["lumen_compression"] = 2; }), HasSubstr("version 2"));
  EXPECT_THAT(changed([](json& d) { d["extra"] = 1; }), HasSubstr("has 'extra', which is no part of the form"));
  EXPECT_THAT(changed([](json& d) { d["base"]["bytes"] = -1; }), HasSubstr("r.json.base.bytes is -1"));
  EXPECT_THAT(changed([](json& d) { d["base"]["bytes"] = 1.5; }), HasSubstr("no whole number"));
  EXPECT_THAT(changed([](json& d) { d["base"]["bytes"] = "x"; }), HasSubstr("r.json.base.bytes is no number"));
  EXPECT_THAT(changed([](json& d) { d["base"]["bits"] = 1e300; }), HasSubstr("r.json.base.bits"));
  EXPECT_THAT(changed([](json& d) { d.erase("base"); }), HasSubstr("has no 'base'"));
  EXPECT_THAT(changed([](json& d) { d["model"] = std::string(5000, 'x'); }), HasSubstr("r.json.model has 5000 bytes"));
  EXPECT_THAT(changed([](json& d) { d["points"][1]["kl"] = "nan"; }), HasSubstr("r.json.points[1].kl is no number"));
  EXPECT_THAT(changed([](json& d) { d["points"][1]["same_top"] = 1.5; }), HasSubstr("same_top"));
  EXPECT_THAT(changed([](json& d) { d["points"] = 3; }), HasSubstr("r.json.points is no list"));
  EXPECT_THAT(changed([](json& d) { d["tensors"][4]["histogram"]["edges"] = {0, 1}; }), HasSubstr("one edge more"));
  EXPECT_THAT(changed([](json& d) { d["tensors"][4]["histogram"]["edges"] = {0, 1, 1, 2}; }), HasSubstr("do not rise"));
  EXPECT_THAT(changed([](json& d) { d["tensors"][4]["histogram"]["before"][0] = -1; }), HasSubstr("before is -1"));
  EXPECT_THAT(changed([](json& d) { d["tensors"][0]["candidates"][1].erase("score"); }),
              HasSubstr("r.json.tensors[0].candidates[1] has no 'score'"));
  EXPECT_THAT(changed([](json& d) { d["tensors"][0]["layer"] = 1e9; }), HasSubstr("layer"));
  EXPECT_THAT(changed([](json& d) { d["spikes"][0]["kept"] = 1; }), HasSubstr("is neither true nor false"));
  EXPECT_THAT(changed([](json& d) { d["stages"][0]["seconds"] = -5; }), HasSubstr("seconds"));
  EXPECT_THAT(changed([](json& d) { d["notes"][0] = 5; }), HasSubstr("r.json.notes[0]"));
  EXPECT_THAT(changed([](json& d) { d["notes"] = json(std::vector<std::string>(20000, "x")); }),
              HasSubstr("20000 elements"));
}

// No byte of a document that changes makes anything but an Error or a document.
TEST(CompressionReport, ChangedBytes) {
  const std::string text = compression_json(small_document());
  std::mt19937 random(1);
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string wrong = text;
    for (int k = 0; k < 1 + i % 3; ++k) wrong[random() % wrong.size()] = "0123456789-e.\"{}[],:nx\xff"[random() % 24];
    try {
      const CompressionReport r = parse_compression_report(wrong, "r.json");
      EXPECT_FALSE(html_report(r).empty());
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(CompressionReport, HistogramsLeaveOutliersToTheEnds) {
  std::vector<float> before, after;
  for (int i = 0; i < 4000; ++i) before.push_back(i % 2000 / 1000.0F - 1);
  after = before;
  before[7] = -1000;
  before[9] = 1000;
  after[11] = 1000;
  const CompressionReport::Histogram h = histogram_of(before, after);
  ASSERT_EQ(h.edges.size(), h.before.size() + 1);
  EXPECT_NEAR(h.edges.front(), -1, 0.01);
  EXPECT_NEAR(h.edges.back(), 1, 0.01);
  double sum = 0, moved = 0;
  for (size_t i = 0; i < h.before.size(); ++i) {
    sum += h.before[i];
    moved += std::abs(h.before[i] - h.after[i]);
  }
  EXPECT_EQ(sum, 4000);
  EXPECT_LE(moved, 6);
  // One number alone has a width all the same.
  const std::vector<float> same(5, 2);
  EXPECT_GT(histogram_of(same, same).edges.back(), 2);
}

}  // namespace
}  // namespace lumen::model::report
