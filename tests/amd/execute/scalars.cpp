// Scalar arithmetic with SCC. Meanings: the instruction set documents, "Scalar ALU instructions".
#include "tests/amd/execute/scalars.h"

#include "tests/amd/number/order.h"

namespace lumen::amd {
namespace {

// What SCC becomes.
enum class Flag : uint8_t { keep, nonzero, given };

template <class T>
T source(const Wave& w, const Operand& o) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(scalar64(w, o));
  else
    return std::bit_cast<T>(scalar32(w, o));
}

template <class F>
struct Scalar;
template <class C, class R, class... S>
struct Scalar<R (C::*)(bool&, S...) const> {
  static std::vector<Type> types() { return {type_of<R>(), type_of<S>()...}; }
  template <class F, Flag G, size_t... N>
  static void run(Wave& w, const Instruction& i, std::index_sequence<N...>) {
    bool flag = w.scc;
    const R r = F{}(flag, source<S>(w, i.at[N + 1])...);
    if constexpr (sizeof(R) == 8)
      set_scalar64(w, i.at[0], std::bit_cast<uint64_t>(r));
    else
      set_scalar32(w, i.at[0], std::bit_cast<uint32_t>(r));
    if constexpr (G == Flag::nonzero) w.scc = r != 0;
    if constexpr (G == Flag::given) w.scc = flag;
  }
  template <class F, Flag G>
  static void run(Wave& w, const Instruction& i) {
    run<F, G>(w, i, std::index_sequence_for<S...>());
  }
};
template <Flag G, class F>
Operation of(F) {
  using C = Scalar<decltype(&F::operator())>;
  return {.run = &C::template run<F, G>, .types = C::types()};
}
template <class F>
Operation keeps(F f) {
  return of<Flag::keep>(f);
}
template <class F>
Operation nonzero(F f) {
  return of<Flag::nonzero>(f);
}
template <class F>
Operation flags(F f) {
  return of<Flag::given>(f);
}

// s_cmp: no result but SCC.
template <class T, class F>
void compare(Wave& w, const Instruction& i) {
  w.scc = F{}(source<T>(w, i.at[0]), source<T>(w, i.at[1]));
}
template <class T, class F>
Operation compared(F) {
  return {.run = compare<T, F>, .types = {type_of<T>()}, .results = 0};
}

template <class T>
void add_compare(Operations& t, const std::string& suffix) {
  for (const char* head : {"s_cmp_", "s_cmpk_"}) {
    const auto name = [&](const char* n) { return std::string(head) + n + suffix; };
    t[name("eq")] = compared<T>([](T a, T b) { return a == b; });
    t[name("lg")] = t[name("neq")] = compared<T>([](T a, T b) { return a != b; });
    t[name("gt")] = compared<T>([](T a, T b) { return a > b; });
    t[name("ge")] = compared<T>([](T a, T b) { return a >= b; });
    t[name("lt")] = compared<T>([](T a, T b) { return a < b; });
    t[name("le")] = compared<T>([](T a, T b) { return a <= b; });
  }
}

template <class T>
void add_logic(Operations& t, const std::string& bits) {
  const auto name = [&](const char* n) { return std::string("s_") + n + "_b" + bits; };
  t[name("and")] = nonzero([](bool&, T a, T b) { return static_cast<T>(a & b); });
  t[name("or")] = nonzero([](bool&, T a, T b) { return static_cast<T>(a | b); });
  t[name("xor")] = nonzero([](bool&, T a, T b) { return static_cast<T>(a ^ b); });
  t[name("andn2")] = t[name("and_not1")] = nonzero([](bool&, T a, T b) { return static_cast<T>(a & ~b); });
  t[name("orn2")] = t[name("or_not1")] = nonzero([](bool&, T a, T b) { return static_cast<T>(a | ~b); });
  t[name("nand")] = nonzero([](bool&, T a, T b) { return static_cast<T>(~(a & b)); });
  t[name("nor")] = nonzero([](bool&, T a, T b) { return static_cast<T>(~(a | b)); });
  t[name("xnor")] = nonzero([](bool&, T a, T b) { return static_cast<T>(~(a ^ b)); });
  t[name("not")] = nonzero([](bool&, T a) { return static_cast<T>(~a); });
  t[name("mov")] = keeps([](bool&, T a) { return a; });
  t[name("cselect")] = keeps([](bool& scc, T a, T b) { return scc ? a : b; });
  constexpr uint32_t kMask = sizeof(T) * 8 - 1;
  t[name("lshl")] = nonzero([](bool&, T a, uint32_t b) { return static_cast<T>(a << (b & kMask)); });
  t[name("lshr")] = nonzero([](bool&, T a, uint32_t b) { return static_cast<T>(a >> (b & kMask)); });
  t[name("brev")] = keeps([](bool&, T a) {
    T r = 0;
    for (uint32_t k = 0; k <= kMask; ++k) r |= (a >> k & 1) << (kMask - k);
    return r;
  });
}

template <int N>
void add_shifted_sum(Operations& t) {
  t["s_lshl" + std::to_string(N) + "_add_u32"] = flags([](bool& scc, uint32_t a, uint32_t b) {
    const uint64_t r = (uint64_t{a} << N) + b;
    scc = r >> 32 != 0;
    return static_cast<uint32_t>(r);
  });
}

void add_sums(Operations& t) {
  using U = uint32_t;
  using S = int32_t;
  const auto overflow = [](bool& scc, S a, S b) {
    int32_t r = 0;
    scc = __builtin_add_overflow(a, b, &r);
    return r;
  };
  const auto underflow = [](bool& scc, S a, S b) {
    int32_t r = 0;
    scc = __builtin_sub_overflow(a, b, &r);
    return r;
  };
  t["s_add_u32"] = t["s_add_co_u32"] = flags([](bool& scc, U a, U b) { return scc = a + b < a, a + b; });
  t["s_sub_u32"] = t["s_sub_co_u32"] = flags([](bool& scc, U a, U b) { return scc = b > a, a - b; });
  t["s_addc_u32"] = t["s_add_co_ci_u32"] = flags([](bool& scc, U a, U b) {
    const uint64_t r = uint64_t{a} + b + (scc ? 1 : 0);
    scc = r >> 32 != 0;
    return static_cast<U>(r);
  });
  t["s_subb_u32"] = t["s_sub_co_ci_u32"] = flags([](bool& scc, U a, U b) {
    const uint64_t r = uint64_t{a} - b - (scc ? 1 : 0);
    scc = r >> 32 != 0;
    return static_cast<U>(r);
  });
  t["s_add_i32"] = t["s_add_co_i32"] = flags(overflow);
  t["s_sub_i32"] = t["s_sub_co_i32"] = flags(underflow);
  t["s_addk_i32"] = t["s_addk_co_i32"] = flags(overflow);
  t["s_add_nc_u64"] = t["s_add_u64"] = keeps([](bool&, uint64_t a, uint64_t b) { return a + b; });
  t["s_sub_nc_u64"] = t["s_sub_u64"] = keeps([](bool&, uint64_t a, uint64_t b) { return a - b; });
  t["s_mul_u64"] = keeps([](bool&, uint64_t a, uint64_t b) { return a * b; });
  t["s_mul_i32"] = t["s_mulk_i32"] = keeps([](bool&, U a, U b) { return a * b; });
  t["s_mul_hi_u32"] = keeps([](bool&, U a, U b) { return static_cast<U>(uint64_t{a} * b >> 32); });
  t["s_mul_hi_i32"] = keeps([](bool&, S a, S b) { return static_cast<S>(int64_t{a} * b >> 32); });
  t["s_movk_i32"] = keeps([](bool&, S a) { return a; });
  t["s_min_i32"] = flags([](bool& scc, S a, S b) { return scc = a < b, a < b ? a : b; });
  t["s_max_i32"] = flags([](bool& scc, S a, S b) { return scc = a >= b, a >= b ? a : b; });
  t["s_min_u32"] = flags([](bool& scc, U a, U b) { return scc = a < b, a < b ? a : b; });
  t["s_max_u32"] = flags([](bool& scc, U a, U b) { return scc = a >= b, a >= b ? a : b; });
  t["s_abs_i32"] = nonzero([](bool&, S a) { return a < 0 ? static_cast<S>(0U - static_cast<U>(a)) : a; });
  t["s_absdiff_i32"] = nonzero([](bool&, S a, S b) {
    const U d = static_cast<U>(a) - static_cast<U>(b);
    return static_cast<S>(d >> 31 ? 0U - d : d);  // of the difference as it wrapped
  });
  add_shifted_sum<1>(t);
  add_shifted_sum<2>(t);
  add_shifted_sum<3>(t);
  add_shifted_sum<4>(t);
}

void add_fields(Operations& t) {
  using U = uint32_t;
  t["s_ashr_i32"] = nonzero([](bool&, int32_t a, U b) { return a >> (b & 31); });
  t["s_ashr_i64"] = nonzero([](bool&, int64_t a, U b) { return a >> (b & 63); });
  t["s_bfe_u32"] = nonzero([](bool&, U a, U b) {
    const U width = b >> 16 & 127;
    return width == 0 ? 0 : width >= 32 ? a >> (b & 31) : a >> (b & 31) & ((1U << width) - 1);
  });
  t["s_bfe_i32"] = nonzero([](bool&, int32_t a, U b) {
    const U width = std::min<U>(b >> 16 & 127, 32), low = b & 31;
    if (width == 0) return 0;
    const int64_t wide = static_cast<int64_t>(a) >> low;
    return static_cast<int32_t>(static_cast<int64_t>(static_cast<uint64_t>(wide) << (64 - width)) >> (64 - width));
  });
  t["s_bfe_u64"] = nonzero([](bool&, uint64_t a, U b) {
    const U width = b >> 16 & 127;
    return width == 0 ? 0 : width >= 64 ? a >> (b & 63) : a >> (b & 63) & ((uint64_t{1} << width) - 1);
  });
  t["s_bfm_b32"] = keeps([](bool&, U a, U b) { return ((1U << (a & 31)) - 1) << (b & 31); });
  t["s_bfm_b64"] = keeps([](bool&, U a, U b) { return ((uint64_t{1} << (a & 63)) - 1) << (b & 63); });
  t["s_sext_i32_i8"] = keeps([](bool&, U a) { return static_cast<int32_t>(static_cast<int8_t>(a)); });
  t["s_sext_i32_i16"] = keeps([](bool&, U a) { return static_cast<int32_t>(static_cast<int16_t>(a)); });
  t["s_pack_ll_b32_b16"] = keeps([](bool&, U a, U b) { return (a & 0xffff) | b << 16; });
  t["s_pack_lh_b32_b16"] = keeps([](bool&, U a, U b) { return (a & 0xffff) | (b & 0xffff0000); });
  t["s_pack_hh_b32_b16"] = keeps([](bool&, U a, U b) { return a >> 16 | (b & 0xffff0000); });
  t["s_pack_hl_b32_b16"] = keeps([](bool&, U a, U b) { return a >> 16 | b << 16; });
  t["s_ff1_i32_b32"] = t["s_ctz_i32_b32"] = keeps([](bool&, U a) { return a == 0 ? -1 : std::countr_zero(a); });
  t["s_ff1_i32_b64"] = t["s_ctz_i32_b64"] = keeps([](bool&, uint64_t a) { return a == 0 ? -1 : std::countr_zero(a); });
  t["s_flbit_i32_b32"] = t["s_clz_i32_u32"] = keeps([](bool&, U a) { return a == 0 ? -1 : std::countl_zero(a); });
  t["s_flbit_i32_b64"] = t["s_clz_i32_u64"] =
      keeps([](bool&, uint64_t a) { return a == 0 ? -1 : std::countl_zero(a); });
  t["s_bcnt1_i32_b32"] = nonzero([](bool&, U a) { return std::popcount(a); });
  t["s_bcnt1_i32_b64"] = nonzero([](bool&, uint64_t a) { return std::popcount(a); });
}

// The result's own register takes part.
template <bool kSet, class T>
void set_bit(Wave& w, const Instruction& i) {
  const uint32_t n = scalar32(w, i.at[1]) & (sizeof(T) * 8 - 1);
  const T bit = T{1} << n;
  if constexpr (sizeof(T) == 8) {
    const uint64_t old = scalar64(w, i.at[0]);
    set_scalar64(w, i.at[0], kSet ? old | bit : old & ~bit);
  } else {
    const uint32_t old = scalar32(w, i.at[0]);
    set_scalar32(w, i.at[0], kSet ? old | bit : old & ~bit);
  }
}
void move_if(Wave& w, const Instruction& i) {
  if (!w.scc) return;
  if (i.number == 64) return set_scalar64(w, i.at[0], scalar64(w, i.at[1]));
  set_scalar32(w, i.at[0], scalar32(w, i.at[1]));
}
// s_addk and s_mulk have their own register as source.
template <bool kMultiply>
void with_constant(Wave& w, const Instruction& i) {
  const auto a = static_cast<int32_t>(scalar32(w, i.at[0])),
             b = static_cast<int32_t>(static_cast<int16_t>(i.at[1].bits));
  int32_t r = 0;
  const bool over = kMultiply ? __builtin_mul_overflow(a, b, &r) : __builtin_add_overflow(a, b, &r);
  if (!kMultiply) w.scc = over;
  set_scalar32(w, i.at[0], static_cast<uint32_t>(r));
}
template <class T, class F>
void compare_constant(Wave& w, const Instruction& i) {
  const auto k = static_cast<uint16_t>(i.at[1].bits);
  const T b = std::is_signed_v<T> ? static_cast<T>(static_cast<int16_t>(k)) : static_cast<T>(k);
  w.scc = F{}(source<T>(w, i.at[0]), b);
}
void move_constant(Wave& w, const Instruction& i) {
  set_scalar32(w, i.at[0], static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(i.at[1].bits))));
}

