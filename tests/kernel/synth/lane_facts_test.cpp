// Needs: none. What lanes of a routine have in common.
#include "kernel/synth/unpack/lane_facts.h"

#include "lang/parser.h"
#include "number/library/library.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

FormatRef format_with(const std::string& fit) {
  FormatLibrary library = FormatLibrary::builtin();
  library.add(lang::parse_file(std::make_shared<Source>(
      Source{"test.lum",
             "fn from(x, o) {\n  var sum = 0.0\n  for j in 0..4 { sum = sum + x[o + j] }\n  return sum\n}\n"
             "format tried : block 8 {\n  d : f16\n  q : i8[8]\n  decode(i) = d * q[i]\n  fit(x) {\n" +
                 fit + "  }\n  code(v) = clamp(rint(v), -3, 3)\n}\n"})));
  return library.get("tried");
}

struct Facts {
  synth::LaneFacts all;
  std::map<std::string, size_t> slots;  // the last of each name

  bool uniform(const std::string& name) const { return all.uniform[slots.at(name)]; }
  int depth(const std::string& name) const { return all.depth[slots.at(name)]; }
};

Facts facts_of(const std::string& fit, const std::vector<std::string>& kept = {}) {
  const FormatRef f = format_with(fit);
  const Routine& r = *f->fit[0];
  Facts out;
  for (size_t k = 0; k < r.variables.size(); ++k) out.slots[r.variables[k].name] = k;
  std::vector<int> slots;
  for (const std::string& name : kept) slots.push_back(static_cast<int>(out.slots.at(name)));
  out.all = synth::lane_facts(r, {}, slots);
  return out;
}

TEST(LaneFacts, WhatCountersAndNumbersGiveIsUniform) {
  const Facts f = facts_of(R"(
    var most = 0.0
    for b in 0..2 {
      var at = 4 * b
      let step = if b == 0 then 0.5 else 0.25
      for j in 0..4 { most = max(most, step * x[at + j]) }
    }
    d = most
)");
  EXPECT_TRUE(f.uniform("b"));
  EXPECT_TRUE(f.uniform("at"));
  EXPECT_TRUE(f.uniform("step"));
  EXPECT_FALSE(f.uniform("most"));
}

// The place from which a function reads, which is a variable of its own where it is not known, is loaded whole.
TEST(LaneFacts, ArgumentsOfFunctionsAreUniform) {
  const Facts f = facts_of("    for b in 0..2 { d = from(x, 4 * b) }\n");
  EXPECT_TRUE(f.uniform("o"));
  EXPECT_FALSE(f.uniform("sum"));
}

TEST(LaneFacts, WhatSomeLanesSetIsNotUniform) {
  const Facts f = facts_of(R"(
    var chosen = 1
    var other = 2
    if x[0] > 0 { chosen = 3 }
    if x[1] > 0 {
      var own = 4
      if x[2] > 0 { own = 5 }
      let mine = 2 * chosen
      let ours = other + 1
      d = own * mine * ours
    }
)");
  EXPECT_FALSE(f.uniform("chosen"));
  EXPECT_FALSE(f.uniform("own"));
  EXPECT_FALSE(f.uniform("mine")) << "it depends on what lanes differ in";
  EXPECT_TRUE(f.uniform("other"));
  EXPECT_TRUE(f.uniform("ours")) << "lanes that do not set it never read it";
  EXPECT_EQ(f.depth("chosen"), 0);
  EXPECT_EQ(f.depth("own"), 1);
}

TEST(LaneFacts, ArraysAreKnownWhereTheyAreWrittenFirst) {
  const std::string text = R"(
    var whole[8]
    var part[8]
    var early[8]
    var all[8]
    for j in 0..8 { all[j] = x[j] }
    for t in 0..3 {
      if x[t] > 0 {
        var sum = 0.0
        for j in 0..4 { part[j] = x[j] }
        for j in 0..8 {
          if j > 3 { early[j] = x[j] }
          sum = sum + early[j]
          whole[j] = 2 * x[j]
          sum = sum + whole[j]
        }
        d = sum + whole[7] + part[5] + all[0]
      }
    }
)";
  const Facts f = facts_of(text);
  EXPECT_EQ(f.depth("whole"), 1);
  EXPECT_EQ(f.depth("part"), 0) << "entries behind the fourth are zero";
  EXPECT_EQ(f.depth("early"), 0) << "not every round writes all";
  EXPECT_EQ(f.depth("all"), 0);
  EXPECT_EQ(f.depth("sum"), 1);
  EXPECT_EQ(facts_of(text, {"whole"}).depth("whole"), 0) << "somebody else reads it";
}

// Lanes that take different ways, and arrays that some of them leave as they were: the codec's bytes.
TEST(LaneFacts, KernelsGiveTheCodecsBytes) {
  const FormatRef f = format_with(R"(
    var kept[8]
    var worst = 0.0
    for j in 0..8 { kept[j] = 0.0 }
    for t in 0..4 {
      if x[t] > 0 {
        var l[8]
        var sum = 0.0
        for j in 0..8 {
          l[j] = rint(x[j] * (t + 1))
          sum = sum + l[j] + kept[7 - j]
        }
        if sum > worst {
          worst = sum
          for j in 0..8 { kept[j] = l[j] }
        }
        for j in 0..8 { if j <= t { kept[j] = kept[j] + 0.5 } }
      }
    }
    d = worst + kept[3]
)");
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  for (const char* name : {"x86-64-v3", "avx512"}) {
    const auto m = machine::find_machine(name);
    const int64_t rows = 5, columns = 8 * 19;
    std::vector<float> x(rows * columns);
    for (float& v : x) v = normal(random);
    const Blob want = encode(*f, x, rows, columns);
    Blob from(x.size() * 4), got(want.size(), 0xcd);
    std::memcpy(from.data(), x.data(), from.size());
    const synth::Synthesis s = synth::synthesize_encode(*f, rows, columns, *m);
    ASSERT_EQ(s.steps.size(), 1u);
    std::vector<std::span<uint8_t>> buffers = {from, got};
    EXPECT_EQ(loop_evaluator(*m)(s.steps[0].kernel, buffers).code, 0);
    size_t at = 0;
    while (at < want.size() && want[at] == got[at]) ++at;
    EXPECT_EQ(at, want.size()) << name << ": byte " << at;
  }
}

}  // namespace
}  // namespace lumen::test
