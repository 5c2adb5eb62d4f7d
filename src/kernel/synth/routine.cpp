#include "kernel/synth/routine.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace lumen::synth {

using loop::BufferId;
using loop::ValueId;
using loop::VType;

namespace {

uint64_t low_mask(int bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

// Bit of the piece's lowest bit for a run-time element: the mixed-radix digits of (index - first) over the modes.
ValueId bit_of(loop::Builder& b, const LayoutPiece& piece, ValueId index) {
  ValueId rest = piece.first == 0 ? index : b.op(ScalarOp::sub_, index, b.i64(piece.first));
  ValueId bit = b.i64(piece.base);
  for (size_t k = piece.modes.size(); k-- > 0;) {
    const LayoutMode& mode = piece.modes[k];
    const ValueId digit = k == 0 ? rest : b.op(ScalarOp::rem_, rest, b.i64(mode.extent));
    bit = b.add(bit, b.mul(digit, b.i64(mode.stride)));
    if (k != 0) rest = b.op(ScalarOp::div_, rest, b.i64(mode.extent));
  }
  return bit;
}

// The largest power of two (at most 64) that divides every bit position of the piece.
int64_t granule(const LayoutPiece& piece) {
  int64_t g = piece.base | 64;
  for (const LayoutMode& mode : piece.modes)
    if (mode.extent > 1) g |= mode.stride;
  return g & -g;
}

// Bytes an entry may touch: its bits begin at a multiple of the granule.
int64_t bytes_touched(const LayoutPiece& piece) {
  const int64_t g = std::min<int64_t>(granule(piece), 8);
  return (8 - g + piece.bits + 7) / 8;
}

bool whole_bytes(const LayoutPiece& piece) {
  return granule(piece) >= 8 && (piece.bits == 8 || piece.bits == 16 || piece.bits == 32 || piece.bits == 64);
}

Scalar unsigned_of(int bits) {
  return bits == 8 ? Scalar::u8 : bits == 16 ? Scalar::u16 : bits == 32 ? Scalar::u32 : Scalar::u64;
}

// Calls body for the pieces that hold entry `index`, under a branch where that depends on a run-time index.
void for_pieces(loop::Builder& b, const Field& f, ValueId index, const std::function<void(const LayoutPiece&)>& body) {
  for (const LayoutPiece& piece : f.layout.pieces) {
    const auto known = b.known_integer(index);
    if (piece.first == 0 && piece.count == f.count) {
      body(piece);
    } else if (known) {
      if (*known >= piece.first && *known < piece.first + piece.count) body(piece);
    } else {
      const ValueId inside = b.op(ScalarOp::and_, b.op(ScalarOp::le_, b.i64(piece.first), index),
                                  b.op(ScalarOp::lt_, index, b.i64(piece.first + piece.count)));
      b.branch(inside, [&] { body(piece); });
    }
  }
}

}  // namespace

ValueId read_field(loop::Builder& b, const Field& f, BufferId buffer, ValueId record, ValueId index) {
  const Scalar wide = f.type.bits > 32 ? Scalar::u64 : Scalar::u32;
  const VType u64{Scalar::u64, 1};
  const bool one = f.layout.pieces.size() == 1 && f.layout.pieces[0].count == f.count;
  const BufferId code = one ? -1 : b.alloc(scalar_bytes(wide), scalar_bytes(wide));
  ValueId single = -1;
  if (!one) b.store(code, b.integer(0, {wide, 1}), b.i64(0), scalar_bytes(wide));
  for_pieces(b, f, index, [&](const LayoutPiece& piece) {
    const ValueId bit = bit_of(b, piece, index);
    const ValueId byte = b.add(record, b.op(ScalarOp::shr_, bit, b.i64(3)));
    ValueId x = -1;
    if (whole_bytes(piece)) {
      x = b.convert(ScalarOp::cast_, wide, b.load(buffer, {unsigned_of(piece.bits), 1}, byte, 1));
    } else {
      // Past-the-end bytes are never touched: byte j is read only where the entry reaches it, by clamping to its last byte.
      const ValueId last = b.add(record, b.op(ScalarOp::shr_, b.add(bit, b.i64(piece.bits - 1)), b.i64(3)));
      for (int64_t j = 0; j < bytes_touched(piece); ++j) {
        const ValueId at = j == 0 ? byte : b.op(ScalarOp::min_, b.add(byte, b.i64(j)), last);
        ValueId y = b.convert(ScalarOp::cast_, Scalar::u64, b.load(buffer, {Scalar::u8, 1}, at, 1));
        if (j > 0) y = b.op(ScalarOp::shl_, y, b.integer(8 * j, u64));
        x = x < 0 ? y : b.op(ScalarOp::or_, x, y);
      }
      const ValueId shift = b.convert(ScalarOp::cast_, Scalar::u64, b.op(ScalarOp::and_, bit, b.i64(7)));
      x = b.op(ScalarOp::and_, b.op(ScalarOp::shr_, x, shift), b.integer(static_cast<int64_t>(low_mask(piece.bits)), u64));
      x = b.convert(ScalarOp::cast_, wide, x);
    }
    if (piece.value_bit != 0) x = b.op(ScalarOp::shl_, x, b.integer(piece.value_bit, {wide, 1}));
    if (one) {
      single = x;
    } else {
      b.store(code, b.op(ScalarOp::or_, b.load(code, {wide, 1}, b.i64(0), scalar_bytes(wide)), x), b.i64(0), scalar_bytes(wide));
    }
  });
  if (!one) single = b.load(code, {wide, 1}, b.i64(0), scalar_bytes(wide));
  return decode_codes(b, f.type, single);
}

void write_field(loop::Builder& b, const Field& f, BufferId buffer, ValueId record, ValueId index, ValueId value) {
  const ValueId code = encode_value(b, f.type, value);
  const Scalar wide = b.type(code).scalar;
  const VType u64{Scalar::u64, 1}, u8{Scalar::u8, 1};
  for_pieces(b, f, index, [&](const LayoutPiece& piece) {
    const ValueId bit = bit_of(b, piece, index);
    const ValueId byte = b.add(record, b.op(ScalarOp::shr_, bit, b.i64(3)));
    ValueId x = code;
    if (piece.value_bit != 0) x = b.op(ScalarOp::shr_, x, b.integer(piece.value_bit, {wide, 1}));
    if (whole_bytes(piece)) {
      b.store(buffer, b.convert(ScalarOp::cast_, unsigned_of(piece.bits), x), byte, 1);
      return;
    }
    const ValueId mask = b.integer(static_cast<int64_t>(low_mask(piece.bits)), u64);
    x = b.op(ScalarOp::and_, b.convert(ScalarOp::cast_, Scalar::u64, x), mask);
    const ValueId shift = b.convert(ScalarOp::cast_, Scalar::u64, b.op(ScalarOp::and_, bit, b.i64(7)));
    x = b.op(ScalarOp::shl_, x, shift);
    const ValueId keep = b.op(ScalarOp::not_, b.op(ScalarOp::shl_, mask, shift));
    const ValueId last = b.op(ScalarOp::shr_, b.add(bit, b.i64(piece.bits - 1)), b.i64(3));
    for (int64_t j = 0; j < bytes_touched(piece); ++j) {
      const auto put = [&] {
        const ValueId at = b.add(byte, b.i64(j));
        const ValueId j8 = b.integer(8 * j, u64);
        const ValueId old = b.load(buffer, u8, at, 1);
        const ValueId kept = b.op(ScalarOp::and_, old, b.convert(ScalarOp::cast_, Scalar::u8, b.op(ScalarOp::shr_, keep, j8)));
        b.store(buffer, b.op(ScalarOp::or_, kept, b.convert(ScalarOp::cast_, Scalar::u8, b.op(ScalarOp::shr_, x, j8))), at, 1);
      };
      if (j == 0) {
        put();
      } else {
        b.branch(b.op(ScalarOp::le_, b.add(b.op(ScalarOp::shr_, bit, b.i64(3)), b.i64(j)), last), put);
      }
    }
  });
}

BufferId lay_table(loop::Builder& b, const FormatTable& t) {
  const Scalar s = is_float(t.type) ? Scalar::f32 : t.type;
  const int size = scalar_bytes(s);
  const auto count = static_cast<int64_t>(t.values.size());
  const BufferId buffer = b.alloc(std::max<int64_t>(count * size, 1), 64);
  const int64_t lanes = 64 / size;
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t n = std::min(lanes, count - i);
    for (int64_t at = 0; at < n;) {  // powers of two, so that every store is a plain one
      const auto width = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - at)));
      const auto first = t.values.begin() + i + at;
      ValueId v = -1;
      if (is_float(s)) {
        v = b.lanes_real({first, first + width}, s);
      } else {
        std::vector<int64_t> whole;
        for (auto x = first; x != first + width; ++x) whole.push_back(*x >= 9.2e18 ? static_cast<int64_t>(static_cast<uint64_t>(*x)) : static_cast<int64_t>(*x));
        v = b.lanes_integer(std::move(whole), s);
      }
      b.store(buffer, v, b.i64((i + at) * size), 1);
      at += width;
    }
  }
  return buffer;
}

