// Reading a blob: the codes and values of a format's elements as vectors, with everything that depends on a lane's
// place folded at synthesis time. A cursor over blocks. Formats enter through layouts, routines and facts alone. Used
// by every kernel that reads a format. Proved by tests/kernel/synth/synth_unpack_test.cpp.
//
// Unpack u(b, format, buffer, rows, columns);
// b.loop(.. row ..) { u.enter_row(row);                   optional: loads row fields here, once per row
// b.loop(.. block in the row ..) { u.enter_block(first block, how many blocks may be read);
// for position = 0, W, 2 W ..: v = u.values(position, W) } }
//
// What was loaded for a block or a row is kept until the next enter_*; so call enter_block inside the region that reads
// it, and again in each sibling region. Element e of the tensor (row-major) is in block e / format.block, counted over
// all rows.
//
// May include: base, kernel/loop, kernel/machine, number/facts, number/format.
// Offers: bits_as.h, magnitude.h, pair_table.h, routine.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/unpack/field.h"
#include "number/facts/facts.h"
#include "number/format/format.h"

namespace lumen::synth {

// A number known for each lane at synthesis time, or a loop value (a scalar when equal in all lanes).
struct Lanes {
  Scalar type = Scalar::f32;
  Expr value;                      // no value: known
  std::vector<ScalarValue> known;  // one number (equal in all lanes) or one per lane
  bool is_known() const { return !value.exists(); }
  const ScalarValue& lane(size_t l) const { return known[known.size() == 1 ? 0 : l]; }
};

class Unpack {
 public:
  // The blob starts `start` bytes into the buffer (no value: at its beginning).
  Unpack(Builder& b, const Format& f, BufferId buffer, int64_t rows, int64_t columns, Expr start = {});
  Unpack(const Unpack&) = delete;
  Unpack& operator=(const Unpack&) = delete;

  // Rows of this machine may be used: look-ups of floats, bits of many lanes at once.
  void use(const machine::Machine& m) { machine_ = &m; }
  // Computes numbers from bytes where the machine processes many of those at once: worth it for whole vectors of codes,
  // not for a few scales.
  void make_of_bytes() { of_bytes_ = true; }
  // Loads tensor-level fields and lays out look-up tables here: call it once per task, before the loops. Without it
  // both are done again for every block that needs them.
  void enter_tensor();
  // Row r (i64 scalar): its row-level fields are loaded here. Blocks entered afterwards must be in this row.
  void enter_row(Expr row);
  // Blocks first .. first + count - 1 (i64 scalar, counted over the whole tensor, all in one row) become readable.
  void enter_block(Expr first, int64_t count = 1);

  // The same where these blocks have been copied to byte `byte` of another buffer; other fields stay where they are.
  // The last `hidden` bytes may not be read.
  void enter_copied(Expr first, int64_t count, BufferId buffer, Expr byte, int64_t hidden = 0);

  // Elements position .. position + lanes - 1, counted from the first element of the entered blocks; they may span
  // them.
  Expr values(int64_t position, int lanes);  // f32, decoded
  Expr codes(int field, int64_t position, int lanes,
             bool as_bytes);  // raw codes of an element field: u8, or u32
  // Any expression over i (variable 0), e.g. a piece of an AffineForm; one lane when it is equal in all lanes, unless
  // `splat`.
  Expr expression(const RoutineExpr& e, int64_t position, int lanes, bool splat);
  // The same for any elements of the entered blocks, in any order. `bytes` gives an integer expression modulo 256 as
  // u8, computed in as few bits as its ranges allow; tables of small codes by the machine's look-up where `rows` has
  // it.
  Expr expression(const RoutineExpr& e, const std::vector<int64_t>& elements, bool splat);
  Expr codes(int field, const std::vector<int64_t>& elements, bool as_bytes, const machine::Machine* rows = nullptr);
  Expr bytes(const RoutineExpr& e, const std::vector<int64_t>& elements, const machine::Machine& rows);
  // The raw bytes of the entered blocks.
  Window& window() { return *block_window_; }

