#include "kernel/synth/unpack/routine.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/ordinal.h"
#include "kernel/synth/unpack/lane_facts.h"
#include "kernel/synth/unpack/magnitude.h"

namespace lumen::synth {

BufferId lay_table(Builder& b, const FormatTable& t) {
  const Scalar s = is_float(t.type) ? Scalar::f32 : t.type;
  const int size = scalar_bytes(s);
  const auto count = std::ssize(t.values);
  const BufferId buffer = b.alloc(std::max<int64_t>(count * size, 1), 64);
  const int64_t lanes = 64 / size;
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t n = std::min(lanes, count - i);
    for (int64_t at = 0; at < n;) {  // powers of two, so that every store is a plain one
      const int64_t width = std::bit_floor(static_cast<uint64_t>(n - at));
      const auto first = t.values.begin() + i + at;
      Expr v;
      if (is_float(s)) {
        v = b.lanes_real({first, first + width}, s);
      } else {
        std::vector<int64_t> whole;
        for (auto x = first; x != first + width; ++x)
          whole.push_back(*x >= 9.2e18 ? static_cast<int64_t>(static_cast<uint64_t>(*x)) : static_cast<int64_t>(*x));
        v = b.lanes_integer(std::move(whole), s);
      }
      b.store(buffer, v, b.i64((i + at) * size), 1);
      at += width;
    }
  }
  return buffer;
}

Expr read_table(Builder& b, const FormatTable& t, BufferId buffer, Expr index) {
  const Scalar s = is_float(t.type) ? Scalar::f32 : t.type;
  const Expr v = b.read(buffer, {s, 1}, cast(index, Scalar::i64) * scalar_bytes(s), scalar_bytes(s));
  return is_float(s) || scalar_bits(s) >= 32 ? v : cast(v, Scalar::i32);
}

Expr permute_table(Builder& b, const machine::Machine& m, const FormatTable& t, Expr index) {
  constexpr size_t kMostEntries = 64;
  const int lanes = b.type(index).lanes;
  const std::string row = fmt::format("lookup{}.u32x{}", lanes, lanes);
  const bool is_float = lumen::is_float(t.type), is_word = is_float || scalar_bits(t.type) <= 32;
  if (lanes < 2 || t.values.size() > kMostEntries || !is_word || !m.find_row(row)) return {};
  const Scalar s = is_float ? Scalar::f32 : scalar_bits(t.type) == 32 ? t.type : Scalar::i32;
  index = cast(index, Scalar::u32);
  std::vector<Expr> level;
  for (size_t first = 0; first < t.values.size(); first += lanes) {
    std::vector<int64_t> entries;
    for (size_t i = first; i < first + lanes; ++i) {
      const double x = t.values[std::min(i, t.values.size() - 1)];
      const auto whole = static_cast<int64_t>(is_float ? 0 : x);
      entries.push_back(is_float ? std::bit_cast<uint32_t>(static_cast<float>(x)) : whole & 0xffffffff);
    }
    const Expr words = b.lanes_integer(std::move(entries), Scalar::u32);
    level.push_back(b.inst(row, {Scalar::u32, lanes}, {words, index}));
  }
  return bitcast(choose(index, std::move(level), lanes), s);
}

Expr apply_op(Builder& b, const RoutineExpr& e, const std::vector<Expr>& args) {
  if (scalar_op_info(e.op).result == "cast") return b.convert(e.op, e.type, args[0]);
  return b.op(e.op, args[0], args.size() > 1 ? args[1] : Expr{}, args.size() > 2 ? args[2] : Expr{});
}

std::vector<int> kept_from(const std::vector<KeptLocal>& kept) {
  std::vector<int> out;
  for (const KeptLocal& k : kept) out.push_back(k.fit_variable);
  return out;
}

std::vector<int> kept_for(const std::vector<KeptLocal>& kept) {
  std::vector<int> out;
  for (const KeptLocal& k : kept) out.push_back(k.code_variable);
  return out;
}

