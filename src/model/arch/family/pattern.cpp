#include "model/arch/family/pattern.h"

namespace lumen::model::arch {

bool fits_pattern(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at)
    if (fits_pattern(rest, name.substr(at))) return true;
  return false;
}

}  // namespace lumen::model::arch