// EXEC and a mask; the old EXEC is kept. `number`: what is done.
enum : uint32_t { kAnd, kOr, kXor, kAndNot1, kOrNot1, kNand, kNor, kXnor, kAndNot0, kOrNot0 };
void save_exec(Wave& w, const Instruction& i) {
  const bool wide = i.at[0].words == 2;
  const uint64_t old = wide ? w.wide(kExec) : w.scalar[kExec], s = wide ? scalar64(w, i.at[1]) : scalar32(w, i.at[1]);
  uint64_t r = 0;
  switch (i.number) {
    case kAnd:
      r = s & old;
      break;
    case kOr:
      r = s | old;
      break;
    case kXor:
      r = s ^ old;
      break;
    case kAndNot1:
      r = s & ~old;
      break;
    case kOrNot1:
      r = s | ~old;
      break;
    case kNand:
      r = ~(s & old);
      break;
    case kNor:
      r = ~(s | old);
      break;
    case kXnor:
      r = ~(s ^ old);
      break;
    case kAndNot0:
      r = ~s & old;
      break;
    default:
      r = ~s | old;
      break;
  }
  if (!wide) r = static_cast<uint32_t>(r);
  if (wide) {
    set_scalar64(w, i.at[0], old);
    w.set_wide(kExec, r);
  } else {
    set_scalar32(w, i.at[0], static_cast<uint32_t>(old));
    w.scalar[kExec] = static_cast<uint32_t>(r);
  }
  w.scc = r != 0;
}
void add_save_exec(Operations& t) {
  const std::pair<const char*, uint32_t> names[] = {
      {"and", kAnd},          {"or", kOr},          {"xor", kXor},          {"andn2", kAndNot1}, {"orn2", kOrNot1},
      {"nand", kNand},        {"nor", kNor},        {"xnor", kXnor},        {"andn1", kAndNot0}, {"orn1", kOrNot0},
      {"and_not1", kAndNot1}, {"or_not1", kOrNot1}, {"and_not0", kAndNot0}, {"or_not0", kOrNot0}};
  for (const auto& [name, number] : names)
    for (const char* bits : {"_saveexec_b32", "_saveexec_b64"})
      t[std::string("s_") + name + bits] = {.run = save_exec, .types = {Type::b64}, .number = number};
}

