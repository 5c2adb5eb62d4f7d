// Selects the row of the machine table that a GPU can execute. Proved by tests/run/device/gpu_match_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernel/machine/machine.h"

namespace lumen::run {

struct GpuMatch {
  machine::MachineRef machine;  // null: none
  std::string remark;           // note for the user: an older row is used, or why there is none
  std::string advice;           // hint if there is no machine
};

// The table, and the rows derived from rows of it.
std::vector<machine::MachineRef> all_rows();

// `architecture` in the driver's spelling, with features: "sm_86", "gfx90a:sramecc+:xnack-". For a GPU without a row of
// its own: NVIDIA code for one generation runs on later ones, unless its name ends in a letter; AMD code runs on that
// architecture only, and a generation's generic code on all of it.
GpuMatch match_gpu(const std::string& architecture, std::span<const machine::MachineRef> table);

}  // namespace lumen::run
