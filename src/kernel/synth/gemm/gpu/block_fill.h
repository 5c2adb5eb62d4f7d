// An operand's way into its panel in shared memory (block_product.h): by asynchronous copies, or through registers,
// converted, transposed or unpacked. Proved by tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/gpu/dot_block_plan.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

class BlockFill {
 public:
  BlockFill(DotWriter& w, const DotProblem& p, BlockProduct& product, const machine::Machine& m,
            BlockProduct::Side side, Supply supply);

  bool copies() const { return supply_ == Supply::copies || supply_ == Supply::beside; }
  // Rows from `first_row` on, behind element `base` of the operand.
  void enter_tile(loop::ValueId first_row, loop::ValueId base) {
    first_row_ = first_row;
    base_ = base;
  }

  // In lane loops. The stage begins at `k` of the inner k, `outer` elements behind by the outer ones; formats with
  // blocks longer than a stage: `position` elements behind a block's first.
  struct Place {
    loop::ValueId outer = -1, k = -1;
    int64_t position = 0;
  };
  // Begins copies into the panel at byte `to`.
  void copy(loop::ValueId lane, const Place& at, loop::BufferId panel, loop::ValueId to);
  // This lane's share of a panel, in registers; and its way into the panel. What is unpacked goes there at once: it
  // would take too many registers.
  std::vector<loop::ValueId> fetch(loop::ValueId lane, const Place& at, loop::BufferId panel, loop::ValueId to);
  void put(loop::ValueId lane, const std::vector<loop::ValueId>& held, loop::BufferId panel, loop::ValueId to);

 private:
  size_t load() const { return side_ == BlockProduct::Side::a ? 0 : 1; }
  const DotIndex& index() const { return side_ == BlockProduct::Side::a ? p_.m : p_.n; }
  int64_t rows() const { return side_ == BlockProduct::Side::a ? product_.tile().m() : product_.tile().n(); }
  // Pieces of the panel that a lane handles one after the other: `down` rows x `along` units each.
  struct Piece {
    loop::ValueId row = -1, unit = -1;  // within the panel
  };
  int64_t pieces() const { return rows() / down_ * (product_.units() / along_); }
  int64_t rounds() const { return (pieces() + product_.tile().lanes() - 1) / product_.tile().lanes(); }
  Piece piece(loop::ValueId lane, int64_t round);
  // `body` by the lanes that have a piece of `all` in a round: in whole rounds all of them.
  void where_piece(loop::ValueId lane, int64_t round, int64_t all, const std::function<void()>& body);
  loop::ValueId row_in_memory(loop::ValueId row);  // the last one for those behind it
  loop::ValueId zero_unit();
  loop::ValueId count_left(loop::ValueId from, int64_t extent, int64_t most);
  void fetch_transposed(const Piece& piece, const Place& at, std::vector<loop::ValueId>& out);
  void unpack(const Piece& piece, const Place& at, loop::BufferId panel, loop::ValueId to);

  DotWriter& w_;
  loop::Builder& b_;
  const DotProblem& p_;
  BlockProduct& product_;
  const machine::Machine& m_;
  BlockProduct::Side side_;
  Supply supply_;
  Scalar factor_;
  int64_t unit_ = 1;              // elements
  int64_t down_ = 1, along_ = 1;  // of a piece
  loop::ValueId first_row_ = -1, base_ = -1;
};

}  // namespace lumen::synth
