#include "kernel/machine/without_row.h"

#include <vector>

namespace lumen::machine {

Machine without_row(Machine m, const std::string& row) {
  const auto named = [&](const auto& r) { return r.row == row; };
  std::erase_if(m.rows, [&](const Row& r) { return r.name == row; });
  std::erase_if(m.dots, [&](const DotRow& r) { return r.row == row || r.pairs == row; });
  std::erase_if(m.squares, named);
  std::erase_if(m.tiles, named);
  std::erase_if(m.matrices, named);
  std::erase_if(m.loads, named);
  if (m.power2 == row) m.power2.clear();
  if (m.reciprocal == row) m.reciprocal.clear();
  return m;
}

}  // namespace lumen::machine
