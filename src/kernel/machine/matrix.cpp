// Meanings of matrix rows: one element of the product, from a row of each factor.
// Proved by tests/kernel/machine/machine_matrix_test.cpp.
#include "kernel/machine/machine.h"
#include "kernel/machine/meaning.h"
#include "number/facts/facts.h"

namespace lumen::machine {
namespace {

// Codes of an 8-bit float, as f32: every one of them is exact.
int decoded(Meaning& t, int codes, int lanes, const FloatCode& c) {
  const std::string i32 = lanes_of(Scalar::i32, lanes), f32 = lanes_of(Scalar::f32, lanes),
                    truth = lanes_of(Scalar::boolean, lanes);
  const auto number = [&](int64_t x) { return t.line("constant {} {}", i32, x); };
  const int bits = t.line("cast {} %{}", i32, codes);
  const int sign = t.line("and {} %{}, %{}", i32, bits, number(int64_t{1} << (c.exponent + c.mantissa)));
  const int magnitude = t.line("and {} %{}, %{}", i32, bits, number((int64_t{1} << (c.exponent + c.mantissa)) - 1));
  const int exponent = t.line("shr {} %{}, %{}", i32, magnitude, number(c.mantissa));
  const int fraction = t.line("and {} %{}, %{}", i32, magnitude, number((int64_t{1} << c.mantissa) - 1));
  const int subnormal = t.line("eq {} %{}, %{}", truth, exponent, number(0));
  const int whole = t.line("add {} %{}, %{}", i32, fraction, number(int64_t{1} << c.mantissa));
  const int steps = t.line("select {} %{}, %{}, %{}", i32, subnormal, fraction, whole);
  const int least = t.line("select {} %{}, %{}, %{}", i32, subnormal, number(1), exponent);
  const int power = t.line("sub {} %{}, %{}", i32, least, number(c.bias + c.mantissa));
  const int size = t.line("ldexp {} %{}, %{}", f32, t.line("cast {} %{}", f32, steps), power);
  const int negative = t.line("ne {} %{}, %{}", truth, sign, number(0));
  int value = t.line("select {} %{}, %{}, %{}", f32, negative, t.line("neg {} %{}", f32, size), size);
  const auto becomes = [&](int where, const char* special) {
    value = t.line("select {} %{}, %{}, %{}", f32, where, t.line("constant {} {}", f32, special), value);
  };
  const int64_t top = (int64_t{1} << c.exponent) - 1, ones = (int64_t{1} << (c.exponent + c.mantissa)) - 1;
  if (c.special == FloatCode::Special::all_ones)
    becomes(t.line("eq {} %{}, %{}", truth, magnitude, number(ones)), "nan");
  if (c.special == FloatCode::Special::negative_zero)
    becomes(t.line("eq {} %{}, %{}", truth, bits, number(ones + 1)), "nan");
  if (c.special == FloatCode::Special::ieee) {
    const int highest = t.line("eq {} %{}, %{}", truth, exponent, number(top));
    const int infinite = t.line("eq {} %{}, %{}", truth, magnitude, number(top << c.mantissa));
    const int plus = t.line("constant {} inf", f32), minus = t.line("constant {} -inf", f32);
    const int infinity = t.line("select {} %{}, %{}, %{}", f32, negative, minus, plus);
    const int special = t.line("select {} %{}, %{}, %{}", f32, infinite, infinity, t.line("constant {} nan", f32));
    value = t.line("select {} %{}, %{}, %{}", f32, highest, special, value);
  }
  return value;
}

// Codes of f32 numbers: to nearest, ties to even; saturating, infinities too; NaN is all ones, without a sign.
int rounded(Meaning& t, int values, int lanes, const FloatCode& c) {
  const std::string u32 = lanes_of(Scalar::u32, lanes), f32 = lanes_of(Scalar::f32, lanes),
                    truth = lanes_of(Scalar::boolean, lanes);
  const auto number = [&](int64_t x) { return t.line("constant {} {}", u32, x); };
  const int drop = 23 - c.mantissa, size = c.exponent + c.mantissa;
  const int64_t ones = (int64_t{1} << size) - 1;
  const int64_t top = c.special == FloatCode::Special::ieee ? (((int64_t{1} << c.exponent) - 1) << c.mantissa) - 1
                                                            : ones - (c.special == FloatCode::Special::all_ones);
  const int64_t rebias = int64_t{127 - c.bias} << c.mantissa;
  const int bits = t.line("bitcast {} %{}", u32, values);
  const int magnitude = t.line("and {} %{}, %{}", u32, bits, number(0x7fffffff));
  const int inside = t.line("min {} %{}, %{}", u32, magnitude, number((top + rebias) << drop));
  const int odd = t.line("and {} %{}, %{}", u32, t.line("shr {} %{}, %{}", u32, inside, number(drop)), number(1));
  const int half = t.line("add {} %{}, %{}", u32, odd, number((int64_t{1} << (drop - 1)) - 1));
  const int kept = t.line("shr {} %{}, %{}", u32, t.line("add {} %{}, %{}", u32, inside, half), number(drop));
  const int normal = t.line("sub {} %{}, %{}", u32, kept, number(rebias));
  // Below the smallest normal number, codes are evenly spaced.
  const std::string i32 = lanes_of(Scalar::i32, lanes);
  const int up = t.line("constant {} {}", i32, c.bias - 1 + c.mantissa);
  const int steps = t.line("ldexp {} %{}, %{}", f32, t.line("bitcast {} %{}", f32, inside), up);
  const int even = t.line("cast {} %{}", u32, t.line("rint {} %{}", f32, steps));
  const int is_small = t.line("lt {} %{}, %{}", truth, inside, number(int64_t{128 - c.bias} << 23));
  int code = t.line("select {} %{}, %{}, %{}", u32, is_small, even, normal);
  const int sign = t.line("shr {} %{}, %{}", u32, bits, number(31));
  code = t.line("or {} %{}, %{}", u32, code, t.line("shl {} %{}, %{}", u32, sign, number(size)));
  const int is_nan = t.line("lt {} %{}, %{}", truth, number(0x7f800000), magnitude);
  code = t.line("select {} %{}, %{}, %{}", u32, is_nan, number(ones), code);
  return t.line("cast {} %{}", lanes_of(Scalar::u8, lanes), code);
}

}  // namespace

std::string matrix_meaning(const MatrixRow& r) {
  const int scales = r.scale_group > 0 ? r.k / r.scale_group : 0;
  std::vector<loop::VType> operands{{r.acc, 1}, {r.a.scalar, r.k}, {r.b.scalar, r.k}};
  if (scales > 0) operands.insert(operands.end(), 2, {Scalar::u8, scales});
  Meaning t(operands);
  const std::string acc(scalar_name(r.acc)), wide = lanes_of(r.acc, r.k);
  const auto factor = [&](int value, const Factor& f) {
    return f.code ? decoded(t, value, r.k, *f.code) : t.line("cast {} %{}", wide, value);
  };
  const int a = factor(1, r.a), b = factor(2, r.b);
  std::vector<int> scaled;  // exponent of each group's scale
  for (int g = 0; g < scales; ++g) {
    const auto power = [&](int value) {
      const int code = scales == 1 ? value : t.line("extract u8 %{} lane {}", value, g);
      return t.line("sub i32 %{}, %{}", t.line("cast i32 %{}", code), t.line("constant i32 127"));
    };
    scaled.push_back(t.line("add i32 %{}, %{}", power(3), power(4)));
  }
  int sum = 0;
  for (int k = 0; k < r.k; ++k) {
    int x = t.line("extract {} %{} lane {}", acc, a, k);
    const int y = t.line("extract {} %{} lane {}", acc, b, k);
    if (scales > 0) x = t.line("ldexp f32 %{}, %{}", x, scaled[k / r.scale_group]);
    sum = is_float(r.acc) ? t.line("fma {} %{}, %{}, %{}", acc, x, y, sum)
                          : t.line("add {} %{}, %{}", acc, sum, t.line("mul {} %{}, %{}", acc, x, y));
  }
  return t.function(r.row, {r.acc, 1}, sum);
}

loop::VType operand_type(const MatrixRow& r, size_t i) {
  const loop::Collective& c = *r.collective;
  const loop::Fragment& f = c.operands[i].fragment;
  if (i == 0) return {r.acc, f.lane_bits / 32};
  const Factor& factor = c.operands[i].side == loop::Collective::Side::a ? r.a : r.b;
  if (i > 2 || factor.code) return {Scalar::u8, f.lane_bits / 8};
  return {factor.scalar, f.lane_bits / scalar_bits(factor.scalar)};
}

std::optional<FloatCode> code_of(const FieldType& t) {
  using Special = FloatCode::Special;
  if (!t.is_float || !t.has_sign || t.bits != 8) return {};
  const auto spelled = [&](Special special) { return FloatCode{t.exponent_bits, t.mantissa_bits, t.bias, special}; };
  switch (t.special) {
    case FieldType::Special::ieee:
      return spelled(Special::ieee);
    case FieldType::Special::fn:
      return spelled(Special::all_ones);
    case FieldType::Special::fnuz:
      return spelled(Special::negative_zero);
    case FieldType::Special::finite:
      return spelled(Special::none);
    case FieldType::Special::scale:
      break;
  }
  return {};
}

std::optional<FloatCode> code_of(const Format& f) {
  const FieldType* t = plain_field(f);
  return t ? code_of(*t) : std::nullopt;
}

std::string code_name(const FloatCode& c) {
  return fmt::format("e{}m{}{}", c.exponent, c.mantissa, c.special == FloatCode::Special::negative_zero ? "u" : "");
}

std::string factor_name(const Factor& f) {
  return f.code ? code_name(*f.code) : std::string(scalar_name(f.scalar));
}

std::string matrix_name(const MatrixRow& r) {
  return fmt::format("{}.{}x{}x{}.{}{}.{}{}{}{}{}", r.in_shared ? "product" : "mma", r.m, r.n, r.k, factor_name(r.a),
                     factor_name(r.b), scalar_name(r.acc), r.scale_group > 0 ? ".scaled" : "",
                     r.a_in_registers ? ".a_in_registers" : "", r.a_transposed ? ".a_transposed" : "",
                     r.b_transposed ? ".b_transposed" : "");
}

void add_shortcuts(Machine& m, const std::string& power2, const std::string& reciprocal) {
  m.power2 = "power2.f32";
  m.reciprocal = "reciprocal.f32";
  m.rows.push_back({m.power2,
                    "func power2.f32(%0: f32) -> f32 {\n  %1 = constant f32 2\n  %2 = pow f32 %1, %0\n  return %2\n}\n",
                    power2, "", 8});
  m.rows.push_back(
      {m.reciprocal,
       "func reciprocal.f32(%0: f32) -> f32 {\n  %1 = constant f32 1\n  %2 = div f32 %1, %0\n  return %2\n}\n",
       reciprocal, "", 8});
  m.rows.push_back({"greatest.f32",
                    "func greatest.f32(%0: f32, %1: f32) -> f32 {\n  %2 = max f32 %0, %1\n  return %2\n}\n",
                    "llvm.maxnum", "", 1, "0 1"});
}

std::string conversion_name(const FloatCode& c, Scalar to, int lanes) {
  return fmt::format("convert.{}.{}x{}", code_name(c), scalar_name(to), lanes);
}

void add_conversion(Machine& m, const FloatCode& c, Scalar to, const std::string& llvm, const std::string& arguments) {
  for (const int lanes : {2, 4, 8, 16}) {
    Meaning t({{Scalar::u8, lanes}});
    int numbers = decoded(t, 0, lanes, c);
    if (to != Scalar::f32) numbers = t.line("cast {}x{} %{}", scalar_name(to), lanes, numbers);
    const std::string name = conversion_name(c, to, lanes);
    m.rows.push_back({name, t.function(name, {to, lanes}, numbers), llvm, "", lanes / 2.0, arguments});
  }
}

std::string rounding_name(const FloatCode& c, int lanes) {
  return fmt::format("round.f32.{}x{}", code_name(c), lanes);
}

void add_rounding(Machine& m, const FloatCode& c, const std::string& llvm, const std::string& arguments) {
  for (const int lanes : {2, 4, 8, 16}) {
    Meaning t({{Scalar::f32, lanes}});
    const int codes = rounded(t, 0, lanes, c);
    const std::string name = rounding_name(c, lanes);
    m.rows.push_back({name, t.function(name, {Scalar::u8, lanes}, codes), llvm, "", lanes / 2.0, arguments});
  }
}

DotRow dot4(Scalar a, int lanes) {
  return {.row = fmt::format("dot4.{}i8.{}", scalar_name(a), lanes_of(Scalar::i32, lanes)),
          .a = a,
          .lanes = lanes,
          .a_max = a == Scalar::u8 ? 255 : 128};
}

void add_dot(Machine& m, const DotRow& d, const std::string& llvm, const std::string& needs, double cycles,
             const std::string& arguments) {
  m.rows.push_back({d.row, dot_meaning(d.row, d), llvm, needs, cycles, arguments});
  m.dots.insert(m.dots.begin(), d);
}

void add_dot4(Machine& m, Scalar a, const std::string& llvm, const std::string& arguments) {
  add_dot(m, dot4(a, 4), llvm, "", 4, arguments);
  const DotRow one = dot4(a, 1);  // for dots that accumulate one after the other
  m.rows.push_back({one.row, dot_meaning(one.row, one), llvm, "", 1, arguments});
}

std::shared_ptr<const loop::Collective> collective(int lanes, loop::Fragment acc, loop::Fragment a, loop::Fragment b) {
  using Side = loop::Collective::Side;
  loop::Collective c{lanes, acc.rows, acc.columns, {}};
  c.operands = {{Side::acc, std::move(acc)}, {Side::a, std::move(a)}, {Side::b, std::move(b)}};
  return std::make_shared<const loop::Collective>(std::move(c));
}

// The meaning is the identity on a lane's words: the load only distributes memory as the fragment describes.
void add_matrix_load(Machine& m, std::string row, bool transposed, loop::Fragment fragment, std::string llvm) {
  const int words = fragment.lane_bits / 32;
  Meaning t({{Scalar::u32, words}});
  m.rows.push_back({row, t.function(row, {Scalar::u32, words}, 0), std::move(llvm), "", 4});
  loop::Collective c{fragment.rows, fragment.rows, fragment.columns, {}};
  c.operands = {{loop::Collective::Side::acc, std::move(fragment)}};
  m.loads.push_back({std::move(row), transposed, std::make_shared<const loop::Collective>(std::move(c))});
}

void add_matrix(Machine& m, MatrixRow row, std::string llvm, double cycles, std::string arguments) {
  row.row = matrix_name(row);
  m.rows.push_back({row.row, matrix_meaning(row), std::move(llvm), "", cycles, std::move(arguments)});
  m.matrices.push_back(std::move(row));
}

}  // namespace lumen::machine
