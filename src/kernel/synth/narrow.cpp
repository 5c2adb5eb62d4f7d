// Integer expressions of decode in bytes: what integer dots take. Sums, products and masks are right modulo 2^bits
// whatever their width, so only shifts to the right, tables and the rest need to know ranges; what cannot be had in 8
// or 16 bits is computed in 32. Proved by tests/kernel/synth_unpack_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/unpack.h"
#include "number/read/range.h"

namespace lumen::synth {

using loop::ValueId;
using loop::VType;
using Kind = RoutineExpr::Kind;

namespace {

// Made of i and numbers alone.
bool is_static(const RoutineExpr& e) {
  if (e.kind != Kind::constant && e.kind != Kind::variable && e.kind != Kind::op && e.kind != Kind::table) return false;
  return std::all_of(e.args.begin(), e.args.end(), is_static);
}

bool is_whole(Scalar s) {
  return !is_float(s) && s != Scalar::boolean;
}

// Whether a logical shift of the low `bits` bits is the shift of the value.
bool fits(const Format& f, const RoutineExpr& e, int bits) {
  read::RangeAnalysis ranges(f.fields, f.tables);
  ranges.variables = {read::Range{0, static_cast<double>(f.block - 1)}};
  const read::Range r = ranges.of(e);
  return r.low >= 0 && r.high < static_cast<double>(int64_t{1} << bits);
}

}  // namespace

ValueId look_up_bytes(loop::Builder& b, const std::vector<int64_t>& table, ValueId index, const machine::Machine& m) {
  const VType bytes = b.type(index);
  const int lanes = bytes.lanes;
  const auto part = [&](size_t first, int64_t count) {
    std::vector<int64_t> entries;
    for (int64_t i = 0; i < std::max<int64_t>(count, lanes); ++i)
      entries.push_back(table[(first + static_cast<size_t>(i % count)) % table.size()] & 255);
    return b.lanes_integer(std::move(entries), Scalar::u8);
  };
  const std::string sixteen = fmt::format("lookup16.u8x{}", lanes), wide = fmt::format("lookup64.u8x{}", lanes);
  if (table.size() <= 16) {
    LUMEN_CHECK(m.find_row(sixteen), "{} has no {}", m.name, sixteen);
    return b.inst(sixteen, bytes, {part(0, 16), index});
  }
  const std::string widest = fmt::format("lookup128.u8x{}", lanes);
  const bool has_widest = table.size() > 64 && m.find_row(widest), has_wide = m.find_row(wide) != nullptr;
  const size_t size = has_widest ? 128 : has_wide ? 64 : 16;
  // Wide rows take the bits of the index they need.
  const ValueId low = size > 16 ? index : b.op(ScalarOp::and_, index, b.integer(15, bytes));
  std::vector<ValueId> level;
  for (size_t first = 0; first < table.size(); first += size) {
    if (has_widest)
      level.push_back(b.inst(widest, bytes, {part(first, 64), low, part(first + 64, 64)}));
    else
      level.push_back(b.inst(has_wide ? wide : sixteen, bytes, {part(first, static_cast<int64_t>(size)), low}));
  }
  for (size_t bit = size; level.size() > 1; bit *= 2) {
    const ValueId one = b.op(ScalarOp::and_, index, b.integer(static_cast<int64_t>(bit), bytes));
    const ValueId set = b.op(ScalarOp::ne_, one, b.integer(0, bytes));
    std::vector<ValueId> next;
    for (size_t k = 0; k < level.size(); k += 2)
      next.push_back(k + 1 == level.size() ? level[k] : b.op(ScalarOp::select_, set, level[k + 1], level[k]));
    level = std::move(next);
  }
  return level[0];
}

bool looks_up_bytes(int64_t entries, int lanes, const machine::Machine& m) {
  return entries <= 256 && m.find_row(fmt::format("lookup16.u8x{}", lanes)) != nullptr;
}

ValueId Unpack::bytes(const RoutineExpr& e, const std::vector<int64_t>& elements, const machine::Machine& rows) {
  return materialize(narrow(e, frame_at(elements), 8, rows), static_cast<int>(elements.size()), true);
}

// The value modulo 2^bits, as u8 or u16.
Lanes Unpack::narrow(const RoutineExpr& e, const Frame& frame, int bits, const machine::Machine& rows) {
  const Scalar type = bits == 8 ? Scalar::u8 : Scalar::u16;
  const int64_t mask = (int64_t{1} << bits) - 1;
  if (is_static(e)) {
    Lanes x = evaluate(e, frame);
    x.type = type;
    for (ScalarValue& v : x.known) v.integer &= mask;
    return x;
  }
  const auto number = [&](const Lanes& x, int lanes) { return materialize(x, lanes, lanes > 1); };
  const auto lanes_of = [&](const Lanes& x) {
    return x.is_known() ? (x.known.size() > 1 ? frame.lanes() : 1) : b_.type(x.value).lanes;
  };
  const auto both = [&](const RoutineExpr& left, const RoutineExpr& right, ScalarOp op) -> Lanes {
    const Lanes a = narrow(left, frame, bits, rows), c = narrow(right, frame, bits, rows);
    const int lanes = std::max(lanes_of(a), lanes_of(c));
    return {type, b_.op(op, number(a, lanes), number(c, lanes)), {}};
  };
  if (e.kind == Kind::field && is_static(e.args[0])) {
    const Field& field = format_.fields[static_cast<size_t>(e.slot)];
    if (field.level == Level::block && !field.type.is_float && field.type.bits <= 8) {
      ValueId x = load_codes(*block_window_, field, places_of(field, evaluate(e.args[0], frame), frame), true, &rows);
      const VType u8 = b_.type(x);
      if (field.type.is_signed && field.type.bits < 8) {
        const ValueId sign = b_.integer(int64_t{1} << (field.type.bits - 1), u8);
        x = b_.op(ScalarOp::sub_, b_.op(ScalarOp::xor_, x, sign), sign);
      }
      if (bits == 16 && field.type.is_signed)
        x = b_.convert(ScalarOp::bitcast_, type,
                       b_.convert(ScalarOp::cast_, Scalar::i16, b_.convert(ScalarOp::bitcast_, Scalar::i8, x)));
      return {type, b_.convert(ScalarOp::cast_, type, x), {}};
    }
  }
  if (e.kind == Kind::table && bits == 8) {
    const FormatTable& t = format_.tables[static_cast<size_t>(e.slot)];
    if (is_whole(e.type) && looks_up_bytes(static_cast<int64_t>(t.values.size()), frame.lanes(), rows)) {
      std::vector<int64_t> entries(t.values.begin(), t.values.end());
      const ValueId index = number(narrow(e.args[0], frame, 8, rows), frame.lanes());
      return {type, look_up_bytes(b_, entries, index, rows), {}};
    }
  }
  if (e.kind == Kind::op && is_whole(e.type)) {
    switch (e.op) {
      case ScalarOp::add_:
      case ScalarOp::sub_:
      case ScalarOp::mul_:
      case ScalarOp::and_:
      case ScalarOp::or_:
      case ScalarOp::xor_:
        return both(e.args[0], e.args[1], e.op);
      case ScalarOp::cast_:
        if (is_whole(e.args[0].type)) return narrow(e.args[0], frame, bits, rows);
        break;
      case ScalarOp::select_:
        if (is_static(e.args[0])) {
          const Lanes condition = evaluate(e.args[0], frame);
          if (condition.known.size() == 1) return narrow(e.args[condition.known[0].integer ? 1 : 2], frame, bits, rows);
          const Lanes a = narrow(e.args[1], frame, bits, rows), c = narrow(e.args[2], frame, bits, rows);
          const int lanes = frame.lanes();
          return {type, b_.op(ScalarOp::select_, number(condition, lanes), number(a, lanes), number(c, lanes)), {}};
        }
        break;
      case ScalarOp::shr_:
        if (e.args[1].kind != Kind::constant) break;
        if (fits(format_, e.args[0], bits)) {
          const Lanes a = narrow(e.args[0], frame, bits, rows);
          const int lanes = lanes_of(a);
          return {type, b_.op(ScalarOp::shr_, number(a, lanes), b_.integer(e.args[1].integer, {type, lanes})), {}};
        }
        if (bits == 8 && fits(format_, e.args[0], 16)) {
          const Lanes wide = narrow(e, frame, 16, rows);
          return {type, b_.convert(ScalarOp::cast_, type, number(wide, lanes_of(wide))), {}};
        }
        break;
      default:
        break;
    }
  }
  const Lanes x = evaluate(e, frame);
  const int lanes = lanes_of(x);
  return {type, b_.convert(ScalarOp::cast_, type, number(x, lanes)), {}};
}

}  // namespace lumen::synth
