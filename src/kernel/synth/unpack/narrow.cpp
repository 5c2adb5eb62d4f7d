// Integer expressions of decode in bytes, for integer dots. Sums, products and masks are right modulo 2^bits at any
// width, so only right shifts, tables and the rest need ranges; expressions that do not fit into 8 or 16 bits are
// computed in 32. Proved by tests/kernel/synth/synth_unpack_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/unpack/bits_as.h"
#include "kernel/synth/unpack/unpack.h"
#include "number/facts/range.h"

namespace lumen::synth {

using Kind = RoutineExpr::Kind;

namespace {

constexpr int kWordBytes = 4;

// Depends on i and constants alone.
bool is_static(const RoutineExpr& e) {
  if (e.kind != Kind::constant && e.kind != Kind::variable && e.kind != Kind::op && e.kind != Kind::table) return false;
  return std::all_of(e.args.begin(), e.args.end(), is_static);
}

bool is_whole(Scalar s) {
  return !is_float(s) && s != Scalar::boolean;
}

read::Range range_in_block(const Format& f, const RoutineExpr& e) {
  read::RangeAnalysis ranges(f.fields, f.tables);
  ranges.variables = {read::Range{0, static_cast<double>(f.block - 1)}};
  return ranges.of(e);
}

// Whether the low `bits` bits, unsigned, are the value: then they shift, compare and divide as it does.
bool fits(const Format& f, const RoutineExpr& e, int bits) {
  const read::Range r = range_in_block(f, e);
  return r.low >= 0 && r.high < (int64_t{1} << bits);
}

// Codes of 9 to 16 bits, each of which is in two bytes, as u16; no value for others.
Expr short_codes(Window& window, const Field& field, const std::vector<FieldPlace>& places) {
  Builder& b = window.builder();
  const int bits = field.type.bits;
  if (field.type.is_float || field.type.is_signed || bits <= 8 || bits > 16 || places.size() < 2) return {};
  std::vector<int64_t> low, high, down;
  for (const FieldPlace& place : places) {
    const std::vector<CodePart> parts = parts_of(field, place);
    const int64_t bit = parts[0].bit;
    if (parts.size() != 1 || bit % 8 + bits > 16) return {};
    low.push_back(bit / 8);
    high.push_back(bit / 8 + 1);
    down.push_back(bit % 8);
  }
  const Expr upper = cast(window.bytes(high), Scalar::u16);
  Expr x = cast(window.bytes(low), Scalar::u16);
  x = x | (upper << 8);
  x = x >> b.lanes_integer(std::move(down), Scalar::u16);
  return bits == 16 ? x : x & ((int64_t{1} << bits) - 1);
}

// The m with x / by == x * m >> 16 for every x up to `most`; nullopt if none of 16 bits exists.
std::optional<int64_t> reciprocal16(int64_t by, int64_t most) {
  if (by < 2) return std::nullopt;
  const int64_t m = (65536 + by - 1) / by;
  for (int64_t x = 0; x <= most; ++x)
    if (x * m >> 16 != x / by) return std::nullopt;
  return m;
}

}  // namespace

namespace {

// Whether lanes fill words whose bytes the machine can permute.
bool permutes_bytes(int64_t entries, int lanes, const machine::Machine& m) {
  return entries <= 16 && lanes % 4 == 0 && (m.find_row(kBytePermute) || m.find_row(kPermute));
}

// Entries `first` .. `first` + 3 as bytes of a word, wrapping after the last one.
Expr four_entries(Builder& b, const std::vector<int64_t>& table, size_t first) {
  int64_t all = 0;
  for (size_t i = 0; i < 4; ++i) all |= (table[(first + i) % table.size()] & 255) << (8 * i);
  return b.integer(all, {Scalar::u32, 1});
}

// The same as look_up_halves(.., 0), where nibbles select a permutation, three bits of each.
Expr look_up_by_half_bytes(Builder& b, const std::vector<int64_t>& table, Expr word) {
  const VType u32{Scalar::u32, 1};
  const auto permute = [&](Expr low, Expr high, Expr which) { return b.inst(kPermute, u32, {low, high, which}); };
  constexpr int64_t kEven = 0x4420, kInOrder = 0x3210, kLower = 0x7777, kHighest = 0x8888;
  const Expr four = permute(word | (word >> 4), b.integer(0, u32), b.integer(kEven, u32));
  const Expr which = four & kLower;
  const Expr lower = permute(four_entries(b, table, 0), four_entries(b, table, 4), which);
  if (table.size() <= 8) return lower;
  const Expr upper = permute(four_entries(b, table, 8), four_entries(b, table, 12), which);
  return permute(lower, upper, ((four & kHighest) >> 1) | kInOrder);
}

Expr permute_bytes(Builder& b, const std::vector<int64_t>& table, Expr index, const machine::Machine& m) {
  const VType bytes = b.type(index);
  const BufferId words = b.alloc(bytes.lanes, 16);
  for (int lane = 0; lane < bytes.lanes; lane += 4) {
    const Expr four = bits_as(b, b.shuffle({index}, {lane, lane + 1, lane + 2, lane + 3}), {Scalar::u32, 1});
    const Expr found = m.find_row(kPermute) ? look_up_by_half_bytes(b, table, four) : look_up_halves(b, table, four, 0);
    b.store(words, found, b.i64(lane), 4);
  }
  return b.load(words, bytes, b.i64(0), 4);
}

}  // namespace

Expr look_up_halves(Builder& b, const std::vector<int64_t>& table, Expr word, int down) {
  const VType u32{Scalar::u32, 1};
  const auto permute = [&](Expr low, Expr high, Expr which) { return b.inst(kBytePermute, u32, {low, high, which}); };
  const auto entries = [&](size_t first) { return four_entries(b, table, first); };
  // Eight entries are in two words, which the lower bits of four codes select from at once.
  const Expr which = shifted(word, -down) & 0x07070707;
  const Expr lower = permute(entries(0), entries(4), which);
  if (table.size() <= 8) return lower;
  // The highest bit, replicated over its byte, selects the half: signs of a word's second and fourth byte, and of those
  // in another.
  constexpr int64_t kSigns = 0x090b080a;
  const Expr upper = permute(entries(8), entries(12), which);
  const Expr even = shifted(word, 4 - down), odd = shifted(word, 12 - down);
  const Expr chosen = permute(even, odd, b.integer(kSigns, u32));
  return lower ^ ((lower ^ upper) & chosen);
}

Expr look_up_bytes(Builder& b, const std::vector<int64_t>& table, Expr index, const machine::Machine& m) {
  const VType bytes = b.type(index);
  const int lanes = bytes.lanes;
  if (permutes_bytes(std::ssize(table), lanes, m)) return permute_bytes(b, table, index, m);
  const auto part = [&](size_t first, int64_t count) {
    std::vector<int64_t> entries;
    for (int64_t i = 0; i < std::max<int64_t>(count, lanes); ++i)
      entries.push_back(table[(first + i % count) % table.size()] & 255);
    return b.lanes_integer(std::move(entries), Scalar::u8);
  };
  const std::string sixteen = fmt::format("lookup16.u8x{}", lanes), wide = fmt::format("lookup64.u8x{}", lanes);
  if (table.size() <= 16) {
    LUMEN_CHECK(m.find_row(sixteen), "{} has no {}", m.name, sixteen);
    return b.inst(sixteen, bytes, {part(0, 16), index});
  }
  const std::string widest = fmt::format("lookup128.u8x{}", lanes);
  const bool has_widest = table.size() > 64 && m.find_row(widest), has_wide = m.find_row(wide) != nullptr;
  const int64_t size = has_widest ? 128 : has_wide ? 64 : 16;
  // Wide rows ignore the other bits of the index.
  const Expr low = size > 16 ? index : index & 15;
  std::vector<Expr> level;
  for (int64_t first = 0; first < std::ssize(table); first += size)
    level.push_back(has_widest ? b.inst(widest, bytes, {part(first, 64), low, part(first + 64, 64)})
                               : b.inst(has_wide ? wide : sixteen, bytes, {part(first, size), low}));
  return choose(index, std::move(level), size);
}

namespace {

bool wraps(ScalarOp op) {
  using enum ScalarOp;
  return op == add_ || op == sub_ || op == and_ || op == or_ || op == xor_ || op == cast_;
}

// Whether an expression is computed from codes in eight bits.
bool is_of_bytes(const Format& f, const RoutineExpr& e, const machine::Machine& m) {
  const auto all = [&] { return std::ranges::all_of(e.args, [&](const auto& a) { return is_of_bytes(f, a, m); }); };
  if (e.kind == Kind::constant) return is_whole(e.type);
  if (e.kind == Kind::field) return !f.fields[e.slot].type.is_float && f.fields[e.slot].type.bits <= 8;
  if (e.kind == Kind::table)
    return is_whole(e.type) && looks_up_bytes(std::ssize(f.tables[e.slot].values), kWordBytes, m) && all();
  return e.kind == Kind::op && wraps(e.op) && is_whole(e.type) && all();
}

bool makes_floats_of_bytes(const Format& f, const RoutineExpr& e, const machine::Machine& m) {
  if (is_static(e)) return true;
  if (e.kind == Kind::table && is_float(e.type)) return false;
  if (e.kind == Kind::op && e.op == ScalarOp::cast_ && is_float(e.type) && is_whole(e.args[0].type))
    return is_of_bytes(f, e.args[0], m);
  if (e.kind == Kind::field) return true;
  return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return makes_floats_of_bytes(f, a, m); });
}

}  // namespace

