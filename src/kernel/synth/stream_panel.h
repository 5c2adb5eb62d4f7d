// Activations of a streamed product (dot_stream_matrix.h) in the shared memory of a block: stage by stage of K, rounded
// to a short float, in the order in which lanes hold the weight's elements (fragment_order.h), so that a lane's factor
// is sixteen bytes beside its neighbour's. Where they are wanted, sums over the weight's groups lie beside them. Proved
// by tests/kernel/dot_stream_matrix_test.cpp.
#pragma once

#include <vector>

#include "kernel/synth/dot_stream_matrix_plan.h"
#include "kernel/synth/dot_write.h"

namespace lumen::synth {

class StreamPanel {
 public:
  static constexpr int64_t kPiece = 8;  // elements: sixteen bytes

  // In the code of a block, whose shared memory it takes: two panels.
  StreamPanel(DotWriter& w, const DotProblem& p, const MatrixStreamPlan& t);

  // In a lane loop: this lane's part of a stage out of memory; put into panel `number`, visible behind a barrier.
  struct Item {
    loop::ValueId number = -1, exists = -1;
    std::vector<loop::ValueId> pieces;  // f32
  };
  std::vector<Item> fetch(loop::ValueId lane, loop::ValueId stage);
  void put(const std::vector<Item>& items, loop::ValueId number);

  // In lane loops: eight elements of unit `unit` of a stage for column `column` of an instruction's columns and the
  // lane `lane_k` of those that share K.
  loop::ValueId piece(loop::ValueId number, loop::ValueId unit, int tile, int64_t piece, loop::ValueId column,
                      loop::ValueId lane_k);
  // Sums of a group as a lane holds an instruction's sums: the same in all rows. `column`: the lane's first.
  loop::ValueId sums(loop::ValueId number, loop::ValueId unit, int64_t group, int tile, loop::ValueId column);

 private:
  // Of an item's number: piece by piece of a unit, all columns of a tile and lanes of K beside each other.
  struct Place {
    loop::ValueId unit, tile, run, column, lane_k;
  };
  Place place_of(loop::ValueId number);
  bool find_runs(int64_t run);
  loop::ValueId run_element(loop::ValueId run) {
    return b_.add(w_.scaled(rem(run, near_together_), near_), w_.scaled(div(run, near_together_), far_));
  }
  loop::ValueId load(loop::ValueId row, loop::ValueId element, int64_t piece);
  void put_sums(const Item& item, const Place& at, const std::vector<loop::ValueId>& rounded, loop::ValueId number);
  loop::ValueId rem(loop::ValueId x, int64_t y) { return b_.op(ScalarOp::rem_, x, b_.i64(y)); }
  loop::ValueId div(loop::ValueId x, int64_t y) { return b_.op(ScalarOp::div_, x, b_.i64(y)); }
  int64_t pieces() const { return static_cast<int64_t>(t_.order.elements.size()) / kPiece; }  // of a unit
  int64_t slots() const { return t_.row->n * t_.lanes_k; }
  int64_t tiles() const { return t_.columns / t_.row->n; }
  int64_t sum_line() const { return t_.columns * t_.sum_copies(); }  // numbers of a group

  DotWriter& w_;
  loop::Builder& b_;
  const DotProblem& p_;
  const MatrixStreamPlan& t_;
  int64_t run_ = 1;  // pieces of an item
  // Elements from an item's to the next one's of the unit: so many of them follow each other, then those behind them.
  int64_t near_together_ = 1, near_ = 0, far_ = 0;
  bool aligned_ = true;
  loop::BufferId panel_ = -1, sums_ = -1;
};

}  // namespace lumen::synth
