// MFMA, scaled MFMA, WMMA: which lane holds which element, and products with sums. Layouts: AMD's instruction set
// documents of CDNA3, CDNA4, RDNA3 and RDNA4, chapters on matrix instructions. Products of small floats are exact, they
// are summed in double and rounded once; the hardware's order and rounding inside of a sum are not documented.
#include <vector>

#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

enum class Kind : uint8_t { f32, f16, bf16, i8, u8, code };

struct Element {
  Kind kind = Kind::f32;
  FloatCode code = kFp8;  // of Kind::code
  int bits = 32;
};

// One instruction's shape. Lanes: `groups` of them share a row or column, each with a part of k.
struct Shape {
  int rows = 16, columns = 16, k = 16;
  Element a, b;
  bool integer = false;
};
std::vector<Shape>& shapes() {
  static std::vector<Shape> all;
  return all;
}

// Element number `e` of a lane's operand.
double element(const Wave& w, const Operand& o, int lane, int e, const Element& t) {
  if (o.kind != Operand::Kind::vector) fault("a factor that is no vector register");
  const int at = e * t.bits, word = at / 32, shift = at % 32;
  if (word >= o.words) fault("a factor of {} registers, where element {} lies behind them", o.words, e);
  uint64_t bits = (*w.vector)[static_cast<size_t>(o.first + word)][static_cast<size_t>(lane)];
  if (shift + t.bits > 32)
    bits |= static_cast<uint64_t>((*w.vector)[static_cast<size_t>(o.first + word + 1)][static_cast<size_t>(lane)])
            << 32;
  const uint64_t x = bits >> shift & ((uint64_t{1} << t.bits) - 1);
  switch (t.kind) {
    case Kind::f32:
      return std::bit_cast<float>(static_cast<uint32_t>(x));
    case Kind::f16:
      return half_value(static_cast<uint16_t>(x));
    case Kind::bf16:
      return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
    case Kind::i8:
      return static_cast<int8_t>(x);
    case Kind::u8:
      return static_cast<double>(x);
    case Kind::code:
      return decode_float(t.code, static_cast<uint32_t>(x));
  }
  return 0;
}

struct Product {
  std::vector<double> a, b, c;  // [rows, k], [k, columns], [rows, columns]
};

// The sums: `row` and `column` of register r of a lane.
struct SumsOf {
  int rows, columns, registers;
  int (*row)(int lane, int r);
};

void write_sums(Wave& w, const Instruction& i, const Shape& s, const SumsOf& sums, Product& p) {
  const Operand& c = i.at[3];
  const auto at = [&](int l, int r) {
    return static_cast<size_t>(sums.row(l, r)) * static_cast<size_t>(s.columns) + static_cast<size_t>(l % s.columns);
  };
  p.c.assign(static_cast<size_t>(s.rows) * static_cast<size_t>(s.columns), 0);
  for (int r = 0; r < sums.registers; ++r)
    for (int l = 0; l < w.lanes; ++l) {
      uint32_t bits = static_cast<uint32_t>(c.bits);
      if (c.kind == Operand::Kind::vector)
        bits = (*w.vector)[static_cast<size_t>(c.first + r)][static_cast<size_t>(l)];
      else if (c.kind != Operand::Kind::constant)
        fault("sums that are neither registers nor a constant");
      if (c.negative) fault("negative sums");
      p.c[at(l, r)] =
          s.integer ? static_cast<double>(static_cast<int32_t>(bits)) : static_cast<double>(std::bit_cast<float>(bits));
    }
  const auto k = static_cast<size_t>(s.k), columns = static_cast<size_t>(s.columns);
  for (size_t m = 0; m < static_cast<size_t>(s.rows); ++m) {
    double* sum = &p.c[m * columns];
    std::array<double, 32> added{};
    std::array<float, 32> chained{};
    for (size_t n = 0; n < columns; ++n) chained[n] = static_cast<float>(sum[n]);
    for (size_t j = 0; j < k; ++j) {
      const double x = p.a[m * k + j], *y = &p.b[j * columns];
      if (s.a.kind == Kind::f32) {
        for (size_t n = 0; n < columns; ++n)
          chained[n] = std::fma(static_cast<float>(x), static_cast<float>(y[n]), chained[n]);
      } else {
        for (size_t n = 0; n < columns; ++n) added[n] += x * y[n];
      }
    }
    for (size_t n = 0; n < columns; ++n)
      sum[n] = s.a.kind == Kind::f32 ? static_cast<double>(chained[n]) : sum[n] + added[n];
  }
  for (int r = 0; r < sums.registers; ++r)
    for (int l = 0; l < w.lanes; ++l) {
      const double x = p.c[at(l, r)];
      uint32_t bits = 0;
      if (s.integer) {
        const double most = i.clamp && x > 2147483647.0    ? 2147483647.0
                            : i.clamp && x < -2147483648.0 ? -2147483648.0
                                                           : x;
        bits = static_cast<uint32_t>(static_cast<int64_t>(most));
      } else {
        bits = std::bit_cast<uint32_t>(static_cast<float>(x));
        if (x != x) bits = 0x7fc00000;
      }
      (*w.vector)[static_cast<size_t>(i.at[0].first + r)][static_cast<size_t>(l)] = bits;
    }
}

