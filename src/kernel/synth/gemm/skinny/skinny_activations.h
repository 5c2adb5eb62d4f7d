// Activations of a streamed dot (skinny_dot.h) in the shared memory of a block: as f32, or rounded to 8 bits in groups
// of kActivationGroup, in the order of the elements but for the runs of `share` elements, which lie in the order of the
// weight's codes. Units that the lanes of a row read at the same time lie interleaved, sixteen bytes of each, so that
// no banks collide. Proved by tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/skinny/skinny_dot_plan.h"

namespace lumen::synth {

class SkinnyActivations {
 public:
  // In the code of a block, whose shared memory it takes.
  SkinnyActivations(DotWriter& w, const DotProblem& p, const SkinnyDotPlan& t, const machine::Machine& m);

  // In a lane loop: this lane's part of all rows; visible behind a barrier. `meanwhile`: once, while the first are on
  // their way: what else is asked of the memory is to be asked behind them.
  void fill(Expr lane, const std::function<void()>& meanwhile);

  // Where a column lane's part begins, for units first + column, in lane loops. `group` counts `columns`
  // units.
  struct Position {
    Expr codes, numbers;  // bytes
  };
  Position place(int row, Expr group, Expr column);
  Expr quad(const Position& at, int64_t number);                        // f32x4: elements 4 number .. of the unit
  Expr word(const Position& at, const std::vector<int64_t>& elements);  // i8x4: codes of a run of the order
  // f32, of `fine` elements: the scale of products; the scale times the sum of codes, where no offset wants it times
  // the plan's bias.
  struct Numbers {
    Expr scale, total;
  };
  Numbers numbers(const Position& at, int64_t group);

 private:
  // `own_` elements of a row that a lane takes.
  struct Item {
    Expr number, exists, row, element;
    std::vector<Expr> x, codes;  // fours
    Expr most, scale, total;
  };
  void quantize(std::vector<Item>& items);
  void copy(const std::vector<Item>& items);
  void put(const Item& item);
  void where_exists(const Item& item, const std::function<void()>& body);
  std::vector<Expr> load(Expr row, Expr element, int64_t count);
  int64_t groups() const { return t_.unit / t_.integers->fine; }
  int64_t code_bytes() const { return t_.laid_units() * t_.unit * (t_.integers ? 1 : 4); }  // of a row
  int64_t each_number() const { return sums_ ? 8 : 4; }
  int64_t number_bytes() const { return t_.laid_units() * groups() * each_number(); }

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  const SkinnyDotPlan& t_;
  const machine::Machine& m_;
  bool sums_ = false;
  int64_t own_ = 4;    // four, so that lanes read beside each other, where places are found bit by bit; else a share
  int64_t apart_ = 1;  // elements from one that a lane takes to its next
  bool find_bits();
  void put_bytes(const Item& item, Expr unit_line, Expr within);
  int64_t place_of(int64_t element) const;  // of a share
  std::vector<std::vector<int64_t>> runs_;  // of `share` elements: those of its words
  BufferId codes_ = -1, numbers_ = -1;
};

}  // namespace lumen::synth