RoutineRun::RoutineRun(Builder& b, const Routine& r, RoutineHooks hooks, int lanes, const std::vector<int>& uniform,
                       const std::vector<int>& kept)
    : b_(b), routine_(r), hooks_(std::move(hooks)), lanes_(lanes), facts_(lane_facts(r, uniform, kept)) {
  for (size_t k = 0; k < r.variables.size(); ++k) {
    const int64_t size = int64_t{scalar_bytes(r.variables[k].type)} * slot_lanes(k);
    buffers_.push_back(b.alloc(std::max<int64_t>(r.variables[k].extent, 1) * size, 64));
  }
}

Scalar RoutineRun::slot_type(int slot) const {
  const Scalar s = routine_.variables[slot].type;
  return s == Scalar::boolean ? Scalar::u8 : s;
}

Expr RoutineRun::widen(Expr x) {
  return b_.type(x).lanes == lanes_ ? x : b_.splat(x, lanes_);
}

Expr RoutineRun::lanes_from(size_t depth) const {
  Expr all;
  for (size_t k = depth; k < branches_.size(); ++k) {
    if (!branches_[k].exists()) continue;
    all = all.exists() ? all & branches_[k] : branches_[k];
  }
  return all;
}

void RoutineRun::set_variable(int slot, Expr value) {
  const Scalar s = slot_type(slot);
  value = cast(value, s);
  if (facts_.uniform[slot]) {
    LUMEN_CHECK(b_.type(value).lanes == 1, "a variable that is equal in all lanes set to lanes");
  } else {
    value = widen(value);
    if (const Expr mask = lanes_from(facts_.depth[slot]); mask.exists())
      value = select(mask, value, b_.load(buffers_[slot], {s, lanes_}, b_.i64(0), scalar_bytes(s)));
  }
  b_.store(buffers_[slot], value, b_.i64(0), scalar_bytes(s));
}

Expr RoutineRun::variable(int slot) {
  const Scalar s = slot_type(slot);
  const Expr x = b_.load(buffers_[slot], {s, slot_lanes(slot)}, b_.i64(0), scalar_bytes(s));
  if (routine_.variables[slot].type != Scalar::boolean) return x;
  return x != 0;
}

void RoutineRun::copy(int slot, const RoutineRun& from, int from_slot) {
  const Scalar s = slot_type(slot);
  const int size = scalar_bytes(s);
  LUMEN_CHECK(from.facts_.depth[from_slot] == 0, "a local is read that not all lanes know of");
  for (int64_t k = 0; k < std::max<int64_t>(routine_.variables[slot].extent, 1); ++k) {
    Expr x = b_.load(from.buffers_[from_slot], {s, from.slot_lanes(from_slot)},
                     b_.i64(k * size * from.slot_lanes(from_slot)), size);
    if (!facts_.uniform[slot]) x = widen(x);
    b_.store(buffers_[slot], x, b_.i64(k * size * slot_lanes(slot)), size);
  }
}

void RoutineRun::clear() {
  for (size_t k = 0; k < buffers_.size(); ++k) {
    const int slot = k;
    const Scalar s = slot_type(slot);
    const VType type{s, slot_lanes(slot)};
    const Expr zero = b_.constant({}, type);
    const int64_t extent = routine_.variables[k].extent, size = int64_t{scalar_bytes(s)} * type.lanes;
    if (extent == 0) {
      b_.store(buffers_[k], zero, b_.i64(0), scalar_bytes(s));
    } else {
      b_.count(0, extent, 1, [&](Expr i) { b_.store(buffers_[k], zero, i * size, scalar_bytes(s)); });
    }
  }
}

Expr RoutineRun::index_of(const RoutineExpr& e) {
  return cast(evaluate(e), Scalar::i64);
}

// Entry `index` of an array: all lanes of an entry are contiguous.
Expr RoutineRun::element_offset(int slot, Expr index) {
  const int64_t size = scalar_bytes(slot_type(slot));
  const Expr first = index * (size * lanes_);
  return b_.type(index).lanes == 1 ? first : first + b_.lane_steps(lanes_, size);
}