  // Element e (i64 scalar, anywhere in the tensor), decoded by the general way: slow, for irregular reads. Needs no
  // enter_*.
  Expr value_at(Expr element);

  // Whether decode is straight-line code, so that values() works lane by lane; otherwise values() decodes one element
  // at a time.
  bool straight() const { return straight_; }
  // Whether blocks must be entered row by row (the format has row or tile fields).
  bool needs_rows() const;
  const Format& format() const { return format_; }
  const BlobLayout& layout() const { return layout_; }

 private:
  struct Frame {
    std::vector<int64_t> elements;  // by lane
    std::vector<std::optional<Lanes>> variables;
    int lanes() const { return elements.size(); }
  };
  Frame frame_at(std::vector<int64_t> elements) const;
  std::vector<FieldPlace> places_of(const Field& field, const Lanes& index, const Frame& frame) const;
  class Narrow;
  Lanes evaluate(const RoutineExpr& e, const Frame& frame);
  Lanes apply(const RoutineExpr& e, const Frame& frame);
  // An integer as f32, from bytes, where the machine processes many of them at once.
  std::optional<Lanes> float_of_bytes(const RoutineExpr& integer, const Frame& frame);
  Lanes read_field_lanes(const RoutineExpr& e, const Frame& frame);
  Lanes read_tile_lanes(const Field& field, int64_t entry, const Frame& frame);
  Lanes read_table_lanes(const RoutineExpr& e, const Frame& frame);
  std::optional<Lanes> read_table_once(const RoutineExpr& e, const Frame& frame);
  // Adds to `what` how an expression depends on each lane's place; false if lanes may differ otherwise.
  bool tells_lanes_apart(const RoutineExpr& e, const Frame& frame, std::vector<std::vector<int64_t>>* what);
  Expr materialize(const Lanes& x, int lanes, bool splat);
  Expr row_of_block();
  // The record of a level above the block: by row and column, or of an element of the entered blocks.
  Expr outer_record(Level level, Expr row, Expr column);
  Expr outer_record(Level level, int64_t element);
  Window record_window(Level level, Expr number);
  Window loaded_record(Level level, Expr number);
  BufferId table_buffer(int table);
  Expr table_entry(const FormatTable& t, int slot, Expr index);
  Expr at(int64_t bytes);

  Builder& b_;
  Expr wide_codes(int slot, const Frame& frame);

  const Format& format_;
  const machine::Machine* machine_ = nullptr;
  bool of_bytes_ = false;
  BufferId buffer_;
  int64_t columns_;
  Expr start_;
  BlobLayout layout_;
  bool straight_ = true;
  bool tensor_entered_ = false;
  Expr entered_row_, block_;
  BufferId block_buffer_ = -1;  // that holds the entered blocks, from byte block_base_ on
  Expr block_base_;
  int64_t block_count_ = 1;
  std::optional<Window> block_window_, row_window_, tensor_window_;
  std::map<int64_t, Window> tile_windows_;  // 0: the tile of the first block entered, 1: the next in its row
  std::map<int, BufferId> tables_;
  std::map<std::pair<int, int64_t>, Expr> wide_codes_;  // by field and first element
};

// Looks up entries (of up to 256, modulo 256) by the machine's byte look-up; whether it has one for so many lanes. With
// more than 16 entries, a power of two, higher bits of the index are ignored.
Expr look_up_bytes(Builder& b, const std::vector<int64_t>& table, Expr index, const machine::Machine& m);
bool looks_up_bytes(int64_t entries, int lanes, const machine::Machine& m);
// Whether decode computes every number from bytes, many at once.
bool decodes_by_bytes(const Format& f, const machine::Machine& m);
// Looks up four codes of four bits, at bit `down` (0 or 4) of a word's bytes, in a table of up to 16 entries; gives
// bytes of a word. For machines that permute bytes by bytes. With at most 8 entries codes have no fourth bit.
Expr look_up_halves(Builder& b, const std::vector<int64_t>& table, Expr word, int down);

}  // namespace lumen::synth
