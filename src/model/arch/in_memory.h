// Weights out of their file: in memory of their own, in huge pages where the system gives any. A processor finds the
// places of huge pages faster, and need not wait for a page's first use. Proved by
// tests/model/arch/in_memory_test.cpp.
#pragma once

#include <cstdint>
#include <functional>

#include "model/arch/model.h"

namespace lumen::model {

// Copies each weight of `model` that lies in a mapped file, on all cores; the file stays mapped only where something
// else holds it. Error (exit 3) when there is no room. `told` is called by this thread, with bytes copied and bytes in
// all, and at the end when both are the same.
void copy_into_memory(Model* model, const std::function<void(int64_t, int64_t)>& told);

}  // namespace lumen::model
