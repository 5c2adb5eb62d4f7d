// A routine as register code for the codec. All operands of a routine are in one array of cells, so an operand is an
// offset; f32 and i32 have their own instructions, other types use eval_scalar_op. Must not depend on blobs or levels.
// Proved by tests/number/codec_test.cpp and tests/number/reader_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "number/format/format.h"

namespace lumen::interpret {

// A number in a register; the instruction determines the type. f32 as float, everything else as int64.
union Cell {
  int64_t whole;
  float real;
};

enum class Code : uint8_t {
  move,
  load,
  load_source,
  store,
  store_field,
  jump,
  jump_unless,
  loop_start,
  loop_next,
  fadd,
  fsub,
  fmul,
  fdiv,
  fneg,
  fabs,
  fmin,
  fmax,
  ffloor,
  fceil,
  ftrunc,
  frint,
  fround,
  fsqrt,
  feq,
  fne,
  flt,
  fle,
  iadd,
  isub,
  imul,
  idiv,
  irem,
  ineg,
  iabs,
  imin,
  imax,
  iand,
  ior,
  ixor,
  inot,
  ishl,
  ishr,
  ieq,
  ine,
  ilt,
  ile,
  bnot,
  select,
  to_float,
  to_whole,
  other,
};

// An integer clamped to the range of a field's type.
int64_t nearest_whole(const FieldType& type, int64_t value);

struct Instruction {
  Code code;
  int32_t to = 0;  // cell, or jump target
  int32_t a = 0, b = 0, c = 0;
};

// Cell assignment of a format: fields of all levels, then tables, then each program's own cells.
struct CellPlan {
  explicit CellPlan(const Format& f);
  std::vector<int32_t> field, table;  // first cell of each
  int32_t size = 0;
};

class Program {
 public:
  Program(const Format& f, const Routine& routine, CellPlan& plan);

  // Sets constants and zeroes locals; once per set of cells.
  void prepare(Cell* cells) const;
  // Runs. `sources`: x and w. Fields with a true entry in `supplied` are not overwritten.
  void run(Cell* cells, const float* const sources[2], int64_t extent, const std::vector<bool>& supplied) const;

  int32_t cell_of(int variable) const { return variables_[variable]; }
  int32_t result() const { return result_; }

 private:
  friend class Compiler;
  const Format& format_;
  std::vector<Instruction> code_;
  std::vector<std::pair<int32_t, Cell>> constants_;
  struct Other {
    ScalarNode node;
    Scalar operand;
    Scalar types[3];
  };
  static void evaluate(const Other& o, const Cell* args, Cell& to);

  std::vector<Other> others_;
  std::vector<int32_t> variables_;
  int32_t first_local_ = 0, end_local_ = 0;
  int32_t extent_cell_ = -1;
  int32_t result_ = -1;
};

}  // namespace lumen::interpret
