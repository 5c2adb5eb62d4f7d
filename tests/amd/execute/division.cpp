// The steps of a division, and the classes of floats. Where the documents' text and a right quotient differ, the
// quotient decides (docs/guide/amd.md).
#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

template <class F>
int exponent_of(F x) {
  if constexpr (sizeof(F) == 4) {
    return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff);
  } else {
    return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff);
  }
}
template <class F>
constexpr int kScale = sizeof(F) == 4 ? 64 : 128;
template <class F>
constexpr int kFar = sizeof(F) == 4 ? 96 : 768;
template <class F>
constexpr int kTiny = sizeof(F) == 4 ? 23 : 53;
template <class F>
constexpr int kBias = sizeof(F) == 4 ? 127 : 1023;

template <class F>
bool tiny(F x) {
  return std::fpclassify(x) == FP_SUBNORMAL;
}

// `s0` is the denominator s1 or the numerator s2; the result is scaled so that the steps behind stay in range.
template <class F>
F scaled(F s0, F s1, F s2, bool* vcc) {
  *vcc = false;
  if (s1 == 0 || s2 == 0) return std::numeric_limits<F>::quiet_NaN();
  // A quotient that is no normal number, as the documents' DENORM.
  const F quotient = s2 / s1, reciprocal = F{1} / s1;
  const bool quotient_tiny = tiny(quotient) || (quotient == 0 && std::isfinite(s1));
  if (exponent_of(s2) - exponent_of(s1) >= kFar<F>) {
    *vcc = true;
    return s0 == s1 ? std::ldexp(s0, kScale<F>) : s0;
  }
  if (tiny(s1)) return std::ldexp(s0, kScale<F>);
  if (tiny(reciprocal) && quotient_tiny) {
    *vcc = true;
    return s0 == s1 ? std::ldexp(s0, -kScale<F>) : s0;
  }
  if (tiny(reciprocal)) return std::ldexp(s0, -kScale<F>);
  if (quotient_tiny) {
    *vcc = true;
    return s0 == s2 ? std::ldexp(s0, kScale<F>) : s0;
  }
  if (exponent_of(s2) <= kTiny<F>) return std::ldexp(s0, kScale<F>);
  return s0;
}

template <class F>
void div_scale(Wave& w, const Instruction& i) {
  Column<F> a, b, c, out;
  fetch(w, i, i.at[2], 0, a), fetch(w, i, i.at[3], 1, b), fetch(w, i, i.at[4], 2, c);
  uint64_t bits = 0;
  const uint64_t exec = w.exec();
  for (int l = 0; l < w.lanes; ++l) {
    bool vcc = false;
    out[l] = scaled(a[l], b[l], c[l], &vcc);
    if (vcc && exec >> l & 1) bits |= uint64_t{1} << l;
  }
  store(w, i, i.at[0], out);
  w.set_mask(i.at[1].first, bits);
}

template <class F>
void div_fmas(Wave& w, const Instruction& i) {
  Column<F> a, b, c, out;
  fetch(w, i, i.at[1], 0, a), fetch(w, i, i.at[2], 1, b), fetch(w, i, i.at[3], 2, c);
  const uint64_t vcc = w.mask(kVcc);
  for (int l = 0; l < w.lanes; ++l) {
    if (vcc >> l & 1) {
      const int by = exponent_of(c[l]) > kBias<F> ? kScale<F> : -kScale<F>;
      // Scaled and rounded once: what is added below is exact in twice the bits for f32.
      if constexpr (sizeof(F) == 4) {
        const double product = static_cast<double>(a[l]) * b[l];
        out[l] = static_cast<float>(std::ldexp(product + c[l], by));
      } else {
        out[l] = std::ldexp(std::fma(a[l], b[l], c[l]), by);
      }
    } else {
      out[l] = made(std::fma(a[l], b[l], c[l]), a[l], b[l], c[l]);
    }
  }
  store(w, i, i.at[0], out);
}

