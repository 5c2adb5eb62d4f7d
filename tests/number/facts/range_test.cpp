// Needs none. Interval analysis: what it proves holds for every bit pattern.
#include "number/facts/range.h"

#include <gtest/gtest.h>

#include "number/facts/facts.h"
#include "number/facts/straight.h"
#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

using read::Range;

// The range of decode's result over all codes, by analysis and by trying them all.
struct Bounds {
  Range proved, seen;
};

Bounds bounds_of(const std::string& expression) {
  const FormatRef f = format_of(
      "table t : i8 = [5, -3, 100, 7]\nformat x : block 8 {\na : u4\nb : i3\nq : u8[8]\ndecode(i) = " + expression +
      "\n}");
  const auto e = straight_line(f->decode);
  read::RangeAnalysis analysis(f->fields, f->tables);
  analysis.variables = {Range{0, 7}};
  Bounds result{analysis.of(*e), {}};
  for (int i = 0; i < 8; ++i) {
    for (int a = 0; a < 16; ++a) {
      for (int b = -4; b < 4; ++b) {
        const auto v = evaluate_expression(*f, *e, {ScalarValue{0, i}}, [&](int slot, int64_t) {
          return slot == 0 ? a : slot == 1 ? b : 37.0 * i;
        });
        result.seen = read::join(result.seen, {v.real, v.real});
      }
    }
  }
  return result;
}

TEST(Range, HoldsEveryValue) {
  for (const char* e : {"a + b",
                        "a - 2 * b",
                        "a * b",
                        "a / 3 + b / 2",
                        "(a - 7) % 5",
                        "(b * 3) % 4",
                        "a & 6",
                        "a | 16",
                        "a ^ b",
                        "a << 2",
                        "b >> 1",
                        "(b + 4) << (a & 3)",
                        "abs(b)",
                        "min(a, b) + max(a, b)",
                        "if a > 3 then b else a",
                        "t[a & 3]",
                        "t[(i + a) % 4]",
                        "int(0.5 * a)",
                        "rint(b / 2.0)",
                        "floor(-0.3 * a)",
                        "popcount(a)",
                        "sign(b)",
                        "-a",
                        "~a",
                        "i / 2 - i % 3",
                        "1000 * a * b"}) {
    const Bounds b = bounds_of(e);
    EXPECT_LE(b.proved.low, b.seen.low) << e;
    EXPECT_GE(b.proved.high, b.seen.high) << e;
  }
}

TEST(Range, IsSharpWhereCodesAreMade) {
  for (const char* e : {"a + b", "a - 8", "a * b", "abs(b)", "t[a & 3]", "2 * a - 15", "(a & 3) - 4", "a << 2",
                        "if a > 3 then 10 else -10"}) {
    const Bounds b = bounds_of(e);
    EXPECT_EQ(b.proved, b.seen) << e;
  }
}

TEST(Range, VariablesThroughLoops) {
  // A counter that only a loop bounds, and one that grows without a bound that could be proved.
  EXPECT_EQ(refusal_of("format x : block 8 {\nq : u8[8]\ndecode(i) {\nvar k = 0\nfor j in 0..8 { if q[j] > 3 { k = j } "
                       "}\nreturn q[k] * 1.0\n}\n}"),
            "");
  EXPECT_NE(refusal_of("format x : block 8 {\nq : u8[8]\ndecode(i) {\nvar k = 0\nfor j in 0..8 { k = k + q[j] "
                       "}\nreturn q[k] * 1.0\n}\n}"),
            "");
  EXPECT_EQ(refusal_of("format x : block 8 {\nq : u8[8]\ndecode(i) {\nvar k = 0\nfor j in 0..8 { k = k + q[j] "
                       "}\nreturn q[clamp(k, 0, 7)] * 1.0\n}\n}"),
            "");
}

}  // namespace
}  // namespace lumen
