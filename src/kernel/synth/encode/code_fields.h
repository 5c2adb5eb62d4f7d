// Codes of one byte under supplied fields of rows, tiles and the tensor: what a kernel that computes numbers needs to
// encode them where they are. Fields are written into the blob by a step before. Proved by
// tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include <map>
#include <vector>

#include "kernel/synth/encode/encode.h"
#include "number/facts/record_fit.h"

namespace lumen::synth {

class CodeFields {
 public:
  // `cast`: a result of the group. Adds the steps that write its fields, and those that lay out what supplies them.
  CodeFields(const graph::Plan& plan, const graph::Group& group, graph::ValueId cast, const machine::Machine& target,
             Synthesis& out);
  void declare(StepBuilder& builder);  // what supplies the fields, to the kernel that encodes

  int64_t columns() const { return columns_; }
  bool are_many() const;  // not of the tensor alone

  // Fields of an element or of some, by number: one lane, or all.
  using Values = std::map<int, Expr>;
  Values at(Builder& b, Expr row, Expr column) const;                // of one element, or of all that share its
  Values along(Builder& b, Expr row, Expr column, int lanes) const;  // of neighbours in a row
  Values below(Builder& b, Expr row, Expr column, int lanes) const;  // of neighbours in a column
  Expr code(Builder& b, Expr x, const Values& fields) const;         // u32 lanes
  bool is_same_for(int64_t run, int64_t length) const;  // runs from multiples of theirs, in rows of so many
  bool is_same_below(int64_t run) const;                // the same of columns

  bool leaves_gaps() const;
  void clear_gaps(StepBuilder& builder) const;  // bytes between sections become zero

 private:
  struct Supply {
    int field = 0;
    Argument from;
    int64_t numbers = 0;
    BufferId buffer = -1;
  };
  BufferId declared(StepBuilder& builder, const Supply& s) const;
  Expr record(const Field& f, Expr row, Expr column) const;
  Expr value(Builder& b, const Supply& s, const std::vector<Expr>& records, bool are_neighbours) const;
  Expr evaluate(Builder& b, const RoutineExpr& e, Expr x, const Values& fields) const;
  template <class Visit>
  void each_gap(const Visit& visit) const;
  Step write_step(const graph::Plan& plan) const;

  graph::ValueId cast_ = -1;
  const Format& format_;
  ByteCode byte_;
  int64_t rows_ = 1, columns_ = 1;
  BlobLayout layout_;
  std::vector<Supply> supplies_;
};

}  // namespace lumen::synth
