// A separate step that packs the broadcast operand tile by tile into scratch, once for all tasks of the next kernel.
// Proved by tests/kernel/synth/gemm/dot_tile_test.cpp.
#pragma once

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Layout of the scratch: outer indices, tiles of m, all k, then the tile's rows, rounded up to whole vectors.
struct TilesOfA {
  int64_t row_bytes = 0;  // one k of a tile
  int64_t tile_bytes = 0;
  int64_t bytes = 0;
};
TilesOfA tiles_of_a(const DotProblem& p, const TilePlan& t);

Step write_pack_step(const graph::Graph& g, const DotProblem& p, const TilePlan& t, int scratch);

}  // namespace lumen::synth
