#include "kernel/synth/encode/code_fields.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/ordinal.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

namespace {

constexpr Level kSections[] = {Level::block, Level::row, Level::tile, Level::tensor};

// Operands that are not plain f32 in memory are laid out in scratch.
Argument laid_out(const graph::Plan& plan, const graph::Group& group, graph::ValueId v, const machine::Machine& target,
                  Synthesis& out) {
  const graph::Graph& g = plan.graph;
  const Access a = follow(plan, group, v);
  const std::vector<int64_t> extents = extents_of(g[v].type.shape);
  const bool whole = product(extents_of(g[a.source].type.shape)) == product(extents);
  if (graph::reads_memory(group, a.source) && whole && a.offset == 0 && a.strides == own_strides_of(extents) &&
      g[v].type.element == graph::Element{})
    return {Argument::From::value, a.source};
  const int number = out.scratch.size();
  out.scratch.push_back(product(extents) * 4);
  out.steps.push_back(copy_to_scratch(plan, group, v, number, target));
  return {Argument::From::scratch, number};
}

}  // namespace

CodeFields::CodeFields(const graph::Plan& plan, const graph::Group& group, graph::ValueId cast,
                       const machine::Machine& target, Synthesis& out)
    : cast_(cast), format_(*plan.graph[cast].type.element.format), byte_(*byte_code(format_)) {
  const graph::Node& node = plan.graph[cast];
  const std::vector<int64_t> shape = extents_of(node.type.shape);
  columns_ = shape.back();
  rows_ = product(shape) / columns_;
  layout_ = blob_layout(format_, rows_, columns_);
  for (size_t k = 0; k < node.attributes.sources.size(); ++k) {
    const int field = node.attributes.sources[k].first;
    const graph::ValueId v = node.operands[k + 1];
    supplies_.push_back({field, laid_out(plan, group, v, target, out),
                         record_count(format_, format_.fields[field].level, rows_, columns_), -1});
    LUMEN_CHECK(supplies_.back().numbers == product(extents_of(plan.graph[v].type.shape)));
  }
  LUMEN_CHECK(supplies_.size() == byte_.fields.size());
  if (!supplies_.empty()) out.steps.push_back(write_step(plan));
}

BufferId CodeFields::declared(StepBuilder& builder, const Supply& s) const {
  return s.from.from == Argument::From::value ? builder.value(s.from.index, false)
                                              : builder.scratch(s.from.index, s.numbers * 4, false);
}

void CodeFields::declare(StepBuilder& builder) {
  for (Supply& s : supplies_) s.buffer = declared(builder, s);
}

// A task for a record of each field.
Step CodeFields::write_step(const graph::Plan& plan) const {
  StepBuilder builder(plan.graph);
  Builder& b = builder.b;
  std::vector<BufferId> from;
  int64_t most = 0, all = 0;
  for (const Supply& s : supplies_) {
    from.push_back(declared(builder, s));
    most = std::max(most, s.numbers);
    all += s.numbers;
  }
  const BufferId blob = builder.value(cast_, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(most), 1, [&](Expr record) {
    std::set<Level> cleared;
    for (size_t k = 0; k < supplies_.size(); ++k) {
      const Field& f = format_.fields[supplies_[k].field];
      const int64_t bytes = record_bytes(format_, f.level);
      const Expr base = layout_.section[ordinal(f.level)] + record * bytes;
      const auto write = [&] {
        if (cleared.insert(f.level).second) clear_bytes(b, blob, 0, bytes, base);
        write_field(b, f, blob, base, b.i64(0), b.load(from[k], {Scalar::f32, 1}, record * 4, 4));
      };
      supplies_[k].numbers == most ? write() : b.branch(record < supplies_[k].numbers, write);
    }
  });
  return builder.finish(fmt::format("fields {}x{} {}", rows_, columns_, format_.hash.hex().substr(0, 8)), 0, 8.0 * all);
}

bool CodeFields::are_many() const {
  return std::ranges::any_of(supplies_, [&](const Supply& s) { return s.numbers > 1; });
}

bool CodeFields::is_same_for(int64_t run, int64_t length) const {
  return std::ranges::all_of(supplies_, [&](const Supply& s) {
    const Level level = format_.fields[s.field].level;
    if (level == Level::tensor) return true;
    return length % run == 0 && columns_ % run == 0 && (level == Level::row || format_.tile_columns % run == 0);
  });
}

