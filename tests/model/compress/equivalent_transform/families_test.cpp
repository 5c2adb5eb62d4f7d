// needs: none. Rewrites of every family: which sites it has (sites.txt, which LUMEN_BLESS=1 rewrites), and that each,
// with numbers drawn at random, changes weights and leaves the logits as they are.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/file/file.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"

namespace lumen::model::compress {
namespace {

class RewrittenFamilies : public testing::TestWithParam<std::string> {};

std::vector<double> scales_for(const graph::ScaleSite& site, uint32_t salt) {
  std::vector<double> s;
  for (int64_t i = 0; i < site.free; ++i) s.push_back(std::exp2(4 * drawn(salt, static_cast<uint64_t>(i)) - 2));
  return s;
}

std::string described(const graph::ScaleSite& site) {
  std::string text = fmt::format("{} of {}", site.free, site.powers.size());
  for (const graph::ScaledParameter& c : site.changes)
    if (c.along != graph::Along::columns ||
        std::find(site.readers.begin(), site.readers.end(), c.parameter) == site.readers.end())
      text += fmt::format(" {}{}", c.parameter,
                          c.along == graph::Along::rows      ? ""
                          : c.along == graph::Along::columns ? ":columns"
                                                             : ":elements");
  return site.reason.empty() ? text : text + ": " + site.reason;
}

// "layers.0.wq" -> "wq".
std::string plain(std::string text) {
  for (size_t at = text.find("layers."); at != std::string::npos; at = text.find("layers.", at)) {
    size_t end = at + 7;
    while (end < text.size() && std::isdigit(text[end])) ++end;
    text.erase(at, end + 1 - at);
  }
  return text;
}

// All sites, equal lines of several layers once.
std::string sites_of(const arch::Model& m) {
  const graph::Graph g = transform_graph(m);
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) {
    const std::string one = plain(line);
    if (std::find(lines.begin(), lines.end(), one) == lines.end()) lines.push_back(one);
  };
  for (const auto& s : graph::scale_sites(g)) add(fmt::format("  {} <- {}", fmt::join(s.readers, " "), described(s)));
  for (const auto& s : graph::query_key_sites(g)) add(fmt::format("  queries and keys <- {}", described(s)));
  const auto rotation = [](const graph::RotationSite& r) {
    if (!r.reason.empty()) return "no: " + r.reason;
    return fmt::format("{} of {}, {} parameters{}", r.blocks, r.width, r.changes.size(),
                       r.tied.empty() ? "" : fmt::format(", {} to be untied", fmt::join(r.tied, " ")));
  };
  add("  rotated stream: " + rotation(graph::stream_rotation(g)));
  for (const auto& r : graph::value_rotations(g)) add("  rotated values: " + rotation(r));
  return fmt::format("{}\n{}\n", m.name, fmt::join(lines, "\n"));
}

TEST(RewriteSites, AreTheseForEachFamily) {
  std::string text;
  for (const std::string& name : names_in(kFamilies)) {
    arch::Model m = decoded_model(read_hf(test_library(), kFamilies / name));
    m.name = name;
    text += sites_of(m);
  }
  const auto path = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/compress/equivalent_transform/sites.txt";
  if (std::getenv("LUMEN_BLESS")) std::ofstream(path) << text;
  EXPECT_EQ(read_file(path), text);
}

TEST_P(RewrittenFamilies, ScaledAtEverySite) {
  const arch::Model before = uneven_model(GetParam());
  const std::vector<double> want = logits_of(before);
  const graph::Graph g = transform_graph(before);
  arch::Model all = before;
  uint32_t salt = 100;
  int applied = 0;
  for (const auto& sites : {graph::scale_sites(g), graph::query_key_sites(g)})
    for (const graph::ScaleSite& site : sites) {
      if (site.free == 0) {
        EXPECT_FALSE(site.reason.empty());
        continue;
      }
      const std::vector<double> s = scales_for(site, ++salt);
      apply_scales(all, site, s);
      ++applied;
      if (applied > 6) continue;  // one by one those of the first layer
      arch::Model one = before;
      apply_scales(one, site, s);
      EXPECT_LT(off(logits_of(one), want), kSame) << site.value << " " << described(site);
      EXPECT_GE(changed_weights(one, before).size(), 2U);
      // Without one of the changes it is another model.
      graph::ScaleSite wrong = site;
      wrong.changes.pop_back();
      arch::Model other = before;
      apply_scales(other, wrong, s);
      EXPECT_GT(off(logits_of(other), want), kSame) << site.value << " " << described(site);
    }
  EXPECT_GT(applied, 0);
  EXPECT_LT(off(logits_of(all), want), kSame);
  EXPECT_GE(changed_weights(all, before).size(), 4U);
}

TEST_P(RewrittenFamilies, FoldedAndRotated) {
  const arch::Model before = uneven_model(GetParam());
  const std::vector<double> want = logits_of(before);
  arch::Model m = before;
  (void)untie(m);
  EXPECT_EQ(logits_of(m), want);
  EXPECT_FALSE(untie(m));
  const graph::Graph g = transform_graph(m);
  const std::vector<std::string> folded = fold_norms(m, graph::scale_sites(g));
  EXPECT_LT(off(logits_of(m), want), kSame);
  for (const std::string& name : folded)
    for (const float v : m.weights.at(name).f32()) ASSERT_EQ(v, 1);
  const graph::RotationSite stream = graph::stream_rotation(g);
  if (stream.reason.empty()) {
    EXPECT_TRUE(stream.tied.empty());
    for (const bool hadamard : {false, true}) {
      if (hadamard && !graph::has_hadamard(stream.width)) continue;
      arch::Model turned = m;
      rotate(turned, stream, {{hadamard ? Rotation::hadamard(stream.width, 3) : Rotation::random(stream.width, 3)}});
      EXPECT_LT(off(logits_of(turned), want), kSame);
      EXPECT_GE(changed_weights(turned, m).size(), 6U);
      graph::RotationSite wrong = stream;
      wrong.changes.pop_back();
      arch::Model other = m;
      rotate(other, wrong, {{Rotation::random(stream.width, 3)}});
      EXPECT_GT(off(logits_of(other), want), kOther);
    }
    // Gains that are not folded are refused.
    arch::Model unfolded = before;
    (void)untie(unfolded);
    if (!stream.gains.empty()) {
      EXPECT_THROW(rotate(unfolded, stream, {{Rotation::random(stream.width, 3)}}), Error);
    }
  } else {
    EXPECT_THROW(rotate(m, stream, {{Rotation::random(stream.width, 3)}}), Error);
  }
  int values = 0;
  for (const graph::RotationSite& site : graph::value_rotations(g)) {
    if (!site.reason.empty()) continue;
    std::vector<Rotation> each;
    for (int64_t b = 0; b < site.blocks; ++b)
      each.push_back(Rotation::random(site.width, 10 + static_cast<uint32_t>(b)));
    const bool are_ones = std::all_of(site.gains.begin(), site.gains.end(), [&](const std::string& n) {
      return std::find(folded.begin(), folded.end(), n) != folded.end();
    });
    if (!are_ones) continue;
    const arch::Model was = m;
    rotate(m, site, each);
    EXPECT_GE(changed_weights(m, was).size(), 2U);
    ++values;
  }
  EXPECT_LT(off(logits_of(m), want), kSame) << values << " value rotations";
}

INSTANTIATE_TEST_SUITE_P(All, RewrittenFamilies, testing::ValuesIn(names_in(kFamilies)),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace lumen::model::compress
