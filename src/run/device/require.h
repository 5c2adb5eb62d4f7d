// Checks that memory suffices before any of it is allocated: the needs are listed in a table, and needs that do not fit
// are refused with it (exit 3). Proved by tests/run/device/available_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/device/device.h"

namespace lumen::run {

struct MemoryNeed {
  std::string what;   // "weights", "values of a step"
  int64_t bytes = 0;  // saturating
  // Already allocated, or file-backed pages, which the kernel drops under memory pressure: such bytes must fit into the
  // machine, not into the available memory.
  bool is_there = false;
};
using MemoryNeeds = std::vector<MemoryNeed>;

// `who` starts the message: "training of 'x'". `hint` suggests how to need less; empty: a general one. `promised`:
// bytes that were allocated and not touched yet.
void require_host_memory(const std::string& who, const MemoryNeeds& needs, const std::string& hint = {},
                         int64_t promised = 0);
// The same for a device; a CPU's memory is the machine's.
void require_memory(const Device& device, const std::string& who, const MemoryNeeds& needs,
                    const std::string& hint = {});

// Sums and products of sizes from files or flags; saturate at the largest number.
int64_t saturating_sum(int64_t a, int64_t b);
int64_t saturating_product(int64_t a, int64_t b);

}  // namespace lumen::run