// EXEC is not looked at: all lanes take part.
void require_sums(const Instruction& i, const SumsOf& sums) {
  if (i.at[0].kind != Operand::Kind::vector || i.at[0].words != sums.registers)
    fault("sums of {} registers", i.at[0].words);
}

SumsOf mfma_sums(const Shape& s) {
  if (s.rows == 16) return {16, 16, 4, [](int l, int r) { return 4 * (l / 16) + r; }};
  return {32, 32, 16, [](int l, int r) { return 8 * (r / 4) + 4 * (l / 32) + r % 4; }};
}

// One block: lane l holds row l % rows, and of k the part l / rows.
void mfma(Wave& w, const Instruction& i) {
  const Shape& s = shapes()[i.number];
  if (i.cbsz != 0 || i.abid != 0 || i.blgp != 0) fault("broadcasts within a matrix instruction");
  const SumsOf sums = mfma_sums(s);
  require_sums(i, sums);
  Product p;
  const int share = s.k * s.rows / 64;
  p.a.resize(static_cast<size_t>(s.rows * s.k)), p.b.resize(p.a.size());
  for (int l = 0; l < 64; ++l)
    for (int e = 0; e < share; ++e) {
      const int line = l % s.rows, k = l / s.rows * share + e;
      p.a[static_cast<size_t>(line * s.k + k)] = element(w, i.at[1], l, e, s.a);
      p.b[static_cast<size_t>(k * s.columns + line)] = element(w, i.at[2], l, e, s.b);
    }
  write_sums(w, i, s, sums, p);
}

