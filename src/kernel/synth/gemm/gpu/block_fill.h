// Fills an operand's panel in shared memory (block_product.h): by asynchronous copies, or through registers, with
// conversion, transposition or unpacking. Proved by tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/gpu/block_zeros.h"
#include "kernel/synth/gemm/gpu/dot_block_plan.h"
#include "kernel/synth/gemm/skinny/weight_stages.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

class BlockFill {
 public:
  BlockFill(DotWriter& w, const DotProblem& p, BlockProduct& product, const machine::Machine& m,
            BlockProduct::Side side, Supply supply);
  // Packed data is read from these stages, not from memory.
  void read_from(WeightStages* stages) { stages_ = stages; }

  bool copies() const { return supply_ == Supply::copies || supply_ == Supply::beside; }
  // Rows from `first_row` on; `base` is the element of the operand that offsets count from.
  void enter_tile(Expr first_row, Expr base) {
    first_row_ = first_row;
    base_ = base;
  }

  // If copies begin tile by tile, and m counts over several indices or zeros surround what is read, lanes hold the
  // addresses of their rows. hold_rows(): in the block's code; enter_rows(): also in lane loops that begin copies for
  // another tile.
  void hold_rows();
  void enter_rows(Expr lane);
  bool holds_rows() const { return !held_rows_.empty(); }

  // In lane loops. The stage begins at `k` of the inner k, at offset `outer` in elements of the outer ones; in formats
  // with blocks longer than a stage, `position` elements after the start of a block.
  struct StagePosition {
    Expr outer, k;
    int64_t position = 0;
  };
  // Begins copies into the panel at byte `to`.
  void copy(Expr lane, const StagePosition& at, BufferId panel, Expr to);
  // fetch(): loads this lane's share of a panel into registers; put() stores it into the panel. Packed data is stored
  // at once: it would take too many registers.
  std::vector<Expr> fetch(Expr lane, const StagePosition& at, BufferId panel, Expr to);
  void put(Expr lane, const std::vector<Expr>& fetched, BufferId panel, Expr to);

 private:
  size_t load() const { return side_ == BlockProduct::Side::a ? 0 : 1; }
  const DotIndex& index() const { return side_ == BlockProduct::Side::a ? p_.m : p_.n; }
  int64_t rows() const { return product_.tile().lines(side_); }
  // Parts of the panel that a lane handles one after the other: `down` rows x `along` units each.
  struct ThreadTile {
    Expr row, unit;  // within the panel
  };
  int64_t thread_tiles() const { return rows() / down_ * (product_.units() / along_); }
  int64_t rounds() const { return (thread_tiles() + product_.tile().lanes() - 1) / product_.tile().lanes(); }
  ThreadTile thread_tile(Expr lane, int64_t round);
  // `body` for lanes that have one of `all` thread tiles in a round: in full rounds every lane.
  void where_thread_tile(Expr lane, int64_t round, int64_t all, const std::function<void()>& body);
  bool is_joint() const { return side_ == BlockProduct::Side::a && !p_.joint_m.empty(); }
  // The same if zeros surround what is read.
  void copy_rows_in_zeros(Expr lane, const StagePosition& at, BufferId panel, Expr to);
  void copy_beside_in_zeros(Expr lane, const StagePosition& at, BufferId panel, Expr to);
  void copy_existing(BufferId panel, Expr to, const BlockZeros::Place& row, const BlockZeros::Place& k, Expr exists);
  BlockZeros::Place held_row(int64_t round);
  int64_t reach(const std::vector<DotIndex>& indices) const;  // offset of the last element over all indices
  Expr row_at(Expr row);                                      // elements; of the last row for those past it
  Expr row_in_memory(Expr row);                               // the last one for those past it
  Expr zero_unit();
  Expr count_if(Expr exists);
  Expr count_left(Expr from, int64_t extent, int64_t most);
  void fetch_transposed(const ThreadTile& thread_tile, const StagePosition& at, std::vector<Expr>& out);
  // If there are fewer thread tiles than lanes, several lanes share one.
  int64_t sharing() const;
  void unpack_shares(Expr lane, const StagePosition& at, BufferId panel, Expr to);
  // Unpacks `count` units from the `first` on.
  void unpack(const ThreadTile& thread_tile, const StagePosition& at, BufferId panel, Expr to, int64_t first,
              int64_t count);

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  BlockProduct& product_;
  const machine::Machine& m_;
  BlockProduct::Side side_;
  Supply supply_;
  Scalar factor_;
  int64_t unit_ = 1;              // elements
  int64_t down_ = 1, along_ = 1;  // of a thread tile
  Expr first_row_, base_;
  std::vector<BufferId> held_rows_;  // by round; with zeros, as many numbers each as a Place has
  std::optional<BlockZeros> zeros_;
  WeightStages* stages_ = nullptr;
};

}  // namespace lumen::synth
