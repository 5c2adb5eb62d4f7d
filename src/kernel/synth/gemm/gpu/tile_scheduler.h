// Which tiles a thread block computes, and in which order. Without persistent_blocks every tile, and every part of its
// K, has a block of its own. With them as many blocks as the machine has units loop over the tiles, one wave of tiles
// after the other, so that loads of the next tile overlap the end of this one ("persistent" kernels). The tiles after
// the last whole wave may be cut along K into as many even partial tiles as there are persistent_blocks (stream-K,
// Osama et al., PPoPP 2023), whose sums a later step adds in the order of K. Proved by
// tests/kernel/synth/gemm/tile_scheduler_test.cpp.
#pragma once

#include <cstdint>

#include "kernel/loop/names.h"

namespace lumen::synth {

struct TileScheduler {
  int64_t tiles = 1, stages = 1;  // tiles in all; stages of K of a tile
  int64_t persistent_blocks = 0;  // 0: every tile has a block of its own
  bool stream_k = false;          // the tiles after whole waves are cut into partial tiles

  static constexpr int64_t kLeastStages = 4;

  int64_t waves() const;  // tiles that a persistent block computes whole, at most
  int64_t tail() const;   // tiles cut into partial tiles
  int64_t jobs() const { return waves() + (tail() > 0 ? 2 : 0); }  // of a persistent block, at most
  // Whether stream-K is possible: no partial tile is so short that it costs more than it gains.
  static bool can_stream_k(int64_t tiles, int64_t stages, int64_t persistent_blocks);
  int64_t partial_tiles() const { return tail() == 0 ? 0 : persistent_blocks + tail(); }  // places, some unused

  // Job `number` of a persistent block; empty (from = to) after its last.
  struct Job {
    Expr tile, from, to;  // stages
    Expr before;          // stages of the block's earlier jobs
    Expr partial_tile;    // place of the sums, for jobs after the whole waves
  };
  Job job(Builder& b, Expr block, Expr number) const;

  // Persistent blocks first .. last - 1 may have a part of tile `tail_tile` of the tail. has_partial_tile(): whether
  // `block` has one; partial_tile(): the place of its sums. From part to part block or tile or both ascend, so places
  // are unique.
  struct PersistentBlocks {
    Expr first, last;
  };
  PersistentBlocks persistent_blocks_of(Builder& b, Expr tail_tile) const;
  Expr has_partial_tile(Expr block, Expr tail_tile) const;
  static Expr partial_tile(Expr block, Expr tail_tile) { return block + tail_tile; }

 private:
  Expr bound(Expr block) const;  // stage of the tail where its partial tiles begin
};

// A tile's first row and column, and the flat outer index. Tiles that follow each other share rows and columns.
struct TilePlace {
  Expr m0, n0, outer;
};
struct TileOrder {
  int64_t m_tiles = 1, n_tiles = 1;  // of one outer index
  int64_t m = 1, n = 1;              // rows and columns of a tile
  int chiplets = 1;                  // of the machine: each works on fewer tiles at a time
  TilePlace place(Expr tile) const;
};

// The block, of `blocks`, whose work block `block` does. A machine's chiplets get blocks in turn, and each has a
// second-level cache of its own, so consecutive work should go to one chiplet. A permutation, whatever their number.
Expr on_chiplets(Expr block, int64_t blocks, int chiplets);

}  // namespace lumen::synth
