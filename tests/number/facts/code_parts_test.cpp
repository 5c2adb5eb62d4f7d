// Needs: none. Codes in parts beside the codes as formats say them: the same f32, bit for bit, at the edges of f32 and
// for every scale that a power of two can be.
#include "number/facts/code_parts.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "number/facts/straight.h"
#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

std::vector<float> edges() {
  std::vector<float> out;
  for (const uint32_t exponent : {0U, 1U, 2U, 22U, 23U, 24U, 100U, 126U, 127U, 128U, 200U, 253U, 254U, 255U})
    for (const uint32_t mantissa : {0U, 1U, 2U, 3U, 0x3fffffU, 0x400000U, 0x400001U, 0x7ffffeU, 0x7fffffU})
      for (const uint32_t sign : {0U, 1U}) out.push_back(std::bit_cast<float>(sign << 31 | exponent << 23 | mantissa));
  std::mt19937 random(7);
  for (int k = 0; k < 100; ++k) out.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return out;
}

float number(double x) {
  return static_cast<float>(x);
}

// NaN is NaN, whatever its bits.
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

TEST(CodeParts, GiveTheSameNumbers) {
  const std::vector<float> numbers = edges();
  int reciprocals = 0;
  for (const FormatRef& f : builtin_formats().all()) {
    const auto byte = byte_code(*f);
    if (!byte || byte->fields.empty() || !is_float(byte->code->type)) continue;
    SCOPED_TRACE(f->name);
    const CodeParts in_parts = code_parts(*f, *byte);
    for (const int field : byte->fields) {
      const FieldType& t = f->fields[field].type;
      reciprocals += t.special == FieldType::Special::scale;
      for (int k = 0; k < (t.bits == 8 ? 256 : std::ssize(numbers)); ++k) {
        const double scale = t.bits == 8 ? field_decode(t, k) : numbers[k];
        const auto stored = [&](int, int64_t) { return scale; };
        std::vector<ScalarValue> variables = {{0, 0}};
        for (const RoutineExpr& part : in_parts.parts)
          variables.push_back(evaluate_expression(*f, part, variables, stored));
        for (const float v : numbers) {
          variables[0] = {v, 0};
          const float expected = number(evaluate_expression(*f, *byte->code, variables, stored).real);
          const float found = number(evaluate_expression(*f, *in_parts.code, variables, stored).real);
          ASSERT_TRUE(same(expected, found)) << v << " under " << scale << ": " << found << ", not " << expected;
        }
      }
    }
  }
  EXPECT_GE(reciprocals, 3);
}

// What follows from fields is computed apart: nothing is left but the number and parts.
TEST(CodeParts, FieldsAreReadByPartsAlone) {
  const FormatRef f = builtin_formats().get("fp8_row_p2");
  const CodeParts in_parts = code_parts(*f, *byte_code(*f));
  ASSERT_EQ(in_parts.parts.size(), 1U);
  EXPECT_EQ(level_of(*f, in_parts.parts[0]), Level::row);
  const std::function<void(const RoutineExpr&)> check = [&](const RoutineExpr& e) {
    EXPECT_NE(e.kind, RoutineExpr::Kind::field);
    if (e.kind == RoutineExpr::Kind::op) {
      EXPECT_NE(e.op, ScalarOp::div_);
    }
    for (const RoutineExpr& a : e.args) check(a);
  };
  check(*in_parts.code);
}

}  // namespace
}  // namespace lumen