bool decodes_by_bytes(const Format& f, const machine::Machine& m) {
  if (!m.async_copies || !f.decode.has_result) return false;
  for (const RoutineStmt& s : f.decode.body)
    if (s.kind != RoutineStmt::Kind::set || !makes_floats_of_bytes(f, s.value, m)) return false;
  return makes_floats_of_bytes(f, f.decode.result, m);
}

bool looks_up_bytes(int64_t entries, int lanes, const machine::Machine& m) {
  return permutes_bytes(entries, lanes, m) ||
         (entries <= 256 && m.find_row(fmt::format("lookup16.u8x{}", lanes)) != nullptr);
}

// The value of an expression modulo 2^bits, as u8 or u16, for the elements of a frame.
class Unpack::Narrow {
 public:
  Narrow(Unpack& unpack, const Frame& frame, int bits, const machine::Machine& rows)
      : unpack_(unpack),
        b_(unpack.b_),
        format_(unpack.format_),
        frame_(frame),
        bits_(bits),
        rows_(rows),
        type_(bits == 8 ? Scalar::u8 : Scalar::u16) {}

  // Whether an expression is computed in these bits alone, from codes that differ between lanes.
  bool stays(const RoutineExpr& e) {
    const auto all_stay = [&] { return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return stays(a); }); };
    switch (e.kind) {
      case Kind::constant:
        return is_whole(e.type);
      case Kind::field: {
        const Field& field = format_.fields[e.slot];
        return field.level == Level::block && !field.type.is_float && field.type.bits <= 8 && is_static(e.args[0]) &&
               unpack_.evaluate(e.args[0], frame_).known.size() > 1;
      }
      case Kind::table:
        return bits_ == 8 && is_whole(e.type) &&
               looks_up_bytes(std::ssize(format_.tables[e.slot].values), frame_.lanes(), rows_) && all_stay();
      case Kind::op:
        return wraps(e.op) && is_whole(e.type) && all_stay();
      default:
        return false;
    }
  }

  Lanes of(const RoutineExpr& e) {
    if (is_static(e)) {
      Lanes x = unpack_.evaluate(e, frame_);
      x.type = type_;
      for (ScalarValue& v : x.known) v.integer &= (int64_t{1} << bits_) - 1;
      return x;
    }
    std::optional<Lanes> found;
    if (e.kind == Kind::field && is_static(e.args[0])) found = codes(e);
    if (e.kind == Kind::table && bits_ == 8) found = looked_up(e);
    if (e.kind == Kind::op && is_whole(e.type)) found = operation(e);
    if (found) return *found;
    const Lanes x = unpack_.evaluate(e, frame_);
    return {type_, cast(number(x, lanes_of(x)), type_), {}};
  }

 private:
  Expr number(const Lanes& x, int lanes) { return unpack_.materialize(x, lanes, lanes > 1); }
  Expr number(const Lanes& x) { return number(x, frame_.lanes()); }
  int lanes_of(const Lanes& x) const {
    return x.is_known() ? (x.known.size() > 1 ? frame_.lanes() : 1) : b_.type(x.value).lanes;
  }
  Lanes in_bits(const RoutineExpr& e, int bits) { return Narrow(unpack_, frame_, bits, rows_).of(e); }

  // Codes of a field of the block.
  std::optional<Lanes> codes(const RoutineExpr& e) {
    const Field& field = format_.fields[e.slot];
    if (field.level != Level::block) return std::nullopt;
    const auto places = [&] { return unpack_.places_of(field, unpack_.evaluate(e.args[0], frame_), frame_); };
    if (!field.type.is_float && field.type.bits <= 8) {
      Expr x = load_codes(*unpack_.block_window_, field, places(), true, &rows_);
      const VType u8 = b_.type(x);
      if (field.type.is_signed && field.type.bits < 8) {
        const Expr sign = b_.integer(int64_t{1} << (field.type.bits - 1), u8);
        x = (x ^ sign) - sign;
      }
      if (bits_ == 16 && field.type.is_signed) x = bitcast(cast(bitcast(x, Scalar::i8), Scalar::i16), type_);
      return Lanes{type_, cast(x, type_), {}};
    }
    if (bits_ != 16) return std::nullopt;
    const Expr x = short_codes(*unpack_.block_window_, field, places());
    return x.exists() ? std::optional(Lanes{type_, x, {}}) : std::nullopt;
  }

  std::optional<Lanes> looked_up(const RoutineExpr& e) {
    const FormatTable& t = format_.tables[e.slot];
    if (!is_whole(e.type) || !looks_up_bytes(std::ssize(t.values), frame_.lanes(), rows_)) return std::nullopt;
    const std::vector<int64_t> entries(t.values.begin(), t.values.end());
    return Lanes{type_, look_up_bytes(b_, entries, number(in_bits(e.args[0], 8)), rows_), {}};
  }

  std::optional<Lanes> operation(const RoutineExpr& e) {
    switch (e.op) {
      case ScalarOp::add_:
      case ScalarOp::sub_:
      case ScalarOp::mul_:
      case ScalarOp::and_:
      case ScalarOp::or_:
      case ScalarOp::xor_: {
        const Lanes a = of(e.args[0]), c = of(e.args[1]);
        const int lanes = std::max(lanes_of(a), lanes_of(c));
        return Lanes{type_, b_.op(e.op, number(a, lanes), number(c, lanes)), {}};
      }
      case ScalarOp::neg_: {
        const Expr x = number(of(e.args[0]));
        return Lanes{type_, b_.integer(0, b_.type(x)) - x, {}};
      }
      case ScalarOp::cast_:
        return is_whole(e.args[0].type) ? std::optional(of(e.args[0])) : std::nullopt;
      case ScalarOp::select_:
        return selected(e);
      case ScalarOp::div_:
      case ScalarOp::rem_:
        return divided(e);
      case ScalarOp::shr_:
        return shifted_down(e);
      default:
        return std::nullopt;
    }
  }

  std::optional<Lanes> selected(const RoutineExpr& e) {
    std::optional<Lanes> condition;
    if (is_static(e.args[0])) {
      condition = unpack_.evaluate(e.args[0], frame_);
      if (condition->known.size() == 1) return of(e.args[condition->known[0].integer ? 1 : 2]);
    } else {
      condition = compared(e.args[0]);
    }
    if (!condition) return std::nullopt;
    const Lanes a = of(e.args[1]), c = of(e.args[2]);
    return Lanes{type_, select(number(*condition), number(a), number(c)), {}};
  }

  // Comparisons of values that fit into these bits.
  std::optional<Lanes> compared(const RoutineExpr& c) {
    const bool compares = c.kind == Kind::op && (c.op == ScalarOp::eq_ || c.op == ScalarOp::ne_ ||
                                                 c.op == ScalarOp::lt_ || c.op == ScalarOp::le_);
    if (!compares || !is_whole(c.args[0].type) || !fits(format_, c.args[0], bits_) || !fits(format_, c.args[1], bits_))
      return std::nullopt;
    const Lanes a = of(c.args[0]), b = of(c.args[1]);
    return Lanes{Scalar::boolean, b_.op(c.op, number(a), number(b)), {}};
  }

  // Quotients and remainders by constants of each lane, as products, in 16 bits.
  std::optional<Lanes> divided(const RoutineExpr& e) {
    const read::Range range = range_in_block(format_, e.args[0]);
    if (!is_static(e.args[1]) || range.low < 0 || range.high >= 65536) return std::nullopt;
    const Lanes by = unpack_.evaluate(e.args[1], frame_);
    const int lanes = frame_.lanes();
    std::vector<int64_t> divisor, factor, whole;
    for (int l = 0; l < lanes; ++l) {
      divisor.push_back(by.lane(l).integer);
      const auto m = reciprocal16(divisor.back(), static_cast<int64_t>(range.high));
      if (!m && divisor.back() != 1) return std::nullopt;
      factor.push_back(m.value_or(0));
      whole.push_back(divisor.back() == 1);
    }
    if (lanes == 1) return std::nullopt;
    const Expr x = number(in_bits(e.args[0], 16));
    Expr q = mulhi(x, b_.lanes_integer(factor, Scalar::u16));
    if (std::find(whole.begin(), whole.end(), 1) != whole.end())
      q = select(b_.lanes_integer(whole, Scalar::boolean), x, q);
    if (e.op == ScalarOp::rem_) q = x - q * b_.lanes_integer(divisor, Scalar::u16);
    return Lanes{type_, cast(q, type_), {}};
  }

  std::optional<Lanes> shifted_down(const RoutineExpr& e) {
    if (e.args[1].kind != Kind::constant) return std::nullopt;
    if (fits(format_, e.args[0], bits_)) {
      const Lanes a = of(e.args[0]);
      return Lanes{type_, number(a, lanes_of(a)) >> e.args[1].integer, {}};
    }
    if (bits_ != 8 || !fits(format_, e.args[0], 16)) return std::nullopt;
    const Lanes wide = in_bits(e, 16);
    return Lanes{type_, cast(number(wide, lanes_of(wide)), type_), {}};
  }

  Unpack& unpack_;
  Builder& b_;
  const Format& format_;
  const Frame& frame_;
  int bits_;
  const machine::Machine& rows_;
  Scalar type_;
};