void add_with_constants(Operations& t) {
  const auto add = [&](const char* name, Run run, bool accumulates = true) {
    t[name] = {.run = run, .types = {Type::b32}, .accumulates = accumulates};
  };
  add("s_addk_i32", with_constant<false>);
  add("s_addk_co_i32", with_constant<false>);
  add("s_mulk_i32", with_constant<true>);
  add("s_movk_i32", move_constant, false);
  add("s_bitset0_b32", set_bit<false, uint32_t>);
  add("s_bitset1_b32", set_bit<true, uint32_t>);
  add("s_bitset0_b64", set_bit<false, uint64_t>);
  add("s_bitset1_b64", set_bit<true, uint64_t>);
  t["s_cmov_b32"] = {.run = move_if, .types = {Type::b32}, .accumulates = true, .number = 32};
  t["s_cmov_b64"] = {.run = move_if, .types = {Type::b64}, .accumulates = true, .number = 64};
  t["s_bitcmp0_b32"] = compared<uint32_t>([](uint32_t a, uint32_t b) { return (a >> (b & 31) & 1) == 0; });
  t["s_bitcmp1_b32"] = compared<uint32_t>([](uint32_t a, uint32_t b) { return (a >> (b & 31) & 1) == 1; });
  const auto all = [&]<class T>(const std::string& suffix, T) {
    const auto put = [&](const char* n, auto f) {
      t[std::string("s_cmpk_") + n + suffix] = {
          .run = compare_constant<T, decltype(f)>, .types = {Type::b32}, .results = 0};
    };
    put("eq", [](T a, T b) { return a == b; });
    put("lg", [](T a, T b) { return a != b; });
    put("gt", [](T a, T b) { return a > b; });
    put("ge", [](T a, T b) { return a >= b; });
    put("lt", [](T a, T b) { return a < b; });
    put("le", [](T a, T b) { return a <= b; });
  };
  all("_i32", int32_t{});
  all("_u32", uint32_t{});
}

}  // namespace

