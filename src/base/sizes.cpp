#include "base/sizes.h"

#include <fmt/format.h>

#include <cmath>

namespace lumen {

std::string size_text(double bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  // What would be rounded to 1024 of a unit is one of the next.
  while (unit + 1 < std::size(kUnits) && std::abs(bytes) >= (unit == 0 ? 1023.5 : 1023.95)) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} {}", bytes, std::abs(bytes) == 1 ? "byte" : kUnits[0]);
  return fmt::format("{:.{}f} {}", bytes, std::abs(bytes) < 9.995 ? 2 : 1, kUnits[unit]);
}

}  // namespace lumen
