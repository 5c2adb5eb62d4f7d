// One-byte codes with supplied fields of rows, tiles and the tensor, for kernels that encode the numbers they compute.
// A preceding step writes fields to the blob, and the parts of the code that depend on them alone
// (number/facts/code_parts.h) to scratch; if only the tensor has fields, which are few, the kernel writes them itself,
// and every task computes the parts. Proved by tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "kernel/synth/encode/encode.h"
#include "number/facts/code_parts.h"

namespace lumen::synth {

class CodeFields {
 public:
  // `cast`: a result of the group. Adds the steps that write its fields, and those that lay out the supplied values.
  CodeFields(const graph::Plan& plan, const graph::Group& group, graph::ValueId cast, const machine::Machine& target,
             Synthesis& out);
  void declare(KernelParams& kernel);  // declares parts of the code to the kernel that encodes
  void begin(Builder& b);              // in a task, before its codes

  int64_t columns() const { return columns_; }
  bool are_many() const;  // not of the tensor alone

  // Parts of the code by number, for one element or several: one lane, or all.
  using Values = std::vector<Expr>;
  Values at(Builder& b, Expr row, Expr column) const;                // of one element, and of all that share its parts
  Values along(Builder& b, Expr row, Expr column, int lanes) const;  // of adjacent elements in a row
  Values below(Builder& b, Expr row, Expr column, int lanes) const;  // of adjacent elements in a column
  Expr code(Builder& b, Expr x, const Values& parts) const;          // u8 lanes
  bool is_same_for(int64_t run, int64_t length) const;               // for aligned runs, in rows of `length`
  bool is_same_below(int64_t run) const;                             // the same in columns

  // Where the kernel that encodes computes the fields itself, f32 by number: writes a record of a level to the blob,
  // and gives the parts of the code.
  bool are_supplied() const { return !supplies_.empty(); }
  using Found = std::map<int, Expr>;
  void write_record(Builder& b, BufferId blob, Level level, Expr record, const Found& fields) const;
  Values parts_of(Builder& b, const Found& fields) const;
  int64_t parts() const { return std::ssize(parts_.parts); }

  // What one task has to write: fields of the tensor, and zeros between sections.
  bool has_rest() const;
  void write_rest(KernelParams& kernel) const;

 private:
  struct Supply {
    int field = 0;
    Argument from;
    int64_t numbers = 0;
    BufferId buffer = -1;  // of the kernel that encodes, if it reads it
    Expr number = {};
  };
  // Numbers in memory, f32, one for each record of a level.
  struct Part {
    Level level = Level::tensor;
    Argument from;
    int64_t numbers = 0;
    bool is_computed = false;  // by the step that writes the fields
    BufferId buffer = -1;
    Expr number = {};  // if each task computes it
  };
  bool is_in_kernel() const;  // fields are the tensor's alone
  const Supply& supply_of(int field) const;
  bool is_as_supplied(const RoutineExpr& part) const;
  Expr part_of(Builder& b, const RoutineExpr& part, const std::function<Expr(int)>& found) const;
  BufferId declared(KernelParams& kernel, const Argument& from, int64_t numbers, bool written) const;
  Expr record(Level level, Expr row, Expr column) const;
  Expr value(Builder& b, const Part& p, const std::vector<Expr>& records, bool are_neighbours) const;
  template <class Visit>
  void each_gap(const Visit& visit) const;
  Step write_step(const graph::Plan& plan) const;

  graph::ValueId cast_ = -1;
  const Format& format_;
  const machine::Machine& target_;
  ByteCode byte_;
  CodeParts parts_;
  int64_t rows_ = 1, columns_ = 1;
  BlobLayout layout_;
  std::vector<Supply> supplies_;
  std::vector<Part> places_;  // of parts_.parts
};

}  // namespace lumen::synth