bool CodeFields::is_same_below(int64_t run) const {
  return std::ranges::all_of(supplies_, [&](const Supply& s) {
    const Level level = format_.fields[s.field].level;
    return level == Level::tensor || (level == Level::tile && format_.tile_rows % run == 0);
  });
}

Expr CodeFields::record(const Field& f, Expr row, Expr column) const {
  if (f.level == Level::row) return row;
  const Expr tile_row = format_.tile_rows == 1 ? row : row / format_.tile_rows;
  return tile_row * layout_.tile_columns + column / format_.tile_columns;
}

Expr CodeFields::value(Builder& b, const Supply& s, const std::vector<Expr>& records, bool are_neighbours) const {
  const int lanes = records.size();
  const auto load = [&](Expr record, int n) { return b.load(s.buffer, {Scalar::f32, n}, record * 4, 4); };
  const Expr x = lanes == 1 || are_neighbours ? load(records[0], lanes)
                                              : b.join(lanes, [&](int l) { return load(records[l], 1); });
  const FieldType& t = format_.fields[s.field].type;
  const bool is_f32 = t.is_float && t.bits == 32 && t.mantissa_bits == 23;
  return is_f32 ? x : decode_codes(b, t, encode_value(b, t, x));
}

CodeFields::Values CodeFields::at(Builder& b, Expr row, Expr column) const {
  return along(b, row, column, 1);
}

CodeFields::Values CodeFields::along(Builder& b, Expr row, Expr column, int lanes) const {
  Values out;
  for (const Supply& s : supplies_) {
    const Field& f = format_.fields[s.field];
    const bool differ = f.level == Level::tile && format_.tile_columns % lanes != 0;
    std::vector<Expr> records;
    for (int l = 0; l < (differ ? lanes : 1); ++l)
      records.push_back(f.level == Level::tensor ? b.i64(0) : record(f, row, column + l));
    out[s.field] = value(b, s, records, false);
  }
  return out;
}

CodeFields::Values CodeFields::below(Builder& b, Expr row, Expr column, int lanes) const {
  Values out;
  for (const Supply& s : supplies_) {
    const Field& f = format_.fields[s.field];
    const bool differ = f.level == Level::row || (f.level == Level::tile && format_.tile_rows % lanes != 0);
    std::vector<Expr> records;
    for (int l = 0; l < (differ ? lanes : 1); ++l)
      records.push_back(f.level == Level::tensor ? b.i64(0) : record(f, row + l, column));
    out[s.field] = value(b, s, records, f.level == Level::row);
  }
  return out;
}

Expr CodeFields::code(Builder& b, Expr x, const Values& fields) const {
  return encode_value(b, byte_.type, byte_.code ? evaluate(b, *byte_.code, x, fields) : x);
}

Expr CodeFields::evaluate(Builder& b, const RoutineExpr& e, Expr x, const Values& fields) const {
  switch (e.kind) {
    case RoutineExpr::Kind::constant:
      return is_float(e.type) ? b.real(e.real, {e.type, 1}) : b.integer(e.integer, {e.type, 1});
    case RoutineExpr::Kind::variable:
      return x;
    case RoutineExpr::Kind::field:
      return fields.at(e.slot);
    case RoutineExpr::Kind::op:
      break;
    default:
      LUMEN_UNREACHABLE("expression kind {} in a code of one byte", ordinal(e.kind));
  }
  std::vector<Expr> args;
  int lanes = 1;
  for (const RoutineExpr& a : e.args) {
    args.push_back(evaluate(b, a, x, fields));
    lanes = std::max(lanes, b.type(args.back()).lanes);
  }
  for (Expr& a : args)
    if (b.type(a).lanes < lanes) a = b.splat(a, lanes);
  return apply_op(b, e, args);
}

template <class Visit>
void CodeFields::each_gap(const Visit& visit) const {
  for (const Level level : kSections) {
    const int k = ordinal(level);
    const int64_t end =
        layout_.section[k] + record_count(format_, level, rows_, columns_) * record_bytes(format_, level);
    const int64_t next = k + 1 < kLevels ? layout_.section[k + 1] : layout_.total;
    if (end < next) visit(end, next);
  }
}

bool CodeFields::leaves_gaps() const {
  bool any = false;
  each_gap([&](int64_t, int64_t) { any = true; });
  return any;
}

void CodeFields::clear_gaps(StepBuilder& builder) const {
  each_gap([&](int64_t from, int64_t to) { clear_bytes(builder.b, builder.value(cast_, true), from, to); });
}

}  // namespace lumen::synth