// V_MFMA_SCALE_F32_*_F8F6F4 and the same without scales: cbsz and blgp name the codes, 32 elements share a scale.
Element coded(int format) {
  switch (format) {
    case 0:
      return {Kind::code, kFp8, 8};
    case 1:
      return {Kind::code, kBf8, 8};
    case 2:
      return {Kind::code, kFp6, 6};
    case 3:
      return {Kind::code, kBf6, 6};
    case 4:
      return {Kind::code, kFp4, 4};
    default:
      fault("codes of kind {}", format);
  }
}
// Codes of 8 bits lie in two runs of 16, the second half of k behind the first; others one behind the other.
int scaled_k(const Shape& s, int bits, int lane, int e) {
  const int group = lane / s.rows;
  if (bits != 8) return group * 32 + e;
  return e / 16 * (s.k / 2) + group * 16 + e % 16;
}
double scale_of(const Wave& w, const Operand& o, int lane, int byte) {
  uint32_t word = static_cast<uint32_t>(o.bits);
  if (o.kind == Operand::Kind::vector) word = (*w.vector)[o.first][static_cast<size_t>(lane)];
  if (o.kind == Operand::Kind::scalar) word = w.scalar[o.first];
  const uint32_t code = word >> (8 * byte) & 0xff;
  return code == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, static_cast<int>(code) - 127);
}
void mfma_scaled(Wave& w, const Instruction& i) {
  Shape s = shapes()[i.number];
  s.a = coded(i.cbsz), s.b = coded(i.blgp);
  const SumsOf sums = mfma_sums(s);
  require_sums(i, sums);
  const bool scales = i.operands > 4;
  Product p;
  p.a.resize(static_cast<size_t>(s.rows * s.k)), p.b.resize(p.a.size());
  for (int side = 0; side < 2; ++side) {
    const Element& t = side == 0 ? s.a : s.b;
    std::vector<double>& to = side == 0 ? p.a : p.b;
    const int byte = (i.op_sel >> side & 1) + 2 * (i.op_sel_hi >> side & 1);
    for (int l = 0; l < 64; ++l)
      for (int e = 0; e < 32; ++e) {
        const int k = scaled_k(s, t.bits, l, e);
        double x = element(w, i.at[static_cast<size_t>(1 + side)], l, e, t);
        // The scale of k's group is in the lane of the same row and of that group's number.
        if (scales) x *= scale_of(w, i.at[static_cast<size_t>(4 + side)], l % s.rows + s.rows * (k / 32), byte);
        to[static_cast<size_t>(side == 0 ? l % s.rows * s.k + k : k * s.columns + l % s.rows)] = x;
      }
  }
  write_sums(w, i, s, sums, p);
}

// RDNA3: lanes 0..15 hold a row of 16 elements, lanes 16..31 the same again; sums of even and odd rows in the halves.
// RDNA4: each half of the lanes holds half of k, and eight neighbouring rows of the sums.
void wmma(Wave& w, const Instruction& i) {
  Shape s = shapes()[i.number];
  if (s.integer) {
    s.a.kind = i.neg_lo & 1 ? Kind::i8 : Kind::u8;
    s.b.kind = i.neg_lo & 2 ? Kind::i8 : Kind::u8;
  } else if (i.neg_lo || i.neg_hi) {
    fault("negative operands");
  }
  const bool third = w.chip.major == 11;
  const SumsOf sums = third ? SumsOf{16, 16, 8, [](int l, int r) { return 2 * r + l / 16; }}
                            : SumsOf{16, 16, 8, [](int l, int r) { return 8 * (l / 16) + r; }};
  require_sums(i, sums);
  Product p;
  p.a.resize(16 * 16), p.b.resize(16 * 16);
  const int share = third ? 16 : 8;
  for (int l = 0; l < 32; ++l)
    for (int e = 0; e < share; ++e) {
      const double a = element(w, i.at[1], l, e, s.a), b = element(w, i.at[2], l, e, s.b);
      const int k = (third ? 0 : l / 16 * 8) + e;
      double &to_a = p.a[static_cast<size_t>(l % 16 * 16 + k)], &to_b = p.b[static_cast<size_t>(k * 16 + l % 16)];
      const auto same = [](double x, double y) { return x == y || (x != x && y != y); };
      if (third && l >= 16 && (!same(to_a, a) || !same(to_b, b)))
        fault("lanes 16 to 31 hold other factors than lanes 0 to 15");
      to_a = a, to_b = b;
    }
  write_sums(w, i, s, sums, p);
}

uint32_t number_of(const Shape& s) {
  shapes().push_back(s);
  return static_cast<uint32_t>(shapes().size() - 1);
}
void add_mfma(Operations& t, const std::string& name, int size, int k, Element e) {
  const bool integer = e.kind == Kind::i8;
  t["v_mfma_" + name] = {
      .run = mfma, .types = {integer ? Type::b32 : Type::f32}, .number = number_of({size, size, k, e, e, integer})};
}