ValueId read_table(loop::Builder& b, const FormatTable& t, BufferId buffer, ValueId index) {
  const Scalar s = is_float(t.type) ? Scalar::f32 : t.type;
  const int lanes = b.type(index).lanes;
  ValueId offset = b.convert(ScalarOp::cast_, Scalar::i64, index);
  offset = b.mul(offset, b.integer(scalar_bytes(s), {Scalar::i64, lanes}));
  const ValueId v = lanes == 1 ? b.load(buffer, {s, 1}, offset, scalar_bytes(s)) : b.gather(buffer, s, offset);
  if (is_float(s) || scalar_bits(s) >= 32) return v;
  return b.convert(ScalarOp::cast_, Scalar::i32, v);
}

ValueId apply_op(loop::Builder& b, const RoutineExpr& e, const std::vector<ValueId>& args) {
  if (scalar_op_info(e.op).result == "cast") return b.convert(e.op, e.type, args[0]);
  return b.op(e.op, args[0], args.size() > 1 ? args[1] : -1, args.size() > 2 ? args[2] : -1);
}

RoutineRun::RoutineRun(loop::Builder& b, const Format& f, const Routine& r, RoutineHooks hooks)
    : b_(b), format_(f), routine_(r), hooks_(std::move(hooks)) {
  for (const RoutineVariable& v : r.variables) {
    const int size = scalar_bytes(v.type);
    buffers_.push_back(b.alloc(std::max<int64_t>(v.extent, 1) * size, v.extent > 0 ? 64 : size));
  }
}

