#include <map>
#include <mutex>

#include "tests/amd/execute/table.h"

namespace lumen::amd {

const Operations& operations(const Chip& chip) {
  static std::mutex mutex;
  static std::map<std::string, Operations> made;
  const std::scoped_lock lock(mutex);
  Operations& t = made[chip.name];
  if (!t.empty()) return t;
  add_float_operations(t);
  add_division(t);
  add_integer_operations(t);
  add_conversions(chip, t);
  add_small_float_conversions(chip, t);
  add_carries(t);
  add_comparisons(chip, t);
  add_packed(t);
  add_lane_moves(chip, t);
  add_matrix_operations(chip, t);
  add_scalar_operations(t);
  add_scalar_floats(t);
  add_control(chip, t);
  add_global_memory(chip, t);
  add_lds(chip, t);
  return t;
}

}  // namespace lumen::amd
