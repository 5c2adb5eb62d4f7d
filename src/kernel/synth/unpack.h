// Reading a blob: the codes and values of a format's elements as vectors, with everything a lane's place decides folded at
// synthesis time. A cursor over blocks. Formats enter through layouts, routines and facts alone. Used by every kernel that reads
// a format. Proved by tests/kernel/synth_unpack_test.cpp.
//
//   Unpack u(b, format, buffer, rows, columns);
//   b.loop(.. row ..) { u.enter_row(row);                   optional: loads row fields here, once per row
//     b.loop(.. block in the row ..) { u.enter_block(first block, how many blocks may be read);
//       for position = 0, W, 2 W ..: v = u.values(position, W) } }
//
// What was loaded for a block or a row is kept until the next enter_*; so call enter_block inside the region that reads it, and
// again in each sibling region. Element e of the tensor (row-major) lies in block e / format.block, counted over all rows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/loop/build.h"
#include "kernel/synth/field.h"
#include "number/facts.h"
#include "number/format.h"

namespace lumen::synth {

// A number known for each lane when the kernel is made, or a loop value (a scalar when equal in all lanes).
struct Lanes {
  Scalar type = Scalar::f32;
  loop::ValueId value = -1;          // -1: known
  std::vector<ScalarValue> known;    // one number (equal in all lanes) or one per lane
  bool is_known() const { return value < 0; }
};

class Unpack {
 public:
  // The blob starts `start` bytes into the buffer (-1: at its beginning).
  Unpack(loop::Builder& b, const Format& f, loop::BufferId buffer, int64_t rows, int64_t columns, loop::ValueId start = -1);
  ~Unpack();
  Unpack(const Unpack&) = delete;
  Unpack& operator=(const Unpack&) = delete;

  // Loads the tensor-level fields here (otherwise they are loaded again for every block that needs them).
  void enter_tensor();
  // Row r (i64 scalar): its row-level fields are loaded here. Blocks entered afterwards must lie in this row.
  void enter_row(loop::ValueId row);
  // Blocks first .. first + count - 1 (i64 scalar, counted over the whole tensor) become readable.
  void enter_block(loop::ValueId first, int64_t count = 1);

  // Elements position .. position + lanes - 1, counted from the first element of the entered block; they may span the blocks entered.
  loop::ValueId values(int64_t position, int lanes);                             // f32, decoded
  loop::ValueId codes(int field, int64_t position, int lanes, bool as_bytes);    // raw codes of an element field: u8, or u32
  // Any expression over i (variable 0), e.g. a piece of an AffineForm. A scalar when it is equal in all lanes and `splat` is not set.
  loop::ValueId expression(const RoutineExpr& e, int64_t position, int lanes, bool splat);

  // Element e (i64 scalar, anywhere in the tensor), decoded by the general way: slow, for irregular reads. Needs no enter_*.
  loop::ValueId value_at(loop::ValueId element);

  // Whether decode is straight line, so that values() works lane by lane; otherwise values() decodes one element at a time.
  bool straight() const { return straight_; }
  const Format& format() const { return format_; }
  const BlobLayout& layout() const { return layout_; }

 private:
  struct Frame;
  Lanes evaluate(const RoutineExpr& e, const Frame& frame);
  Lanes field_lanes(const RoutineExpr& e, const Frame& frame);
  Lanes table_lanes(const RoutineExpr& e, const Frame& frame);
  loop::ValueId materialize(const Lanes& x, int lanes);
  Window& window_of(Level level, int64_t tile_position);
  loop::ValueId data_start() const;
  loop::ValueId offset(int64_t bytes);

  loop::Builder& b_;
  const Format& format_;
  loop::BufferId buffer_;
  int64_t rows_, columns_;
  loop::ValueId start_;
  BlobLayout layout_;
  bool straight_ = true;
  loop::ValueId row_ = -1, block_ = -1;
  int64_t block_count_ = 1;
  std::optional<Window> block_window_, row_window_, tensor_window_;
  std::map<int64_t, Window> tile_windows_;                    // by block of the entered ones
  std::map<std::string, Lanes> shared_;                       // expressions equal in all lanes of a block, by block and text
};

}  // namespace lumen::synth