void RoutineRun::set_variable(int slot, ValueId value) {
  const Scalar s = routine_.variables[slot].type;
  if (s == Scalar::boolean) value = b_.convert(ScalarOp::cast_, Scalar::u8, value);
  b_.store(buffers_[slot], b_.convert(ScalarOp::cast_, s == Scalar::boolean ? Scalar::u8 : s, value), b_.i64(0), scalar_bytes(s));
}

ValueId RoutineRun::variable(int slot) {
  const Scalar s = routine_.variables[slot].type;
  if (s != Scalar::boolean) return b_.load(buffers_[slot], {s, 1}, b_.i64(0), scalar_bytes(s));
  const ValueId byte = b_.load(buffers_[slot], {Scalar::u8, 1}, b_.i64(0), 1);
  return b_.op(ScalarOp::ne_, byte, b_.integer(0, {Scalar::u8, 1}));
}

ValueId RoutineRun::index_of(const RoutineExpr& e, int64_t extent) {
  ValueId i = b_.convert(ScalarOp::cast_, Scalar::i64, evaluate(e));
  // Both sides of a select are computed; the one not chosen may look outside.
  if (inside_select_ > 0 && !b_.known_integer(i))
    i = b_.op(ScalarOp::min_, b_.op(ScalarOp::max_, i, b_.i64(0)), b_.i64(extent - 1));
  return i;
}

