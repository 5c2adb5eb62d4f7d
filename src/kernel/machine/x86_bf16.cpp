// Dots of bf16 pairs in 512 bit vectors. Facts and rows only.
// Proved by tests/ladder/machine_code_test.cpp on a processor that has them.
#include "kernel/machine/machine.h"

namespace lumen::machine {

void add_bf16(Machine& m) {
  const DotRow d{"dot2.bf16bf16.f32x16", Scalar::bf16, Scalar::bf16, Scalar::f32, 2, 16, true, "", false, 0};
  m.rows.push_back({d.row, float_dot_meaning(d.row, d.lanes), "llvm.x86.avx512bf16.dpbf16ps.512", "avx512bf16", 1});
  m.dots.push_back(d);
  const std::string round = "roundpair.f32f32.bf16x32";
  m.rows.push_back({round, round_pair_meaning(round, 16), "llvm.x86.avx512bf16.cvtne2ps2bf16.512", "avx512bf16", 1});
}

}  // namespace lumen::machine
