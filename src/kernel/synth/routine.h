// Lowers the structured programs of a format (fit, code, decode) one to one into loop IR: variables and arrays are private allocs,
// loops serial, every operation in source order, so results equal the codec's bit for bit. Scalar and general; the vector
// paths (unpack.h, encode.cpp) take over where a routine is straight line. Proved by tests/kernel/synth_codec_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/loop/build.h"
#include "kernel/synth/field.h"
#include "number/format.h"

namespace lumen::synth {

// What a routine sees of the world. Indices are i64 scalars.
struct RoutineHooks {
  std::function<loop::ValueId(loop::ValueId index)> source;                                        // x[index], f32
  std::function<loop::ValueId(int field, loop::ValueId index)> field;                              // in its register type
  std::function<void(int field, loop::ValueId index, loop::ValueId value)> set_field;
  std::function<loop::ValueId(int table, loop::ValueId index)> table;
};

class RoutineRun {
 public:
  // Allocates the variables in the current region.
  RoutineRun(loop::Builder& b, const Format& f, const Routine& r, RoutineHooks hooks);
  void set_variable(int slot, loop::ValueId value);
  loop::ValueId variable(int slot);
  void run();                                        // the body
  loop::ValueId result();                            // after run()
  loop::ValueId evaluate(const RoutineExpr& e);

 private:
  void statement(const RoutineStmt& s);
  loop::ValueId index_of(const RoutineExpr& e, int64_t extent);

  loop::Builder& b_;
  const Format& format_;
  const Routine& routine_;
  RoutineHooks hooks_;
  std::vector<loop::BufferId> buffers_;
  int inside_select_ = 0;
};

// A field's entry `index` (i64 scalar, known or not) of the record at `record` (i64 byte offset), in its register type; and back.
// `write_field` clears the entry's bits first.
loop::ValueId read_field(loop::Builder& b, const Field& f, loop::BufferId buffer, loop::ValueId record, loop::ValueId index);
void write_field(loop::Builder& b, const Field& f, loop::BufferId buffer, loop::ValueId record, loop::ValueId index,
                 loop::ValueId value);

// A constant table in private memory, filled here; entries of table_bytes() bytes.
loop::BufferId lay_table(loop::Builder& b, const FormatTable& t);
// Entry `index` (any integer lanes) in the table's register type (f32, or i32).
loop::ValueId read_table(loop::Builder& b, const FormatTable& t, loop::BufferId buffer, loop::ValueId index);

// The same operation on values; converts where the op writes its type.
loop::ValueId apply_op(loop::Builder& b, const RoutineExpr& e, const std::vector<loop::ValueId>& args);

}  // namespace lumen::synth