ValueId RoutineRun::evaluate(const RoutineExpr& e) {
  using Kind = RoutineExpr::Kind;
  switch (e.kind) {
    case Kind::constant:
      return is_float(e.type) ? b_.real(e.real, {e.type, 1}) : b_.integer(e.integer, {e.type, 1});
    case Kind::variable: return variable(e.slot);
    case Kind::element: {
      const RoutineVariable& v = routine_.variables[e.slot];
      const ValueId offset = b_.mul(index_of(e.args[0], v.extent), b_.i64(scalar_bytes(v.type)));
      return b_.load(buffers_[e.slot], {v.type, 1}, offset, scalar_bytes(v.type));
    }
    case Kind::source: {
      LUMEN_CHECK(e.slot == 0, "importance is not known to kernels");
      return hooks_.source(index_of(e.args[0], INT64_MAX));
    }
    case Kind::field: return hooks_.field(e.slot, index_of(e.args[0], format_.fields[e.slot].count));
    case Kind::table:
      return hooks_.table(e.slot, index_of(e.args[0], static_cast<int64_t>(format_.tables[e.slot].values.size())));
    case Kind::op: {
      std::vector<ValueId> args;
      for (size_t k = 0; k < e.args.size(); ++k) {
        const bool branch = e.op == ScalarOp::select_ && k > 0;
        inside_select_ += branch;
        args.push_back(evaluate(e.args[k]));
        inside_select_ -= branch;
      }
      return apply_op(b_, e, args);
    }
  }
  LUMEN_UNREACHABLE("expression kind {}", static_cast<int>(e.kind));
}

void RoutineRun::statement(const RoutineStmt& s) {
  using Kind = RoutineStmt::Kind;
  switch (s.kind) {
    case Kind::set: set_variable(s.slot, evaluate(s.value)); return;
    case Kind::set_element: {
      const RoutineVariable& v = routine_.variables[s.slot];
      const ValueId value = b_.convert(ScalarOp::cast_, v.type, evaluate(s.value));
      const ValueId offset = b_.mul(index_of(s.index, v.extent), b_.i64(scalar_bytes(v.type)));
      b_.store(buffers_[s.slot], value, offset, scalar_bytes(v.type));
      return;
    }
    case Kind::set_field: hooks_.set_field(s.slot, index_of(s.index, format_.fields[s.slot].count), evaluate(s.value)); return;
    case Kind::loop: {
      const ValueId from = b_.convert(ScalarOp::cast_, Scalar::i64, evaluate(s.from));
      const ValueId to = b_.convert(ScalarOp::cast_, Scalar::i64, evaluate(s.to));
      b_.loop(loop::LoopKind::serial, from, to, s.step, [&](ValueId i) {
        set_variable(s.slot, b_.convert(ScalarOp::cast_, routine_.variables[s.slot].type, i));
        for (const RoutineStmt& inner : s.body) statement(inner);
      });
      return;
    }
    case Kind::branch:
      b_.branch(
          evaluate(s.value),
          [&] {
            for (const RoutineStmt& inner : s.body) statement(inner);
          },
          [&] {
            for (const RoutineStmt& inner : s.otherwise) statement(inner);
          });
      return;
  }
}

void RoutineRun::run() {
  for (const RoutineStmt& s : routine_.body) statement(s);
}

ValueId RoutineRun::result() { return evaluate(routine_.result); }

}  // namespace lumen::synth
