// Activations of a streamed dot (dot_stream.h) in the shared memory of a block: as f32, or rounded to 8 bits in groups
// of kActivationGroup, in the order of the elements but for the runs of `share` elements, which lie in the order of the
// weight's codes. Units that the lanes of a row read at the same time lie interleaved, sixteen bytes of each, so that
// no banks collide. Proved by tests/kernel/synth/gemm/dot_stream_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/skinny/dot_stream_plan.h"

namespace lumen::synth {

class StreamActivations {
 public:
  // In the code of a block, whose shared memory it takes.
  StreamActivations(DotWriter& w, const DotProblem& p, const StreamPlan& t, const machine::Machine& m);

  // In a lane loop: this lane's part of all rows; visible behind a barrier. `meanwhile`: once, while the first are on
  // their way: what else is asked of the memory is to be asked behind them.
  void fill(loop::ValueId lane, const std::function<void()>& meanwhile);

  // Where a column lane's part begins, for units first + column, in lane loops. `group` counts `columns`
  // units.
  struct Place {
    loop::ValueId codes = -1, numbers = -1;  // bytes
  };
  Place place(int row, loop::ValueId group, loop::ValueId column);
  loop::ValueId quad(const Place& at, int64_t number);                        // f32x4: elements 4 number .. of the unit
  loop::ValueId word(const Place& at, const std::vector<int64_t>& elements);  // i8x4: codes of a run of the order
  // f32, of `fine` elements: the scale of products; the scale times the sum of codes, where no offset wants it times
  // the plan's bias.
  struct Numbers {
    loop::ValueId scale = -1, total = -1;
  };
  Numbers numbers(const Place& at, int64_t group);

 private:
  // `own_` elements of a row that a lane takes.
  struct Item {
    loop::ValueId number = -1, exists = -1, row = -1, element = -1;
    std::vector<loop::ValueId> x, codes;  // fours
    loop::ValueId most = -1, scale = -1, total = -1;
  };
  void quantize(std::vector<Item>& items);
  void copy(const std::vector<Item>& items);
  void put(const Item& item);
  void where_exists(const Item& item, const std::function<void()>& body);
  loop::ValueId rem(loop::ValueId x, int64_t y) { return b_.op(ScalarOp::rem_, x, b_.i64(y)); }
  loop::ValueId div(loop::ValueId x, int64_t y) { return b_.op(ScalarOp::div_, x, b_.i64(y)); }
  std::vector<loop::ValueId> load(loop::ValueId row, loop::ValueId element, int64_t count);
  int64_t groups() const { return t_.unit / t_.integers->fine; }
  int64_t code_bytes() const { return t_.laid_units() * t_.unit * (t_.integers ? 1 : 4); }  // of a row
  int64_t each_number() const { return sums_ ? 8 : 4; }
  int64_t number_bytes() const { return t_.laid_units() * groups() * each_number(); }

  DotWriter& w_;
  loop::Builder& b_;
  const DotProblem& p_;
  const StreamPlan& t_;
  const machine::Machine& m_;
  bool sums_ = false;
  int64_t own_ = 4;  // four, so that lanes read beside each other, where places are found bit by bit; else a share
  bool find_bits();
  void put_bytes(const Item& item, loop::ValueId unit_line, loop::ValueId within);
  int64_t place_of(int64_t element) const;  // of a share
  std::vector<std::vector<int64_t>> runs_;  // of `share` elements: those of its words
  loop::BufferId codes_ = -1, numbers_ = -1;
};

}  // namespace lumen::synth
