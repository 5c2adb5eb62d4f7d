// What a kernel needs of its hardware, read off its machine code. AMD's code objects say all of it; PTX does not: its
// registers are not yet those of the processor, so these and spills stay unknown until a driver has compiled it. Of
// kernels of CPUs only the loop is described.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emit/emit.h"

namespace lumen::emit {

struct KernelReport {
  std::string symbol;
  LaunchShape launch;
  // A lane's registers for vectors, and apart from them those for matrix accumulators; a wave's scalar ones.
  std::optional<int> vector_registers, accumulators, scalar_registers;
  std::optional<int> vector_spills, scalar_spills;
  int64_t private_bytes = 0;  // of a lane, in memory: scratch, or local memory of PTX
  int64_t shared_bytes = 0;   // of a block
  std::optional<int> waves;   // that fit on one SIMD unit at once
  // The loop with the most products and no loop in it (where none has products: the longest innermost one):
  // instructions, and products of the matrix unit or of dots among them. 0: no loop is left.
  int loop_instructions = 0, loop_matrix = 0, loop_dots = 0;
  int loop_spills = 0;  // stores and loads of spilled registers there
};

std::vector<KernelReport> report(std::span<const loop::Kernel> kernels, const machine::Machine& target);
// The same of commented assembly of these kernels that exists already.
std::vector<KernelReport> report(std::span<const loop::Kernel> kernels, const machine::Machine& target,
                                 const std::string& commented_assembly);

}  // namespace lumen::emit
