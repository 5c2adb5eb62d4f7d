// Arithmetic of integers and bits. Meanings: the instruction set documents, "Vector ALU instructions".
#include <algorithm>
#include <bit>

#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

constexpr uint32_t k24 = 0xffffff;
int32_t signed24(uint32_t x) {
  return static_cast<int32_t>(x << 8) >> 8;
}
uint32_t high_product(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}
uint32_t byte_of(uint32_t high, uint32_t low, uint32_t select) {
  const uint64_t data = static_cast<uint64_t>(high) << 32 | low;
  const uint32_t s = select & 0xff;
  if (s >= 13) return 0xff;
  if (s == 12) return 0;
  if (s >= 8) return data >> (16 * (s - 8) + 15) & 1 ? 0xff : 0;
  return static_cast<uint32_t>(data >> (8 * s) & 0xff);
}
// The sum may not wrap where the instruction says `clamp`.
template <class T, class F>
void saturating(Wave& w, const Instruction& i) {
  Column<T> a, b, out;
  fetch(w, i, i.at[1], 0, a), fetch(w, i, i.at[2], 1, b);
  Instruction plain = i;
  plain.clamp = false;
  for (int l = 0; l < w.lanes; ++l) {
    const int64_t x = F{}(static_cast<int64_t>(a[l]), static_cast<int64_t>(b[l]));
    const int64_t low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    out[l] = static_cast<T>(i.clamp ? std::clamp(x, low, high) : x);
  }
  store(w, plain, i.at[0], out);
}
struct Sum {
  int64_t operator()(int64_t a, int64_t b) const { return a + b; }
};
struct Difference {
  int64_t operator()(int64_t a, int64_t b) const { return a - b; }
};
struct Reversed {
  int64_t operator()(int64_t a, int64_t b) const { return b - a; }
};
template <class T, class F>
Operation clamped() {
  return {.run = saturating<T, F>, .types = {type_of<T>()}, .zeroes_high = sizeof(T) == 2, .integer_clamp = true};
}

