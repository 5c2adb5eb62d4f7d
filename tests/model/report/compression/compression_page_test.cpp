// needs: none. The page of a compressed model: well formed, nothing beside itself, everything escaped.
#include "model/report/compression/compression_page.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/model/report/compression/compression_case.h"

namespace lumen::model {
namespace {

using testing::HasSubstr;
using testing::Not;

// Every element is closed in its order, attributes are quoted, and no bare < or & stands in texts. Empty when so.
std::string ill_formed(const std::string& html) {
  static const std::set<std::string> kVoid = {"meta", "br", "hr", "img", "link"};
  std::vector<std::string> open;
  size_t at = html.find('>') + 1;  // the document type
  for (;;) {
    const size_t next = html.find('<', at);
    const std::string text = html.substr(at, next == std::string::npos ? next : next - at);
    for (size_t i = text.find('&'); i != std::string::npos; i = text.find('&', i + 1))
      if (text.find(';', i) == std::string::npos || text.find(';', i) > i + 8) return "a bare & in: " + text;
    if (open.empty() || open.back() != "style")
      if (text.find('>') != std::string::npos) return "a bare > in: " + text;
    if (next == std::string::npos) break;
    size_t end = next + 1;
    bool quoted = false;
    while (end < html.size() && (quoted || html[end] != '>')) {
      if (html[end] == '"') quoted = !quoted;
      if (html[end] == '<') return "a < inside " + html.substr(next, 80);
      ++end;
    }
    if (end == html.size()) return "no end of " + html.substr(next, 80);
    const std::string tag = html.substr(next + 1, end - next - 1);
    at = end + 1;
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1))
        return "</" + tag.substr(1) + "> closes " + (open.empty() ? "nothing" : open.back());
      open.pop_back();
      continue;
    }
    const std::string name = tag.substr(0, tag.find_first_of(" \n/"));
    if (tag.back() == '/' || kVoid.contains(name)) continue;
    open.push_back(name);
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

TEST(CompressionPage, ShowsWhatTheDocumentHolds) {
  const std::string html = html_report(small_document());
  EXPECT_EQ(ill_formed(html), "");
  for (const char* part : {"<h1>tiny</h1>",
                           "Size against quality",
                           "KL divergence, nats per token, logarithmic",
                           "bits per weight",
                           "best measured",
                           "predicted front",
                           "chosen by measurement",
                           "mixed, bits per weight 4.2: 0.0225",
                           "two, bits per weight 2.1: 1.5",
                           "Error by layer",
                           "Map of formats",
                           "tensors of no layer",
                           "output.weight",
                           "Weights before and after",
                           "Spikes",
                           "480",
                           "kept at a high precision",
                           "its error is spread evenly",
                           "narrow 400 bytes: 0.004",
                           "calibrate",
                           "1m02s",
                           "one row was left as it is",
                           "the built-in text",
                           "4.2bpw",
                           "3.81 times smaller",
                           "0.0225 \u00b1 0.0005",
                           "93.75 %",
                           "the least possible within the budget",
                           "pairs",
                           "0.6250",
                           "0 to 0.5: 4, before 5"})
    EXPECT_THAT(html, HasSubstr(part)) << part;
  // The map: three layers of two roles, and the output.
  EXPECT_EQ(count(html, "<th scope=\"row\">"), 4U);
  EXPECT_EQ(count(html, "style=\"--bits:8.00\""), 3U);
  EXPECT_EQ(count(html, "style=\"--bits:4.00\""), 4U);
  EXPECT_THAT(html, HasSubstr("title=\"blk.1.ffn_down: wide, 8.000 bits, error 0.08; its error is spread evenly\""));
  EXPECT_EQ(count(html, "<svg"), 4U) << "quality, layers, two histograms";
  EXPECT_EQ(count(html, "aria-label="), 4U);
}

TEST(CompressionPage, NeedsNothingBesideItself) {
  const std::string html = html_report(small_document());
  for (const char* part : {"<script", "http:", "https:", "src=", "@import", "url(", "<link", "onload"})
    EXPECT_THAT(html, Not(HasSubstr(part))) << part;
  EXPECT_THAT(html, HasSubstr("Content-Security-Policy"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(html, HasSubstr("@media print"));
}

TEST(CompressionPage, EverythingIsEscaped) {
  const std::string evil = "<img src=x onerror=alert(1)>\"'&\x1b[31m\u202e";
  CompressionReport r = small_document();
  r.model = r.created = r.text = r.budget = r.device = r.base.name = r.result->name = evil;
  for (auto& p : r.points) p.label = p.strategy = evil;
  for (auto& t : r.tensors) {
    t.name = t.role = t.format = t.strategy = t.reason = evil;
    for (auto& c : t.candidates) c.format = evil;
  }
  for (auto& s : r.spikes) s.name = evil;
  for (auto& t : r.tasks) t.model = t.task = t.figure = evil;
  for (auto& s : r.stages) s.name = evil;
  r.notes = {evil};
  const std::string html = html_report(r);
  EXPECT_EQ(ill_formed(html), "");
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("\x1b")));
  EXPECT_THAT(html, Not(HasSubstr("\u202e")));
  EXPECT_THAT(html, HasSubstr("&lt;img"));
  EXPECT_THAT(text_report(r), Not(HasSubstr("\x1b")));
}

TEST(CompressionPage, DocumentsWithHardlyAnything) {
  CompressionReport r;
  EXPECT_EQ(ill_formed(html_report(r)), "");
  r.points.push_back({"one", "", 100, 0, {}, false});
  EXPECT_EQ(ill_formed(html_report(r)), "");
  r.points[0].quality.ppl = 7;
  std::string html = html_report(r);
  EXPECT_EQ(ill_formed(html), "");
  EXPECT_THAT(html, HasSubstr("GiB")) << "bits are not known";
  EXPECT_THAT(html, HasSubstr("perplexity"));
  // Numbers at the ends of what a document may hold.
  r = small_document();
  r.tensors[0].error = r.tensors[0].weighted_error = 1e300;
  r.tensors[4].histogram = CompressionReport::Histogram{{-1e300, 0, 1e300}, {1e300, 0}, {}};
  r.spikes[0].ratio = 1e300;
  r.result->bytes = 0;
  html = html_report(r);
  EXPECT_EQ(ill_formed(html), "");
  for (const char* part : {"nan", "inf"}) EXPECT_EQ(count(html, std::string("\"") + part), 0U) << part;
}

TEST(CompressionPage, LongListsSayWhatIsLeftOut) {
  CompressionReport r = small_document();
  const auto one = r.tensors[4];
  for (int i = 0; i < 5000; ++i) {
    r.tensors.push_back(one);
    r.tensors.back().layer = i;
  }
  const std::string html = html_report(r);
  EXPECT_EQ(ill_formed(html), "");
  EXPECT_THAT(html, HasSubstr("1007 more tensors are in the document"));
  EXPECT_THAT(html, HasSubstr("4000 layers more are in the document"));
  EXPECT_LT(html.size(), 8U << 20);
}

TEST(CompressionPage, AsText) {
  const std::string text = text_report(small_document());
  for (const char* part : {"4.200", "* mixed", "KL 0.0225", "pairs acc", "one row was left as it is"})
    EXPECT_THAT(text, HasSubstr(part)) << part;
}

}  // namespace
}  // namespace lumen::model
