// Conversions between integers and floats. What does not fit becomes the nearest end, NaN becomes 0.
#include <algorithm>
#include <limits>

#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

template <class I, class F>
I to_integer(F x) {
  if (x != x) return 0;
  const double d = std::trunc(static_cast<double>(x));
  if (d <= static_cast<double>(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
  if (d >= static_cast<double>(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
  return static_cast<I>(d);
}
// Towards zero.
uint16_t half_toward_zero(float x) {
  uint16_t h = half_bits(x);
  const float back = half_value(h);
  if (std::isfinite(x) && std::fabs(back) > std::fabs(x)) --h;
  return h;
}
uint16_t bf16_bits(float x) {
  return static_cast<uint16_t>(encode_float(kBf16, static_cast<double>(x)));
}
int16_t normal16(float x) {
  return x != x ? int16_t{0} : static_cast<int16_t>(std::nearbyint(std::clamp(x, -1.0F, 1.0F) * 32767));
}
uint16_t unsigned_normal16(float x) {
  return x != x ? uint16_t{0} : static_cast<uint16_t>(std::nearbyint(std::clamp(x, 0.0F, 1.0F) * 65535));
}

void add_of_32_bits(Operations& t) {
  t["v_cvt_f32_i32"] = lanes_of([](int32_t a) { return static_cast<float>(a); });
  t["v_cvt_f32_u32"] = lanes_of([](uint32_t a) { return static_cast<float>(a); });
  t["v_cvt_u32_f32"] = lanes_of([](float a) { return to_integer<uint32_t>(a); });
  t["v_cvt_i32_f32"] = lanes_of([](float a) { return to_integer<int32_t>(a); });
  t["v_cvt_rpi_i32_f32"] = t["v_cvt_nearest_i32_f32"] =
      lanes_of([](float a) { return to_integer<int32_t>(std::floor(a + 0.5F)); });
  t["v_cvt_flr_i32_f32"] = t["v_cvt_floor_i32_f32"] =
      lanes_of([](float a) { return to_integer<int32_t>(std::floor(static_cast<double>(a))); });
  t["v_cvt_f32_ubyte0"] = lanes_of([](uint32_t a) { return static_cast<float>(a & 0xff); });
  t["v_cvt_f32_ubyte1"] = lanes_of([](uint32_t a) { return static_cast<float>(a >> 8 & 0xff); });
  t["v_cvt_f32_ubyte2"] = lanes_of([](uint32_t a) { return static_cast<float>(a >> 16 & 0xff); });
  t["v_cvt_f32_ubyte3"] = lanes_of([](uint32_t a) { return static_cast<float>(a >> 24); });
  t["v_cvt_off_f32_i4"] =
      lanes_of([](uint32_t a) { return static_cast<float>(static_cast<int32_t>(a << 28) >> 28) / 16; });
  t["v_cvt_f64_f32"] = lanes_of([](float a) { return static_cast<double>(a); });
  t["v_cvt_f32_f64"] = lanes_of([](double a) { return static_cast<float>(a); });
  t["v_cvt_f64_i32"] = lanes_of([](int32_t a) { return static_cast<double>(a); });
  t["v_cvt_f64_u32"] = lanes_of([](uint32_t a) { return static_cast<double>(a); });
  t["v_cvt_i32_f64"] = lanes_of([](double a) { return to_integer<int32_t>(a); });
  t["v_cvt_u32_f64"] = lanes_of([](double a) { return to_integer<uint32_t>(a); });
}

void add_of_16_bits(Operations& t) {
  t["v_cvt_f32_f16"] = lanes_of([](Half a) { return a.value(); });
  t["v_cvt_f16_f32"] = lanes_of([](float a) { return Half{half_bits(a)}; });
  t["v_cvt_f16_u16"] = lanes_of([](uint16_t a) { return Half{half_bits(a)}; });
  t["v_cvt_f16_i16"] = lanes_of([](int16_t a) { return Half{half_bits(a)}; });
  t["v_cvt_u16_f16"] = lanes_of([](Half a) { return to_integer<uint16_t>(a.value()); });
  t["v_cvt_i16_f16"] = lanes_of([](Half a) { return to_integer<int16_t>(a.value()); });
  for (const char* n : {"v_cvt_f16_f32", "v_cvt_f16_u16", "v_cvt_f16_i16", "v_cvt_u16_f16", "v_cvt_i16_f16"})
    t[n].zeroes_high = true;
  t["v_cvt_pkrtz_f16_f32"] = t["v_cvt_pk_rtz_f16_f32"] =
      lanes_of([](float a, float b) { return half_toward_zero(a) | uint32_t{half_toward_zero(b)} << 16; });
  t["v_cvt_pk_f16_f32"] = lanes_of([](float a, float b) { return half_bits(a) | uint32_t{half_bits(b)} << 16; });
  t["v_cvt_pk_bf16_f32"] = lanes_of([](float a, float b) { return bf16_bits(a) | uint32_t{bf16_bits(b)} << 16; });
  t["v_cvt_pk_u16_u32"] =
      lanes_of([](uint32_t a, uint32_t b) { return std::min(a, 0xffffU) | std::min(b, 0xffffU) << 16; });
  t["v_cvt_pk_i16_i32"] = lanes_of([](int32_t a, int32_t b) {
    const auto cut = [](int32_t x) { return static_cast<uint32_t>(std::clamp(x, -32768, 32767)) & 0xffff; };
    return cut(a) | cut(b) << 16;
  });
  t["v_cvt_pknorm_i16_f32"] = t["v_cvt_pk_norm_i16_f32"] = lanes_of([](float a, float b) {
    return static_cast<uint16_t>(normal16(a)) | static_cast<uint32_t>(static_cast<uint16_t>(normal16(b))) << 16;
  });
  t["v_cvt_pknorm_u16_f32"] = t["v_cvt_pk_norm_u16_f32"] =
      lanes_of([](float a, float b) { return unsigned_normal16(a) | uint32_t{unsigned_normal16(b)} << 16; });
  t["v_pack_b32_f16"] = lanes_of([](uint16_t a, uint16_t b) { return a | uint32_t{b} << 16; });
}

}  // namespace

void add_conversions(const Chip&, Operations& t) {
  add_of_32_bits(t);
  add_of_16_bits(t);
}

}  // namespace lumen::amd