void add_cdna(const Chip& chip, Operations& t) {
  const Element f32{Kind::f32, {}, 32}, f16{Kind::f16, {}, 16}, bf16{Kind::bf16, {}, 16}, i8{Kind::i8, {}, 8};
  for (const int size : {16, 32}) {
    const std::string s = std::to_string(size) + "x" + std::to_string(size) + "x";
    const int k = size == 16 ? 4 : 2;  // of f32
    const auto name = [&](int n) { return s + std::to_string(n); };
    for (const char* gap : {"", "_"}) {
      add_mfma(t, "f32_" + name(k) + gap + "f32", size, k, f32);
      add_mfma(t, "f32_" + name(4 * k) + gap + "f16", size, 4 * k, f16);
      for (const int times : {4, 8}) add_mfma(t, "i32_" + name(times * k) + gap + "i8", size, times * k, i8);
    }
    add_mfma(t, "f32_" + name(4 * k) + "bf16_1k", size, 4 * k, bf16);
    add_mfma(t, "f32_" + name(4 * k) + "_bf16", size, 4 * k, bf16);
    add_mfma(t, "f32_" + name(8 * k) + "_f16", size, 8 * k, f16);
    add_mfma(t, "f32_" + name(8 * k) + "_bf16", size, 8 * k, bf16);
    add_mfma(t, "i32_" + name(16 * k) + "_i8", size, 16 * k, i8);
    for (const bool a : {false, true})
      for (const bool b : {false, true}) {
        const auto code = [&](bool five) {
          return Element{Kind::code, five ? (chip.fnuz ? kBf8Fnuz : kBf8) : (chip.fnuz ? kFp8Fnuz : kFp8), 8};
        };
        const std::string kinds = std::string(a ? "_bf8" : "_fp8") + (b ? "_bf8" : "_fp8");
        t["v_mfma_f32_" + name(8 * k) + kinds] = {
            .run = mfma, .types = {Type::f32}, .number = number_of({size, size, 8 * k, code(a), code(b), false})};
      }
    const uint32_t scaled = number_of({size, size, 32 * k, {}, {}, false});
    t["v_mfma_f32_" + name(32 * k) + "_f8f6f4"] = {.run = mfma_scaled, .types = {Type::f32}, .number = scaled};
    t["v_mfma_scale_f32_" + name(32 * k) + "_f8f6f4"] = {
        .run = mfma_scaled, .types = {Type::f32, Type::b32, Type::b32, Type::f32, Type::b32}, .number = scaled};
  }
}

void add_rdna(Operations& t) {
  const auto add = [&](const std::string& name, Element a, Element b, bool integer) {
    t["v_wmma_" + name] = {.run = wmma,
                           .types = {integer ? Type::b32 : Type::f32},
                           .number = number_of({16, 16, 16, a, b, integer}),
                           .integer_clamp = true};
  };
  const Element f16{Kind::f16, {}, 16}, bf16{Kind::bf16, {}, 16}, i8{Kind::i8, {}, 8};
  add("f32_16x16x16_f16", f16, f16, false);
  add("f32_16x16x16_bf16", bf16, bf16, false);
  add("i32_16x16x16_iu8", i8, i8, true);
  const Element fp8{Kind::code, kFp8, 8}, bf8{Kind::code, kBf8, 8};
  add("f32_16x16x16_fp8_fp8", fp8, fp8, false);
  add("f32_16x16x16_fp8_bf8", fp8, bf8, false);
  add("f32_16x16x16_bf8_fp8", bf8, fp8, false);
  add("f32_16x16x16_bf8_bf8", bf8, bf8, false);
}

}  // namespace

void add_matrix_operations(const Chip& chip, Operations& t) {
  if (chip.cdna()) return add_cdna(chip, t);
  add_rdna(t);
}

}  // namespace lumen::amd
