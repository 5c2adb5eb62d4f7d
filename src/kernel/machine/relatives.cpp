#include "kernel/machine/relatives.h"

#include <algorithm>

namespace lumen::machine {
namespace {

struct Relative {
  std::string_view name, like;  // `like`: a row of amd_machines()
  int units;
};

// Compute units: of the largest card of the kind; of a generation, of a mid-range card.
constexpr Relative kRelatives[] = {
    {"gfx1031", "gfx1030", 40},         {"gfx1032", "gfx1030", 32},       {"gfx1034", "gfx1030", 16},
    {"gfx1035", "gfx1030", 12},         {"gfx1036", "gfx1030", 2},        {"gfx1150", "gfx1100", 16},
    {"gfx1152", "gfx1100", 8},          {"gfx1153", "gfx1100", 4},        {"gfx9-generic", "gfx906", 60},
    {"gfx10-3-generic", "gfx1030", 40}, {"gfx11-generic", "gfx1100", 32}, {"gfx12-generic", "gfx1200", 32},
};

// LLVM's AMDGPU usage guide, "Generic processor code object versioning": which processors run a generic target's code.
struct Generation {
  std::string_view generic;
  std::vector<std::string_view> members;
};
const std::vector<Generation>& generations() {
  static const std::vector<Generation> all = {
      {"gfx9-generic", {"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"}},
      {"gfx10-3-generic", {"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"}},
      {"gfx11-generic", {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"}},
      {"gfx12-generic", {"gfx1200", "gfx1201"}},
  };
  return all;
}

}  // namespace

std::vector<Machine> amd_relatives() {
  const std::vector<Machine> rows = amd_machines();
  std::vector<Machine> out;
  for (const Relative& r : kRelatives) {
    Machine m = *std::ranges::find(rows, r.like, &Machine::name);
    m.name = m.cpu = r.name;
    m.costs.cores = m.costs.cores / m.units * r.units;
    m.units = r.units;
    // Its oldest members have no byte dots.
    if (r.name == "gfx9-generic") {
      for (const DotRow& d : m.dots) std::erase_if(m.rows, [&](const Row& row) { return row.name == d.row; });
      m.dots.clear();
    }
    out.push_back(std::move(m));
  }
  return out;
}

std::vector<MachineRef> relatives() {
  static const std::vector<MachineRef> all = [] {
    std::vector<MachineRef> out;
    for (auto* family : {&arm_relatives, &amd_relatives})
      for (Machine& m : family()) out.push_back(std::make_shared<const Machine>(std::move(m)));
    return out;
  }();
  return all;
}

std::string generic_of(std::string_view architecture) {
  for (const Generation& g : generations())
    if (std::ranges::count(g.members, architecture) > 0) return std::string(g.generic);
  return "";
}

bool is_generic(const Machine& m) {
  return m.name.ends_with("-generic");
}

}  // namespace lumen::machine
