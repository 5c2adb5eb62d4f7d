// Lowers the structured programs of a format (fit, code, decode) one to one into loop IR: variables and arrays are
// private allocs, loops serial, every operation in source order, so results equal the codec's bit for bit. Lanes run
// the program in parallel on different records: branches become masks, and no sum is ever reordered. Proved by
// tests/kernel/synth/synth_codec_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/unpack/field.h"
#include "kernel/synth/unpack/lane_facts.h"
#include "number/format/format.h"

namespace lumen::synth {

// A routine's access to its environment. Indices are i64, one lane when equal in all lanes; results have one lane or
// all.
struct RoutineHooks {
  std::function<Expr(int slot, Expr index)> source;  // f32: x[index]; slot 1: its importance
  std::function<Expr()> extent;                      // len(x), i64 scalar
  std::function<Expr(int field, Expr index)> field;  // in its register type
  // mask: lanes to be set, no value for all.
  std::function<void(int field, Expr index, Expr value, Expr mask)> set_field;
  std::function<Expr(int table, Expr index)> table;
  // Where lanes share shared_loop(): the largest magnitude over all of them, as bits (u32), the same in all.
  std::function<Expr()> magnitude = nullptr;
};

// Slots of locals that one routine keeps for another: in the first routine, and in the second.
std::vector<int> kept_from(const std::vector<KeptLocal>& kept);
std::vector<int> kept_for(const std::vector<KeptLocal>& kept);

class RoutineRun {
 public:
  // Allocates the variables in the current region. `uniform`: parameters and locals that are set to uniform values.
  // `kept`: locals that copy() sets or reads.
  RoutineRun(Builder& b, const Routine& r, RoutineHooks hooks, int lanes = 1, const std::vector<int>& uniform = {},
             const std::vector<int>& kept = {});
  void set_variable(int slot, Expr value);
  Expr variable(int slot);
  // Copies a variable or array of another run with as many lanes.
  void copy(int slot, const RoutineRun& from, int from_slot);
  void clear();   // all variables zero
  void run();     // the body
  Expr result();  // after run()
  Expr evaluate(const RoutineExpr& e);

 private:
  void statement(const RoutineStmt& s);
  void statements(const std::vector<RoutineStmt>& body);
  void loop(const RoutineStmt& s);
  Expr index_of(const RoutineExpr& e);
  Expr element_offset(int slot, Expr index);
  Expr widen(Expr x);
  int slot_lanes(int slot) const { return facts_.uniform[slot] ? 1 : lanes_; }
  Scalar slot_type(int slot) const;
  // Lanes that are active in the branches after the first `depth`; no value: all.
  Expr lanes_from(size_t depth) const;

  Builder& b_;
  const Routine& routine_;
  RoutineHooks hooks_;
  int lanes_;
  LaneFacts facts_;  // uniform variables have one lane in memory
  std::vector<BufferId> buffers_;
  std::vector<Expr> branches_;  // conditions of the divergent branches around the current statement
};

// A field's entry `index` (i64 scalar, known or not) of the record at `record` (i64 byte offset), in its register type;
// and back. `write_field` clears the entry's bits first.
Expr read_field(Builder& b, const Field& f, BufferId buffer, Expr record, Expr index);
void write_field(Builder& b, const Field& f, BufferId buffer, Expr record, Expr index, Expr value);
// The same of a raw code (u32, or u64 above 32 bits).
void write_code(Builder& b, const Field& f, BufferId buffer, Expr record, Expr index, Expr code);

// A constant table in private memory, filled here.
BufferId lay_table(Builder& b, const FormatTable& t);
// Entry `index` (any integer lanes) in the table's register type (f32, or an integer of at least 32 bits).
Expr read_table(Builder& b, const FormatTable& t, BufferId buffer, Expr index);
// The same by permutes of vectors that hold the table; no value if the machine has no such instruction for so many
// lanes, or the table is long.
Expr permute_table(Builder& b, const machine::Machine& m, const FormatTable& t, Expr index);

// The operation of an expression on values of equal lanes; converts where the op writes its type.
Expr apply_op(Builder& b, const RoutineExpr& e, const std::vector<Expr>& args);

}  // namespace lumen::synth
