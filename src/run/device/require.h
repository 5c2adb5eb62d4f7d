// The question whether there is memory for something, asked before any of it is taken: what it needs is written down as
// a table, and what does not fit is refused with it (exit 3). Proved by tests/run/device/available_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/device/device.h"

namespace lumen::run {

struct MemoryNeed {
  std::string what;   // "weights", "values of a step"
  int64_t bytes = 0;  // saturates
  // Taken already, or pages of files, which the system drops when others need room: such bytes must fit into the
  // machine, not into what is available now.
  bool is_there = false;
};
using MemoryNeeds = std::vector<MemoryNeed>;

// `who` begins the message: "training of 'x'". `hint` says what would need less; empty: a general one. `promised`:
// bytes that were given away and not touched yet.
void require_host_memory(const std::string& who, const MemoryNeeds& needs, const std::string& hint = {},
                         int64_t promised = 0);
// The same on a device: a processor's is the machine's memory.
void require_memory(const Device& device, const std::string& who, const MemoryNeeds& needs,
                    const std::string& hint = {});

// Sums and products of amounts that a file or a flag made: the largest number where they are larger.
int64_t saturating_sum(int64_t a, int64_t b);
int64_t saturating_product(int64_t a, int64_t b);

}  // namespace lumen::run
