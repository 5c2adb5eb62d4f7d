// Copies weights from a mapped file into anonymous memory, in huge pages where available: fewer TLB misses, and no page
// faults on first use. Proved by tests/model/arch/in_memory_test.cpp.
#pragma once

#include <cstdint>
#include <functional>

#include "model/arch/model.h"

namespace lumen::model::arch {

// Copies each memory-mapped weight of `model`, on all cores; the file stays mapped only where other objects refer to
// it. Error (exit 3) when memory does not suffice. `told` is called by the calling thread, with bytes copied and bytes
// in total, and at the end when both are equal.
void copy_into_memory(Model* model, const std::function<void(int64_t, int64_t)>& told);

}  // namespace lumen::model::arch
