// Which tiles a block of lanes computes, and in which order. Without persistent_blocks every tile, and every part of
// its K, has a block of its own. With them as many blocks as the machine has units walk over the tiles, a wave of tiles
// after the other, so that what the next tile reads is under way while this one ends ("persistent" kernels); and what
// is left behind the last whole wave may be cut along K into as many even partial tiles as there are persistent_blocks
// (stream-K, Osama et al., PPoPP 2023), whose sums a step behind adds in the order of K. Proved by
// tests/kernel/synth/gemm/tile_scheduler_test.cpp.
#pragma once

#include <cstdint>

#include "kernel/loop/names.h"

namespace lumen::synth {

struct TileScheduler {
  int64_t tiles = 1, stages = 1;  // in all; of K, of a tile
  int64_t persistent_blocks = 0;  // 0: every tile has a block of its own
  bool stream_k = false;          // what whole waves leave is cut into partial tiles

  static constexpr int64_t kLeastStages = 4;

  int64_t waves() const;  // tiles that a persistent block computes whole, at most
  int64_t tail() const;   // tiles cut into partial tiles
  int64_t jobs() const { return waves() + (tail() > 0 ? 2 : 0); }  // of a persistent block, at most
  // Partial tiles can be had: none is so short that it costs more than it gives.
  static bool can_stream_k(int64_t tiles, int64_t stages, int64_t persistent_blocks);
  int64_t partial_tiles() const { return tail() == 0 ? 0 : persistent_blocks + tail(); }  // places, some unused

  // What a persistent block does as its number `number`; nothing (from = to) behind its last.
  struct Job {
    Expr tile, from, to;  // stages
    Expr before;          // stages of the block's jobs before
    Expr partial_tile;    // place of the sums, of jobs behind the waves
  };
  Job job(Builder& b, Expr block, Expr number) const;

  // Persistent blocks that may have a part of tile `tail_tile` of the tail: first .. last - 1; whether `block` has one,
  // and the place of its sums: blocks and tiles both ascend along K, one of them at least from part to part.
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

// Which one of `blocks` blocks has the work that block `block` does: a machine's chiplets get blocks in turn, and each
// has a second-level cache of its own, so that what follows each other is to be done by one of them. A permutation,
// whatever their number.
Expr on_chiplets(Expr block, int64_t blocks, int chiplets);

}  // namespace lumen::synth
