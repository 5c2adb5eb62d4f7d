// Division of non-negative numbers that rounds up.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace lumen {

// 64 bits; signed unless C++'s common type of the two is unsigned.
template <std::integral A, std::integral B>
using Wide = std::conditional_t<std::is_signed_v<std::common_type_t<A, B>>, int64_t, uint64_t>;

template <std::integral A, std::integral B>
constexpr Wide<A, B> ceil_div(A x, B y) {
  const auto wide = static_cast<Wide<A, B>>(x), divisor = static_cast<Wide<A, B>>(y);
  return (wide + divisor - 1) / divisor;
}
// The smallest multiple of `unit` that is at least x.
template <std::integral A, std::integral B>
constexpr Wide<A, B> round_up(A x, B unit) {
  return ceil_div(x, unit) * static_cast<Wide<A, B>>(unit);
}

}  // namespace lumen
