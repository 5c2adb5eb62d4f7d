// Kernels that do nothing but what one ceiling of a GPU is about: multiply-adds of f32, and products by every kind of
// matrix instruction of the machine, of numbers that lie where instructions take them from. Proved by
// tests/run/engine/explain_test.cpp.
#pragma once

#include "run/engine/roofline.h"

namespace lumen::run {

// CeilingKernel::row: the part of instructions' names that says what they multiply; of those, the largest is measured.
// Every kernel reads its first buffer and writes its second.
std::vector<CeilingKernel> gpu_ceiling_kernels(const machine::Machine& m);

}  // namespace lumen::run