template <class F>
F fixed_up(F q, F d, F n) {
  const F infinity = std::numeric_limits<F>::infinity();
  const bool negative = std::signbit(d) != std::signbit(n);
  if (n != n) return n + 0;
  if (d != d) return d + 0;
  if ((d == 0 && n == 0) || (std::isinf(d) && std::isinf(n))) return -std::numeric_limits<F>::quiet_NaN();
  if (d == 0 || std::isinf(n)) return negative ? -infinity : infinity;
  if (std::isinf(d) || n == 0) return negative ? F{-0.0} : F{0};
  if (exponent_of(n) - exponent_of(d) < -(kBias<F> + (sizeof(F) == 4 ? 23 : 52))) return negative ? F{-0.0} : F{0};
  if (q != q) return negative ? -infinity : infinity;  // the steps before overflowed
  return negative ? -std::fabs(q) : std::fabs(q);
}

// One bit for each of ten classes.
template <class F>
unsigned class_of(F x) {
  const bool negative = std::signbit(x);
  switch (std::fpclassify(x)) {
    case FP_NAN: {
      bool quiet = false;
      if constexpr (sizeof(F) == 4) {
        quiet = std::bit_cast<uint32_t>(x) >> 22 & 1;
      } else {
        quiet = std::bit_cast<uint64_t>(x) >> 51 & 1;
      }
      return quiet ? 2 : 1;
    }
    case FP_INFINITE:
      return negative ? 4 : 512;
    case FP_NORMAL:
      return negative ? 8 : 256;
    case FP_SUBNORMAL:
      return negative ? 16 : 128;
    default:
      return negative ? 32 : 64;
  }
}
template <class F>
void compare_class(Wave& w, const Instruction& i) {
  const bool to_exec = i.number;
  const int first = to_exec && i.operands == 2 ? 0 : 1;
  Column<F> x;
  Column<uint32_t> wanted;
  fetch(w, i, i.at[first], 0, x), fetch(w, i, i.at[first + 1], 1, wanted);
  const uint64_t exec = w.exec();
  uint64_t bits = 0;
  for (int l = 0; l < w.lanes; ++l)
    if (exec >> l & 1 && class_of(x[l]) & wanted[l]) bits |= uint64_t{1} << l;
  if (first == 1) w.set_mask(i.at[0].first, bits);
  if (to_exec) w.set_exec(bits);
}

}  // namespace

void add_division(Operations& t) {
  const std::vector<Type> f32{Type::b32, Type::b64, Type::f32}, f64{Type::b64, Type::b64, Type::f64};
  t["v_div_scale_f32"] = {.run = div_scale<float>, .types = f32, .results = 2};
  t["v_div_scale_f64"] = {.run = div_scale<double>, .types = f64, .results = 2};
  t["v_div_fmas_f32"] = {.run = div_fmas<float>, .types = {Type::f32}, .shape = Operation::Shape::vcc_reader};
  t["v_div_fmas_f64"] = {.run = div_fmas<double>, .types = {Type::f64}, .shape = Operation::Shape::vcc_reader};
  t["v_div_fixup_f32"] = lanes_of([](float q, float d, float n) { return fixed_up(q, d, n); });
  t["v_div_fixup_f64"] = lanes_of([](double q, double d, double n) { return fixed_up(q, d, n); });
  t["v_div_fixup_f16"] = lanes_of([](Half q, Half d, Half n) {
    const float r = fixed_up(q.value(), d.value(), n.value());
    return Half{half_bits(static_cast<double>(r))};
  });
  for (const bool to_exec : {false, true}) {
    const std::string name = to_exec ? "v_cmpx_class_" : "v_cmp_class_";
    t[name + "f32"] = {.run = compare_class<float>, .types = {Type::b64, Type::f32, Type::b32}, .number = to_exec};
    t[name + "f64"] = {.run = compare_class<double>, .types = {Type::b64, Type::f64, Type::b32}, .number = to_exec};
  }
}

}  // namespace lumen::amd
