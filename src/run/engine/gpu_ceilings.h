// Kernels that each measure one ceiling of a GPU: f32 multiply-adds, and products by every kind of matrix instruction
// of the machine, with operands already in registers or shared memory. Proved by tests/run/engine/explain_test.cpp.
#pragma once

#include "run/engine/roofline.h"

namespace lumen::run {

// CeilingKernel::row: the part of instruction names that describes the operands; the largest such instruction is
// measured. Every kernel reads its first buffer and writes its second.
std::vector<CeilingKernel> gpu_ceiling_kernels(const machine::Machine& m);

}  // namespace lumen::run