std::optional<Lanes> Unpack::float_of_bytes(const RoutineExpr& integer, const Frame& frame) {
  if (!of_bytes_ || !machine_ || !machine_->async_copies || frame.lanes() % kWordBytes != 0 || !is_whole(integer.type))
    return std::nullopt;
  if (is_static(integer)) return std::nullopt;
  // A constant is added after the conversion to f32: integers so small are exact.
  const bool moves = integer.kind == Kind::op && (integer.op == ScalarOp::add_ || integer.op == ScalarOp::sub_) &&
                     integer.args[1].kind == Kind::constant && std::abs(integer.args[1].integer) < 256;
  const RoutineExpr& e = moves ? integer.args[0] : integer;
  const read::Range range = range_in_block(format_, e);
  const bool is_signed = range.low < 0;
  if (range.low < -128 || range.high > (is_signed ? 127 : 255)) return std::nullopt;
  Narrow narrow(*this, frame, 8, *machine_);
  if (!narrow.stays(e)) return std::nullopt;
  const Expr bytes = materialize(narrow.of(e), frame.lanes(), true);
  Expr x = cast(is_signed ? bitcast(bytes, Scalar::i8) : bytes, Scalar::f32);
  if (moves) {
    const Expr by = b_.real(integer.args[1].integer, b_.type(x));
    x = integer.op == ScalarOp::add_ ? x + by : x - by;
  }
  return Lanes{Scalar::f32, x, {}};
}

Expr Unpack::bytes(const RoutineExpr& e, const std::vector<int64_t>& elements, const machine::Machine& rows) {
  const Frame frame = frame_at(elements);
  return materialize(Narrow(*this, frame, 8, rows).of(e), elements.size(), true);
}

}  // namespace lumen::synth
