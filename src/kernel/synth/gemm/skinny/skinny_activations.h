// Activations of a streamed dot (skinny_dot.h) in the shared memory of a block: as f32, or rounded to 8 bits in groups
// of kActivationGroup. Elements keep their order, except that each run of `share` elements has the order of the
// weight's codes. Units that the lanes of a row read at the same time are interleaved, sixteen bytes of each, to avoid
// bank conflicts. Proved by tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/skinny/skinny_dot_plan.h"

namespace lumen::synth {

class SkinnyActivations {
 public:
  // In the code of a block: allocates its shared memory.
  SkinnyActivations(DotWriter& w, const DotProblem& p, const SkinnyDotPlan& t, const machine::Machine& m);

  // In a lane loop: writes this lane's part of all rows; visible after a barrier. `meanwhile` is called once while the
  // first loads are in flight: other loads should be issued after them.
  void fill(Expr lane, const std::function<void()>& meanwhile);

  // Start of a column lane's part, for units first + column, in lane loops. `group` counts `columns` units.
  struct Position {
    Expr codes, numbers;  // bytes
  };
  Position place(int row, Expr group, Expr column);
  Expr quad(const Position& at, int64_t number);                        // f32x4: elements 4 number .. of the unit
  Expr word(const Position& at, const std::vector<int64_t>& elements);  // i8x4: codes of a run of the order
  // f32, of `fine` elements: the scale of products; the scale times the sum of codes, and also times the plan's bias if
  // there is no offset.
  struct Numbers {
    Expr scale, total;
  };
  Numbers numbers(const Position& at, int64_t group);

 private:
  // `own_` elements of a row that a lane handles.
  struct Item {
    Expr number, exists, row, element;
    std::vector<Expr> x, codes;  // vectors of four
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
  int64_t own_ = 4;    // four, so that lanes read adjacent memory, if find_bits(); otherwise a share
  int64_t apart_ = 1;  // from one element that a lane takes to its next
  bool find_bits();
  void put_bytes(const Item& item, Expr unit_line, Expr within);
  int64_t place_of(int64_t element) const;  // within a share
  std::vector<std::vector<int64_t>> runs_;  // within `share` elements: those of each word
  BufferId codes_ = -1, numbers_ = -1;
};

}  // namespace lumen::synth