void add_sums(Operations& t) {
  t["v_add_u32"] = t["v_add_nc_u32"] = clamped<uint32_t, Sum>();
  t["v_sub_u32"] = t["v_sub_nc_u32"] = clamped<uint32_t, Difference>();
  t["v_subrev_u32"] = t["v_subrev_nc_u32"] = clamped<uint32_t, Reversed>();
  t["v_add_i32"] = t["v_add_nc_i32"] = clamped<int32_t, Sum>();
  t["v_sub_i32"] = t["v_sub_nc_i32"] = clamped<int32_t, Difference>();
  t["v_add_u16"] = t["v_add_nc_u16"] = clamped<uint16_t, Sum>();
  t["v_sub_u16"] = t["v_sub_nc_u16"] = clamped<uint16_t, Difference>();
  t["v_subrev_u16"] = clamped<uint16_t, Reversed>();
  t["v_add_i16"] = t["v_add_nc_i16"] = clamped<int16_t, Sum>();
  t["v_sub_i16"] = t["v_sub_nc_i16"] = clamped<int16_t, Difference>();
  t["v_add3_u32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return a + b + c; });
  t["v_lshl_add_u32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a << (b & 31)) + c; });
  t["v_add_lshl_u32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a + b) << (c & 31); });
  t["v_xad_u32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a ^ b) + c; });
  t["v_lshl_add_u64"] = lanes_of([](uint64_t a, uint32_t b, uint64_t c) { return (a << (b & 7)) + c; });
  t["v_lshl_or_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a << (b & 31)) | c; });
  t["v_and_or_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; });
  t["v_or3_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return a | b | c; });
  t["v_xor3_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return a ^ b ^ c; });
  t["v_sad_u32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a > b ? a - b : b - a) + c; });
}

void add_products(Operations& t) {
  t["v_mul_lo_u32"] = lanes_of([](uint32_t a, uint32_t b) { return a * b; });
  t["v_mul_hi_u32"] = lanes_of([](uint32_t a, uint32_t b) { return high_product(a, b); });
  t["v_mul_hi_i32"] =
      lanes_of([](int32_t a, int32_t b) { return static_cast<int32_t>(static_cast<int64_t>(a) * b >> 32); });
  t["v_mul_u32_u24"] = lanes_of([](uint32_t a, uint32_t b) { return (a & k24) * (b & k24); });
  t["v_mul_i32_i24"] = lanes_of(
      [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(static_cast<int64_t>(signed24(a)) * signed24(b)); });
  t["v_mul_hi_u32_u24"] = lanes_of([](uint32_t a, uint32_t b) { return high_product(a & k24, b & k24); });
  t["v_mul_hi_i32_i24"] = lanes_of([](uint32_t a, uint32_t b) {
    return static_cast<int32_t>(static_cast<int64_t>(signed24(a)) * signed24(b) >> 32);
  });
  t["v_mad_u32_u24"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a & k24) * (b & k24) + c; });
  t["v_mad_i32_i24"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) {
    return static_cast<uint32_t>(static_cast<int64_t>(signed24(a)) * signed24(b)) + c;
  });
  t["v_mul_lo_u16"] = lanes_of([](uint16_t a, uint16_t b) { return static_cast<uint16_t>(uint32_t{a} * b); });
  t["v_mul_lo_u16"].zeroes_high = true;
  t["v_mad_u16"] =
      lanes_of([](uint16_t a, uint16_t b, uint16_t c) { return static_cast<uint16_t>(uint32_t{a} * b + c); });
  t["v_mad_i16"] = t["v_mad_u16"];
  t["v_mad_u32_u16"] = lanes_of([](uint16_t a, uint16_t b, uint32_t c) { return uint32_t{a} * b + c; });
  t["v_mad_i32_i16"] = lanes_of([](int16_t a, int16_t b, int32_t c) { return int32_t{a} * b + c; });
}

void add_bits(Operations& t) {
  t["v_and_b32"] = lanes_of([](uint32_t a, uint32_t b) { return a & b; });
  t["v_or_b32"] = lanes_of([](uint32_t a, uint32_t b) { return a | b; });
  t["v_xor_b32"] = lanes_of([](uint32_t a, uint32_t b) { return a ^ b; });
  t["v_xnor_b32"] = lanes_of([](uint32_t a, uint32_t b) { return ~(a ^ b); });
  t["v_not_b32"] = lanes_of([](uint32_t a) { return ~a; });
  t["v_and_b16"] = lanes_of([](uint16_t a, uint16_t b) { return static_cast<uint16_t>(a & b); });
  t["v_or_b16"] = lanes_of([](uint16_t a, uint16_t b) { return static_cast<uint16_t>(a | b); });
  t["v_xor_b16"] = lanes_of([](uint16_t a, uint16_t b) { return static_cast<uint16_t>(a ^ b); });
  t["v_not_b16"] = lanes_of([](uint16_t a) { return static_cast<uint16_t>(~a); });
  t["v_lshlrev_b32"] = lanes_of([](uint32_t a, uint32_t b) { return b << (a & 31); });
  t["v_lshrrev_b32"] = lanes_of([](uint32_t a, uint32_t b) { return b >> (a & 31); });
  t["v_ashrrev_i32"] = lanes_of([](uint32_t a, int32_t b) { return b >> (a & 31); });
  t["v_lshlrev_b64"] = lanes_of([](uint32_t a, uint64_t b) { return b << (a & 63); });
  t["v_lshrrev_b64"] = lanes_of([](uint32_t a, uint64_t b) { return b >> (a & 63); });
  t["v_ashrrev_i64"] = lanes_of([](uint32_t a, int64_t b) { return b >> (a & 63); });
  t["v_lshlrev_b16"] = lanes_of([](uint16_t a, uint16_t b) { return static_cast<uint16_t>(b << (a & 15)); });
  t["v_lshrrev_b16"] = lanes_of([](uint16_t a, uint16_t b) { return static_cast<uint16_t>(b >> (a & 15)); });
  t["v_ashrrev_i16"] = lanes_of([](uint16_t a, int16_t b) { return static_cast<int16_t>(b >> (a & 15)); });
  for (const char* n : {"v_lshlrev_b16", "v_lshrrev_b16", "v_ashrrev_i16"}) t[n].zeroes_high = true;
  t["v_bfe_u32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) {
    return a >> (b & 31) & static_cast<uint32_t>((uint64_t{1} << (c & 31)) - 1);
  });
  t["v_bfe_i32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) {
    // Where the field reaches over the upper end, what lies there is the sign.
    const uint32_t width = c & 31, field = static_cast<uint32_t>(static_cast<int32_t>(a) >> (b & 31));
    return width == 0 ? 0 : static_cast<int32_t>(field << (32 - width)) >> (32 - width);
  });
  t["v_bfi_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) { return (a & b) | (~a & c); });
  t["v_bfm_b32"] = lanes_of([](uint32_t a, uint32_t b) { return ((1U << (a & 31)) - 1) << (b & 31); });
  t["v_bfrev_b32"] = lanes_of([](uint32_t a) {
    uint32_t r = 0;
    for (int k = 0; k < 32; ++k) r |= (a >> k & 1) << (31 - k);
    return r;
  });
  t["v_alignbit_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) {
    return static_cast<uint32_t>((static_cast<uint64_t>(a) << 32 | b) >> (c & 31));
  });
  t["v_alignbyte_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) {
    return static_cast<uint32_t>((static_cast<uint64_t>(a) << 32 | b) >> (8 * (c & 3)));
  });
  t["v_perm_b32"] = lanes_of([](uint32_t a, uint32_t b, uint32_t c) {
    return byte_of(a, b, c) | byte_of(a, b, c >> 8) << 8 | byte_of(a, b, c >> 16) << 16 | byte_of(a, b, c >> 24) << 24;
  });
  t["v_ffbh_u32"] = t["v_clz_i32_u32"] =
      lanes_of([](uint32_t a) { return a == 0 ? -1 : static_cast<int32_t>(std::countl_zero(a)); });
  t["v_ffbl_b32"] = t["v_ctz_i32_b32"] =
      lanes_of([](uint32_t a) { return a == 0 ? -1 : static_cast<int32_t>(std::countr_zero(a)); });
  t["v_ffbh_i32"] = t["v_cls_i32"] = lanes_of([](uint32_t a) {
    const uint32_t x = a >> 31 ? ~a : a;
    return x == 0 ? -1 : static_cast<int32_t>(std::countl_zero(x));
  });
  t["v_bcnt_u32_b32"] = lanes_of([](uint32_t a, uint32_t b) { return static_cast<uint32_t>(std::popcount(a)) + b; });
}

template <class T>
void add_order(Operations& t, const std::string& suffix) {
  const auto name = [&](const char* n) { return std::string("v_") + n + "_" + suffix; };
  t[name("min")] = lanes_of([](T a, T b) { return std::min(a, b); });
  t[name("max")] = lanes_of([](T a, T b) { return std::max(a, b); });
  t[name("min3")] = lanes_of([](T a, T b, T c) { return std::min(std::min(a, b), c); });
  t[name("max3")] = lanes_of([](T a, T b, T c) { return std::max(std::max(a, b), c); });
  t[name("maxmin")] = lanes_of([](T a, T b, T c) { return std::min(std::max(a, b), c); });
  t[name("minmax")] = lanes_of([](T a, T b, T c) { return std::max(std::min(a, b), c); });
  t[name("med3")] = lanes_of([](T a, T b, T c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); });
  if constexpr (sizeof(T) == 2) t[name("min")].zeroes_high = t[name("max")].zeroes_high = true;
}

// A truth table of three bits.
template <class T>
void bitop3(Wave& w, const Instruction& i) {
  Column<T> a, b, c, out;
  fetch(w, i, i.at[1], 0, a), fetch(w, i, i.at[2], 1, b), fetch(w, i, i.at[3], 2, c);
  for (int l = 0; l < w.lanes; ++l) {
    uint32_t r = 0;
    for (unsigned row = 0; row < 8; ++row) {
      if (!(i.number >> row & 1)) continue;
      const uint32_t x = row & 4 ? a[l] : ~a[l], y = row & 2 ? b[l] : ~b[l], z = row & 1 ? c[l] : ~c[l];
      r |= x & y & z;
    }
    out[l] = static_cast<T>(r);
  }
  store(w, i, i.at[0], out);
}

}  // namespace

void add_integer_operations(Operations& t) {
  add_sums(t);
  add_products(t);
  add_bits(t);
  add_order<uint32_t>(t, "u32");
  add_order<int32_t>(t, "i32");
  add_order<uint16_t>(t, "u16");
  add_order<int16_t>(t, "i16");
  t["v_bitop3_b32"] = {.run = bitop3<uint32_t>, .types = {Type::b32}};
  t["v_bitop3_b16"] = {.run = bitop3<uint16_t>, .types = {Type::b16}};
  t["v_mov_b32"] = lanes_of([](uint32_t a) { return a; });
  t["v_mov_b64"] = lanes_of([](uint64_t a) { return a; });
  t["v_mov_b16"] = lanes_of([](uint16_t a) { return a; });
  t["v_accvgpr_read_b32"] = t["v_accvgpr_write_b32"] = t["v_accvgpr_mov_b32"] = t["v_mov_b32"];
}

}  // namespace lumen::amd