void add_scalar_operations(Operations& t) {
  add_logic<uint32_t>(t, "32");
  add_logic<uint64_t>(t, "64");
  add_sums(t);
  add_fields(t);
  add_save_exec(t);
  add_compare<int32_t>(t, "_i32");
  add_compare<uint32_t>(t, "_u32");
  add_compare<uint64_t>(t, "_u64");
  add_with_constants(t);
}

void add_scalar_floats(Operations& t) {
  using F = float;
  t["s_add_f32"] = keeps([](bool&, F a, F b) { return made(a + b, a, b); });
  t["s_sub_f32"] = keeps([](bool&, F a, F b) { return made(a - b, a, b); });
  t["s_mul_f32"] = keeps([](bool&, F a, F b) { return made(a * b, a, b); });
  t["s_fmaak_f32"] = t["s_fmamk_f32"] = keeps([](bool&, F a, F b, F c) { return made(std::fma(a, b, c), a, b, c); });
  t["s_fmac_f32"] = {.run =
                         [](Wave& w, const Instruction& i) {
                           const auto f = [&](int n) {
                             return std::bit_cast<float>(scalar32(w, i.at[static_cast<size_t>(n)]));
                           };
                           const float r = made(std::fma(f(1), f(2), f(0)), f(0), f(1), f(2));
                           set_scalar32(w, i.at[0], std::bit_cast<uint32_t>(r));
                         },
                     .types = {Type::f32},
                     .accumulates = true};
  t["s_min_f32"] = keeps([](bool&, F a, F b) { return least(a, b); });
  t["s_max_f32"] = keeps([](bool&, F a, F b) { return most(a, b); });
  t["s_min_num_f32"] = keeps([](bool&, F a, F b) { return least_number(a, b); });
  t["s_max_num_f32"] = keeps([](bool&, F a, F b) { return most_number(a, b); });
  t["v_s_sqrt_f32"] = keeps([](bool&, F a) { return made(std::sqrt(a), a); });
  t["s_trunc_f32"] = keeps([](bool&, F a) { return std::trunc(a); });
  t["s_floor_f32"] = keeps([](bool&, F a) { return std::floor(a); });
  t["s_ceil_f32"] = keeps([](bool&, F a) { return std::ceil(a); });
  t["s_rndne_f32"] = keeps([](bool&, F a) { return std::nearbyint(a); });
  t["s_cvt_f32_i32"] = keeps([](bool&, int32_t a) { return static_cast<F>(a); });
  t["s_cvt_f32_u32"] = keeps([](bool&, uint32_t a) { return static_cast<F>(a); });
  t["s_cvt_i32_f32"] = keeps([](bool&, F a) {
    return a != a ? 0 : a >= 2147483648.0F ? INT32_MAX : a <= -2147483648.0F ? INT32_MIN : static_cast<int32_t>(a);
  });
  t["s_cvt_u32_f32"] = keeps([](bool&, F a) {
    return a != a || a <= 0 ? 0U : a >= 4294967296.0F ? UINT32_MAX : static_cast<uint32_t>(a);
  });
  t["s_cvt_f32_f16"] = keeps([](bool&, uint32_t a) { return half_value(static_cast<uint16_t>(a)); });
  t["s_cvt_hi_f32_f16"] = keeps([](bool&, uint32_t a) { return half_value(static_cast<uint16_t>(a >> 16)); });
  t["s_cvt_f16_f32"] = keeps([](bool&, F a) { return uint32_t{half_bits(a)}; });
  const auto c = [&](const char* n, auto f) { t[std::string("s_cmp_") + n + "_f32"] = compared<float>(f); };
  c("lt", [](F a, F b) { return a < b; });
  c("eq", [](F a, F b) { return a == b; });
  c("le", [](F a, F b) { return a <= b; });
  c("gt", [](F a, F b) { return a > b; });
  c("lg", [](F a, F b) { return a < b || a > b; });
  c("ge", [](F a, F b) { return a >= b; });
  c("o", [](F a, F b) { return a == a && b == b; });
  c("u", [](F a, F b) { return a != a || b != b; });
  c("nge", [](F a, F b) { return !(a >= b); });
  c("nlg", [](F a, F b) { return !(a < b || a > b); });
  c("ngt", [](F a, F b) { return !(a > b); });
  c("nle", [](F a, F b) { return !(a <= b); });
  c("neq", [](F a, F b) { return !(a == b); });
  c("nlt", [](F a, F b) { return !(a < b); });
}

}  // namespace lumen::amd
