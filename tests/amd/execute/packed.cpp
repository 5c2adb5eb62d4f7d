// Instructions on two halves at once, mixed products of halves and f32, dot products: op_sel and op_sel_hi say which
// half of a source goes to which half of the result.
#include <algorithm>

#include "tests/amd/execute/table.h"
#include "tests/amd/number/order.h"

namespace lumen::amd {
namespace {

// Halves of a source for the low and the high result.
void fetch_halves(const Wave& w, const Instruction& i, int source, Column<uint16_t>* low, Column<uint16_t>* high) {
  const Operand& o = i.at[static_cast<size_t>(source) + 1];
  Column<uint32_t> words;
  raw_words(w, i, o, source, 0, &words);
  const int from_low = i.op_sel >> source & 1 ? 16 : 0, from_high = i.op_sel_hi >> source & 1 ? 16 : 0;
  const uint16_t flip_low = i.neg_lo >> source & 1 ? 0x8000 : 0, flip_high = i.neg_hi >> source & 1 ? 0x8000 : 0;
  for (int l = 0; l < w.lanes; ++l) {
    (*low)[l] = static_cast<uint16_t>(words[l] >> from_low) ^ flip_low;
    (*high)[l] = static_cast<uint16_t>(words[l] >> from_high) ^ flip_high;
  }
}

template <class F, int N>
void packed16(Wave& w, const Instruction& i) {
  Column<uint16_t> low[3], high[3];
  for (int s = 0; s < N; ++s) fetch_halves(w, i, s, &low[s], &high[s]);
  Column<uint32_t> out;
  const F f{};
  for (int l = 0; l < w.lanes; ++l) {
    const uint16_t a = f(low[0][l], low[1][l], low[2][l]), b = f(high[0][l], high[1][l], high[2][l]);
    out[l] = a | uint32_t{b} << 16;
  }
  store_words(w, i, i.at[0], 0, out);
}
template <int N, class F>
Operation of_halves(F, Type type = Type::pkf16) {
  return {.run = packed16<F, N>, .types = {type}};
}
double number(uint16_t x) {
  return static_cast<double>(half_value(x));
}

template <class F, int N>
void packed32(Wave& w, const Instruction& i) {
  Column<float> low[3], high[3];
  for (int s = 0; s < N; ++s) {
    const Operand& o = i.at[static_cast<size_t>(s) + 1];
    const int from[2] = {i.op_sel >> s & 1, i.op_sel_hi >> s & 1};
    if (o.kind == Operand::Kind::constant && (from[0] || from[1])) fault("the upper half of a constant");
    Column<uint32_t> words;
    for (int half = 0; half < 2; ++half) {
      raw_words(w, i, o, s, from[half], &words);
      const uint32_t flip = (half == 0 ? i.neg_lo : i.neg_hi) >> s & 1 ? 0x80000000 : 0;
      Column<float>& to = half == 0 ? low[s] : high[s];
      for (int l = 0; l < w.lanes; ++l) to[l] = std::bit_cast<float>(words[l] ^ flip);
    }
  }
  const F f{};
  Column<float> out[2];
  for (int l = 0; l < w.lanes; ++l) {
    out[0][l] = f(low[0][l], low[1][l], low[2][l]);
    out[1][l] = f(high[0][l], high[1][l], high[2][l]);
  }
  for (int half = 0; half < 2; ++half) {
    Column<uint32_t> words;
    for (int l = 0; l < w.lanes; ++l) words[l] = std::bit_cast<uint32_t>(modified(out[half][l], i));
    store_words(w, i, i.at[0], half, words);
  }
}
template <int N, class F>
Operation of_floats(F) {
  return {.run = packed32<F, N>, .types = {Type::pk32}};
}

void packed_move(Wave& w, const Instruction& i) {
  Column<uint32_t> low, high;
  raw_words(w, i, i.at[1], 0, i.op_sel & 1, &low);
  raw_words(w, i, i.at[2], 1, i.op_sel >> 1 & 1, &high);
  store_words(w, i, i.at[0], 0, low);
  store_words(w, i, i.at[0], 1, high);
}

// V_FMA_MIX: each source is f32, or the half that op_sel says where op_sel_hi is set. `number`: 0 f32, 1 low, 2 high
// half.
void mixed(Wave& w, const Instruction& i) {
  Column<float> in[3];
  for (int s = 0; s < 3; ++s) {
    const Operand& o = i.at[static_cast<size_t>(s) + 1];
    Column<uint32_t> words;
    raw_words(w, i, o, s, 0, &words);
    const bool half = i.op_sel_hi >> s & 1;
    for (int l = 0; l < w.lanes; ++l) {
      float x = half ? half_value(static_cast<uint16_t>(words[l] >> (i.op_sel >> s & 1 ? 16 : 0)))
                     : std::bit_cast<float>(words[l]);
      if (o.absolute || i.neg_hi >> s & 1) x = std::fabs(x);
      if (o.negative != ((i.neg_lo >> s & 1) != 0)) x = -x;
      in[s][l] = x;
    }
  }
  Column<float> out;
  for (int l = 0; l < w.lanes; ++l) out[l] = made(std::fma(in[0][l], in[1][l], in[2][l]), in[0][l], in[1][l], in[2][l]);
  if (i.number == 0) return store(w, i, i.at[0], out);
  Column<uint32_t> old;
  raw_words(w, i, i.at[0], -1, 0, &old);
  for (int l = 0; l < w.lanes; ++l) {
    const uint32_t h = half_bits(i.clamp ? modified(out[l], i) : out[l]);
    old[l] = i.number == 1 ? (old[l] & 0xffff0000) | h : (old[l] & 0xffff) | h << 16;
  }
  store_words(w, i, i.at[0], 0, old);
}

// `number`: bit 0 and 1 the signs of the factors; 4: of neg_lo instead; 8: the sum is the result's old value.
void dot4(Wave& w, const Instruction& i) {
  Column<uint32_t> a, b, c, out;
  raw_words(w, i, i.at[1], 0, 0, &a);
  raw_words(w, i, i.at[2], 1, 0, &b);
  raw_words(w, i, i.number & 8 ? i.at[0] : i.at[3], i.number & 8 ? -1 : 2, 0, &c);
  const unsigned signs = i.number & 4 ? i.neg_lo : i.number;
  const bool any = signs & 3;
  const auto value = [](uint32_t word, int k, bool sign) {
    const uint32_t x = word >> (8 * k) & 0xff;
    return sign ? static_cast<int64_t>(static_cast<int8_t>(x)) : static_cast<int64_t>(x);
  };
  for (int l = 0; l < w.lanes; ++l) {
    int64_t sum = any ? static_cast<int64_t>(static_cast<int32_t>(c[l])) : static_cast<int64_t>(c[l]);
    for (int k = 0; k < 4; ++k) sum += value(a[l], k, signs & 1) * value(b[l], k, signs & 2);
    if (i.clamp && any) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
    if (i.clamp && !any) sum = std::clamp<int64_t>(sum, 0, UINT32_MAX);
    out[l] = static_cast<uint32_t>(sum);
  }
  store_words(w, i, i.at[0], 0, out);
}

void dot2(Wave& w, const Instruction& i) {
  Column<uint16_t> al, ah, bl, bh;
  fetch_halves(w, i, 0, &al, &ah), fetch_halves(w, i, 1, &bl, &bh);
  Column<float> c;
  if (i.number & 1) {
    fetch(w, i, i.at[0], -1, c);
  } else {
    fetch(w, i, i.at[3], 2, c);
  }
  const bool bf16 = i.number & 2;
  const auto value = [&](uint16_t x) { return bf16 ? decode_float(kBf16, x) : number(x); };
  for (int l = 0; l < w.lanes; ++l)
    c[l] = static_cast<float>(value(al[l]) * value(bl[l]) + value(ah[l]) * value(bh[l]) + static_cast<double>(c[l]));
  store(w, i, i.at[0], c);
}

}  // namespace

void add_packed(Operations& t) {
  using H = uint16_t;
  t["v_pk_add_f16"] = of_halves<2>([](H a, H b, H) { return half_bits(number(a) + number(b)); });
  t["v_pk_mul_f16"] = of_halves<2>([](H a, H b, H) { return half_bits(number(a) * number(b)); });
  t["v_pk_fma_f16"] = of_halves<3>([](H a, H b, H c) { return half_bits(std::fma(number(a), number(b), number(c))); });
  t["v_pk_min_f16"] = of_halves<2>([](H a, H b, H) { return least(Half{a}, Half{b}).bits; });
  t["v_pk_max_f16"] = of_halves<2>([](H a, H b, H) { return most(Half{a}, Half{b}).bits; });
  t["v_pk_min_num_f16"] = of_halves<2>([](H a, H b, H) { return least_number(Half{a}, Half{b}).bits; });
  t["v_pk_max_num_f16"] = of_halves<2>([](H a, H b, H) { return most_number(Half{a}, Half{b}).bits; });
  const Type pk = Type::pk16;
  t["v_pk_add_u16"] = t["v_pk_add_i16"] = of_halves<2>([](H a, H b, H) { return static_cast<H>(a + b); }, pk);
  t["v_pk_sub_u16"] = t["v_pk_sub_i16"] = of_halves<2>([](H a, H b, H) { return static_cast<H>(a - b); }, pk);
  t["v_pk_mul_lo_u16"] = of_halves<2>([](H a, H b, H) { return static_cast<H>(uint32_t{a} * b); }, pk);
  t["v_pk_mad_u16"] = t["v_pk_mad_i16"] =
      of_halves<3>([](H a, H b, H c) { return static_cast<H>(uint32_t{a} * b + c); }, pk);
  t["v_pk_lshlrev_b16"] = of_halves<2>([](H a, H b, H) { return static_cast<H>(b << (a & 15)); }, pk);
  t["v_pk_lshrrev_b16"] = of_halves<2>([](H a, H b, H) { return static_cast<H>(b >> (a & 15)); }, pk);
  t["v_pk_ashrrev_i16"] =
      of_halves<2>([](H a, H b, H) { return static_cast<H>(static_cast<int16_t>(b) >> (a & 15)); }, pk);
  t["v_pk_min_u16"] = of_halves<2>([](H a, H b, H) { return std::min(a, b); }, pk);
  t["v_pk_max_u16"] = of_halves<2>([](H a, H b, H) { return std::max(a, b); }, pk);
  t["v_pk_min_i16"] = of_halves<2>(
      [](H a, H b, H) { return static_cast<H>(std::min(static_cast<int16_t>(a), static_cast<int16_t>(b))); }, pk);
  t["v_pk_max_i16"] = of_halves<2>(
      [](H a, H b, H) { return static_cast<H>(std::max(static_cast<int16_t>(a), static_cast<int16_t>(b))); }, pk);
  t["v_pk_add_f32"] = of_floats<2>([](float a, float b, float) { return made(a + b, a, b); });
  t["v_pk_mul_f32"] = of_floats<2>([](float a, float b, float) { return made(a * b, a, b); });
  t["v_pk_fma_f32"] = of_floats<3>([](float a, float b, float c) { return made(std::fma(a, b, c), a, b, c); });
  t["v_pk_mov_b32"] = {.run = packed_move, .types = {Type::b64}};
  const std::vector<Type> mix{Type::f32};
  t["v_fma_mix_f32"] = {.run = mixed, .types = mix};
  t["v_fma_mixlo_f16"] = {.run = mixed, .types = mix, .accumulates = true, .number = 1};
  t["v_fma_mixhi_f16"] = {.run = mixed, .types = mix, .accumulates = true, .number = 2};
  const std::vector<Type> words{Type::b32};
  t["v_dot4_i32_i8"] = {.run = dot4, .types = words, .number = 3, .integer_clamp = true};
  t["v_dot4_u32_u8"] = {.run = dot4, .types = words, .number = 0, .integer_clamp = true};
  t["v_dot4_i32_iu8"] = {.run = dot4, .types = words, .number = 4, .integer_clamp = true};
  t["v_dot4c_i32_i8"] = {.run = dot4, .types = words, .accumulates = true, .number = 3 | 8, .integer_clamp = true};
  const std::vector<Type> dot{Type::f32, Type::pkf16, Type::pkf16, Type::f32};
  t["v_dot2_f32_f16"] = {.run = dot2, .types = dot};
  t["v_dot2_f32_bf16"] = {.run = dot2, .types = dot, .number = 2};
  t["v_dot2c_f32_f16"] = t["v_dot2acc_f32_f16"] = {.run = dot2, .types = dot, .accumulates = true, .number = 1};
  t["v_dot2c_f32_bf16"] = {.run = dot2, .types = dot, .accumulates = true, .number = 3};
}

}  // namespace lumen::amd