Expr RoutineRun::evaluate(const RoutineExpr& e) {
  using Kind = RoutineExpr::Kind;
  switch (e.kind) {
    case Kind::constant:
      return b_.constant({e.real, e.integer}, {e.type, 1});
    case Kind::variable:
      return variable(e.slot);
    case Kind::element: {
      const Expr offset = element_offset(e.slot, index_of(e.args[0]));
      const Scalar s = slot_type(e.slot);
      const Expr x = b_.read(buffers_[e.slot], {s, lanes_}, offset, scalar_bytes(s));
      return e.type == Scalar::boolean ? x != 0 : x;
    }
    case Kind::source:
      return hooks_.source(e.slot, index_of(e.args[0]));
    case Kind::extent:
      return cast(hooks_.extent(), e.type);
    case Kind::field:
      return hooks_.field(e.slot, index_of(e.args[0]));
    case Kind::table:
      return cast(hooks_.table(e.slot, index_of(e.args[0])), e.type);
    case Kind::op: {
      std::vector<Expr> args;
      int lanes = 1;
      for (const RoutineExpr& a : e.args) {
        args.push_back(evaluate(a));
        lanes = std::max(lanes, b_.type(args.back()).lanes);
      }
      if (lanes > 1)
        for (Expr& a : args) a = widen(a);
      return apply_op(b_, e, args);
    }
  }
  LUMEN_UNREACHABLE("expression kind {}", ordinal(e.kind));
}

void RoutineRun::statement(const RoutineStmt& s) {
  using Kind = RoutineStmt::Kind;
  switch (s.kind) {
    case Kind::set:
      return set_variable(s.slot, evaluate(s.value));
    case Kind::set_element: {
      const Scalar type = slot_type(s.slot);
      Expr value = widen(cast(evaluate(s.value), type));
      const Expr offset = element_offset(s.slot, index_of(s.index));
      if (const Expr mask = lanes_from(facts_.depth[s.slot]); mask.exists())
        value = select(mask, value, b_.read(buffers_[s.slot], {type, lanes_}, offset, scalar_bytes(type)));
      return b_.write(buffers_[s.slot], value, offset, scalar_bytes(type));
    }
    case Kind::set_field:
      return hooks_.set_field(s.slot, index_of(s.index), evaluate(s.value), lanes_from(0));
    case Kind::loop: {
      if (!hooks_.magnitude || !is_magnitude_loop(s)) return loop(s);
      // With NaN the order matters: the loop runs as written.
      const Expr bits = hooks_.magnitude();
      const int largest = magnitude_loop(s).accumulator;
      b_.branch(
          bits <= kInfinityBits, [&] { set_variable(largest, max(variable(largest), bitcast(bits, Scalar::f32))); },
          [&] { loop(s); });
      return;
    }
    case Kind::branch: {
      const Expr condition = evaluate(s.value);
      const bool masks = b_.type(condition).lanes > 1, differs = !is_uniform(s.value, facts_.uniform);
      LUMEN_CHECK(differs || !masks, "lanes differ in a condition that is equal in all");
      const auto under = [&](Expr lanes, const std::vector<RoutineStmt>& body) {
        if (differs) branches_.push_back(lanes);
        statements(body);
        if (differs) branches_.pop_back();
      };
      if (!masks) {
        b_.branch(condition, [&] { under({}, s.body); }, [&] { under({}, s.otherwise); });
        return;
      }
      under(condition, s.body);
      if (!s.otherwise.empty()) under(!condition, s.otherwise);
      return;
    }
  }
}

void RoutineRun::loop(const RoutineStmt& s) {
  const Expr from = index_of(s.from), to = index_of(s.to);
  b_.loop(LoopKind::serial, from, to, s.step, [&](Expr i) {
    set_variable(s.slot, i);
    statements(s.body);
  });
}

void RoutineRun::statements(const std::vector<RoutineStmt>& body) {
  for (const RoutineStmt& s : body) statement(s);
}

void RoutineRun::run() {
  statements(routine_.body);
}

Expr RoutineRun::result() {
  return evaluate(routine_.result);
}

}  // namespace lumen::synth
