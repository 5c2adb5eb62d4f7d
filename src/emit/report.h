// Hardware resources of a kernel, parsed from its machine code. AMD's code objects have all of them. PTX does not: its
// registers are virtual, so registers and spills stay unknown until a driver has compiled it. For CPU kernels only the
// loop is described.
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
  // Per lane: vector registers, and separate registers for matrix accumulators; per wave: scalar registers.
  std::optional<int> vector_registers, accumulators, scalar_registers;
  std::optional<int> vector_spills, scalar_spills;
  int64_t private_bytes = 0;  // per lane, in memory: scratch, or local memory of PTX
  int64_t shared_bytes = 0;   // per block
  std::optional<int> waves;   // occupancy: waves per SIMD unit
  // The innermost loop with the most products (if none has products: the longest one): its instructions, and the matrix
  // unit and dot products among them. 0: there is no loop.
  int loop_instructions = 0, loop_matrix = 0, loop_dots = 0;
  int loop_spills = 0;  // stores and loads of spilled registers there
};

std::vector<KernelReport> report(std::span<const loop::Kernel> kernels, const machine::Machine& target);
// The same from existing commented assembly of these kernels.
std::vector<KernelReport> report(std::span<const loop::Kernel> kernels, const machine::Machine& target,
                                 const std::string& commented_assembly);

}  // namespace lumen::emit
