// Arithmetic of floats. Meanings: the instruction set documents, "Vector ALU instructions". What is exact to an ulp on
// the hardware (rcp, sqrt, exp, log) is rounded to nearest here, and denormals are flushed where the hardware may.
#include <algorithm>

#include "tests/amd/execute/table.h"
#include "tests/amd/number/order.h"

namespace lumen::amd {
namespace {

float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
// The sum of an exact product and a number, rounded to odd, so that rounding it again to fewer bits is right.
double odd_sum(double a, double b) {
  const double s = a + b;
  if (!std::isfinite(s)) return s;
  const double bb = s - a, error = (a - (s - bb)) + (b - bb);
  auto bits = std::bit_cast<uint64_t>(s);
  if (error == 0 || (bits & 1)) return s;
  bits = (error > 0) == (s > 0) ? bits + 1 : bits - 1;
  return std::bit_cast<double>(bits);
}
Half half(double x) {
  return {half_bits(x)};
}
template <class F>
F fraction(F x) {
  const F one_less = std::nextafter(F{1}, F{0});
  return std::min(x - std::floor(x), one_less);
}

template <class F>
void add_of_type(Operations& t, const std::string& suffix) {
  const auto name = [&](const char* n) { return std::string("v_") + n + suffix; };
  t[name("add")] = lanes_of([](F a, F b) { return made(a + b, a, b); });
  t[name("mul")] = lanes_of([](F a, F b) { return made(a * b, a, b); });
  t[name("fma")] = lanes_of([](F a, F b, F c) { return made(std::fma(a, b, c), a, b, c); });
  t[name("fmac")] = accumulating([](F a, F b, F c) { return made(std::fma(a, b, c), a, b, c); });
  t[name("floor")] = lanes_of([](F a) { return std::floor(a); });
  t[name("ceil")] = lanes_of([](F a) { return std::ceil(a); });
  t[name("trunc")] = lanes_of([](F a) { return std::trunc(a); });
  t[name("rndne")] = lanes_of([](F a) { return std::nearbyint(a); });
  t[name("fract")] = lanes_of([](F a) { return made(fraction(a), a); });
  t[name("ldexp")] = lanes_of([](F a, int32_t n) { return std::ldexp(a, n); });
  t[name("frexp_mant")] = lanes_of([](F a) {
    int e = 0;
    return std::isfinite(a) ? std::frexp(a, &e) : a;
  });
  t["v_frexp_exp_i32" + suffix] = lanes_of([](F a) {
    int e = 0;
    if (std::isfinite(a)) std::frexp(a, &e);
    return e;
  });
}

template <class F>
void add_order(Operations& t, const std::string& suffix) {
  const auto name = [&](const char* n) { return std::string("v_") + n + suffix; };
  t[name("min")] = lanes_of([](F a, F b) { return least(a, b); });
  t[name("max")] = lanes_of([](F a, F b) { return most(a, b); });
  t[name("min_num")] = lanes_of([](F a, F b) { return least_number(a, b); });
  t[name("max_num")] = lanes_of([](F a, F b) { return most_number(a, b); });
  t[name("min3")] = lanes_of([](F a, F b, F c) { return least(least(a, b), c); });
  t[name("max3")] = lanes_of([](F a, F b, F c) { return most(most(a, b), c); });
  t[name("med3")] =
      lanes_of([](F a, F b, F c) { return any_nan(a, b, c) ? least(least(a, b), c) : middle_number(a, b, c); });
  t[name("maxmin")] = lanes_of([](F a, F b, F c) { return least(most(a, b), c); });
  t[name("minmax")] = lanes_of([](F a, F b, F c) { return most(least(a, b), c); });
  t[name("min3_num")] = lanes_of([](F a, F b, F c) { return least_number(least_number(a, b), c); });
  t[name("max3_num")] = lanes_of([](F a, F b, F c) { return most_number(most_number(a, b), c); });
  t[name("med3_num")] = lanes_of(
      [](F a, F b, F c) { return any_nan(a, b, c) ? least_number(least_number(a, b), c) : middle_number(a, b, c); });
  t[name("maxmin_num")] = lanes_of([](F a, F b, F c) { return least_number(most_number(a, b), c); });
  t[name("minmax_num")] = lanes_of([](F a, F b, F c) { return most_number(least_number(a, b), c); });
}

void add_f32(Operations& t) {
  t["v_sub_f32"] = lanes_of([](float a, float b) { return made(a - b, a, b); });
  t["v_subrev_f32"] = lanes_of([](float a, float b) { return made(b - a, a, b); });
  t["v_mul_legacy_f32"] = t["v_mul_dx9_zero_f32"] =
      lanes_of([](float a, float b) { return a == 0 || b == 0 ? 0.0F : made(a * b, a, b); });
  t["v_fmaak_f32"] = t["v_fmamk_f32"] = t["v_fma_f32"];
  // Never with denormals.
  t["v_mad_f32"] = lanes_of(
      [](float a, float b, float c) { return flushed(made(flushed(flushed(a) * flushed(b)) + flushed(c), a, b, c)); });
  t["v_mac_f32"] = accumulating(
      [](float a, float b, float c) { return flushed(made(flushed(flushed(a) * flushed(b)) + flushed(c), a, b, c)); });
  t["v_rcp_f32"] = t["v_rcp_iflag_f32"] = lanes_of([](float a) { return flushed(made(1 / flushed(a), a)); });
  t["v_rsq_f32"] =
      lanes_of([](float a) { return made(static_cast<float>(1 / std::sqrt(static_cast<double>(flushed(a)))), a); });
  t["v_sqrt_f32"] = lanes_of([](float a) { return made(std::sqrt(a), a); });
  t["v_exp_f32"] =
      lanes_of([](float a) { return flushed(static_cast<float>(std::exp2(static_cast<double>(flushed(a))))); });
  t["v_log_f32"] =
      lanes_of([](float a) { return made(static_cast<float>(std::log2(static_cast<double>(flushed(a)))), a); });
  constexpr double kTurn = 6.283185307179586;
  t["v_sin_f32"] = lanes_of([](float a) { return made(static_cast<float>(std::sin(kTurn * a)), a); });
  t["v_cos_f32"] = lanes_of([](float a) { return made(static_cast<float>(std::cos(kTurn * a)), a); });
  t["v_min_legacy_f32"] = lanes_of([](float a, float b) { return a < b ? a : b; });
  t["v_max_legacy_f32"] = lanes_of([](float a, float b) { return a >= b ? a : b; });
}

void add_f64(Operations& t) {
  t["v_rcp_f64"] = lanes_of([](double a) { return made(1 / a, a); });
  t["v_rsq_f64"] = lanes_of([](double a) { return made(1 / std::sqrt(a), a); });
  t["v_sqrt_f64"] = lanes_of([](double a) { return made(std::sqrt(a), a); });
}

void add_f16(Operations& t) {
  t["v_add_f16"] = lanes_of([](Half a, Half b) { return half(made(wide(a) + wide(b), wide(a), wide(b))); });
  t["v_sub_f16"] = lanes_of([](Half a, Half b) { return half(made(wide(a) - wide(b), wide(a), wide(b))); });
  t["v_subrev_f16"] = lanes_of([](Half a, Half b) { return half(made(wide(b) - wide(a), wide(a), wide(b))); });
  t["v_mul_f16"] = lanes_of([](Half a, Half b) { return half(made(wide(a) * wide(b), wide(a), wide(b))); });
  t["v_fma_f16"] = t["v_fmaak_f16"] = t["v_fmamk_f16"] = lanes_of([](Half a, Half b, Half c) {
    return half(made(odd_sum(wide(a) * wide(b), wide(c)), wide(a), wide(b), wide(c)));
  });
  t["v_fmac_f16"] = accumulating([](Half a, Half b, Half c) {
    return half(made(odd_sum(wide(a) * wide(b), wide(c)), wide(a), wide(b), wide(c)));
  });
  t["v_rcp_f16"] = lanes_of([](Half a) { return half(made(1 / wide(a), wide(a))); });
  t["v_sqrt_f16"] = lanes_of([](Half a) { return half(made(std::sqrt(wide(a)), wide(a))); });
  t["v_rsq_f16"] = lanes_of([](Half a) { return half(made(1 / std::sqrt(wide(a)), wide(a))); });
  t["v_exp_f16"] = lanes_of([](Half a) { return half(std::exp2(wide(a))); });
  t["v_log_f16"] = lanes_of([](Half a) { return half(made(std::log2(wide(a)), wide(a))); });
  t["v_floor_f16"] = lanes_of([](Half a) { return half(std::floor(wide(a))); });
  t["v_ceil_f16"] = lanes_of([](Half a) { return half(std::ceil(wide(a))); });
  t["v_trunc_f16"] = lanes_of([](Half a) { return half(std::trunc(wide(a))); });
  t["v_rndne_f16"] = lanes_of([](Half a) { return half(std::nearbyint(wide(a))); });
  t["v_ldexp_f16"] = lanes_of([](Half a, int16_t n) { return half(std::ldexp(wide(a), n)); });
  for (const char* n : {"add", "sub", "subrev", "mul", "fmac", "min", "max", "rcp", "sqrt", "rsq", "exp", "log",
                        "floor", "ceil", "trunc", "rndne", "ldexp"})
    t[std::string("v_") + n + "_f16"].zeroes_high = true;
}

}  // namespace

void add_float_operations(Operations& t) {
  add_of_type<float>(t, "_f32");
  add_of_type<double>(t, "_f64");
  add_order<float>(t, "_f32");
  add_order<double>(t, "_f64");
  add_order<Half>(t, "_f16");
  add_f32(t);
  add_f64(t);
  add_f16(t);
}

}  // namespace lumen::amd
