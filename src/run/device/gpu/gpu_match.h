// Which row of the machine table a GPU can execute. Proved by tests/run/device/gpu_match_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernel/machine/machine.h"

namespace lumen::run {

struct GpuMatch {
  machine::MachineRef machine;  // null: none
  std::string remark;           // what to know: the row is an older one, or why there is none
  std::string advice;           // without a machine: what to do
};

// The table, and the rows that are like others of it.
std::vector<machine::MachineRef> all_rows();

// `architecture` as drivers say it, features included: "sm_86", "gfx90a:sramecc+:xnack-". Code for one generation of
// NVIDIA runs on later ones, unless its name ends in a letter; AMD's runs on the very one, and a generation's generic
// code on all of it: where a GPU has no row of its own.
GpuMatch match_gpu(const std::string& architecture, std::span<const machine::MachineRef> table);

}  // namespace lumen::run
