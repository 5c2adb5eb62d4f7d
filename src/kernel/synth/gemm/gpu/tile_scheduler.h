// Which tiles a block of lanes computes, and in which order. Without persistent_blocks every tile, and every part of
// its K, has a block of its own. With them as many blocks as the machine has units walk over the tiles, a wave of tiles
// after the other, so that what the next tile reads is under way while this one ends ("persistent" kernels); and what
// is left behind the last whole wave may be cut along K into as many even partial tiles as there are persistent_blocks
// (stream-K, Osama et al., PPoPP 2023), whose sums a step behind adds in the order of K. Proved by
// tests/kernel/synth/gemm/tile_scheduler_test.cpp.
#pragma once

#include <cstdint>

#include "kernel/loop/build.h"

namespace lumen::synth {

struct TileScheduler {
  int64_t tiles = 1, stages = 1;  // in all; of K, of a tile
  int64_t persistent_blocks = 0;  // blocks that walk; 0: none
  bool stream_k = false;          // what whole waves leave is cut into partial tiles

  static constexpr int64_t kLeastStages = 4;  // stages

  int64_t waves() const;  // tiles that a persistent_block computes whole, at most
  int64_t tail() const;   // tiles cut into partial tiles
  int64_t jobs() const { return waves() + (tail() > 0 ? 2 : 0); }  // of a persistent_block, at most
  // Segments can be had: none is so short that it costs more than it gives.
  static bool can_stream_k(int64_t tiles, int64_t stages, int64_t persistent_blocks);
  int64_t partial_tiles() const {
    return tail() == 0 ? 0 : persistent_blocks + tail();
  }  // places for their sums, some unused

  // What a persistent_block does as its number `number`; nothing (from = to) behind its last.
  struct Job {
    loop::Expr tile, from, to;  // stages
    loop::Expr before;          // stages of the persistent_block's jobs before
    loop::Expr partial_tile;    // place of the sums, of jobs behind the waves
  };
  Job job(loop::Builder& b, loop::Expr persistent_block, loop::Expr number) const;

  // Persistent blocks that may have a partial tile of tile `tail_tile` of the tail: first .. last - 1; whether
  // `persistent_block` has, and where.
  struct PersistentBlocks {
    loop::Expr first, last;
  };
  PersistentBlocks persistent_blocks_of(loop::Builder& b, loop::Expr tail_tile) const;
  loop::Expr has_partial_tile(loop::Builder& b, loop::Expr persistent_block, loop::Expr tail_tile) const;
  // Persistent blocks and tiles both ascend along K, one of them at least from partial tile to partial tile.
  static loop::Expr partial_tile(loop::Builder& b, loop::Expr persistent_block, loop::Expr tail_tile) {
    return persistent_block + tail_tile;
  }

 private:
  loop::Expr bound(loop::Builder& b,
                   loop::Expr persistent_block) const;  // stage of the tail where its partial tiles begin
};

// A tile's first row and column, and the flat outer index. Tiles that follow each other share rows and columns.
struct TilePlace {
  loop::Expr m0, n0, outer;
};
struct TileOrder {
  int64_t m_tiles = 1, n_tiles = 1;  // of one outer index
  int64_t m = 1, n = 1;              // rows and columns of a tile
  TilePlace place(loop::Builder& b, loop::Expr tile) const;
};

}  // namespace lumen::synth
