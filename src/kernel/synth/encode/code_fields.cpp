#include "kernel/synth/encode/code_fields.h"

#include <algorithm>
#include <functional>
#include <map>

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
    : cast_(cast),
      format_(*plan.graph[cast].type.element.format),
      target_(target),
      byte_(*byte_code(format_)),
      parts_(code_parts(format_, byte_)) {
  const graph::Node& node = plan.graph[cast];
  const std::vector<int64_t> shape = extents_of(node.type.shape);
  columns_ = shape.back();
  rows_ = product(shape) / columns_;
  layout_ = blob_layout(format_, rows_, columns_);
  const auto records = [&](Level level) { return record_count(format_, level, rows_, columns_); };
  for (size_t k = 0; k < node.attributes.sources.size(); ++k) {
    const int field = node.attributes.sources[k].first;
    const graph::ValueId v = node.operands[k + 1];
    supplies_.push_back({field, laid_out(plan, group, v, target, out), records(format_.fields[field].level)});
    LUMEN_CHECK(supplies_.back().numbers == product(extents_of(plan.graph[v].type.shape)));
  }
  LUMEN_CHECK(supplies_.size() == byte_.fields.size() || supplies_.empty());
  if (!are_supplied()) return;
  for (const RoutineExpr& part : parts_.parts) {
    Part p;
    p.level = level_of(format_, part);
    p.numbers = records(p.level);
    p.is_computed = !is_as_supplied(part);
    p.from = Argument{Argument::From::scratch};
    if (p.is_computed)
      p.from.index = out.scratch.size();
    else
      p.from = supply_of(part.slot).from;
    if (p.is_computed && !is_in_kernel()) out.scratch.push_back(p.numbers * 4);
    places_.push_back(p);
  }
  if (!is_in_kernel()) out.steps.push_back(write_step(plan));
}

const CodeFields::Supply& CodeFields::supply_of(int field) const {
  return *std::ranges::find(supplies_, field, &Supply::field);
}

bool CodeFields::is_as_supplied(const RoutineExpr& part) const {
  if (part.kind != RoutineExpr::Kind::field) return false;
  const FieldType& t = format_.fields[part.slot].type;
  return t.is_float && t.bits == 32 && t.mantissa_bits == 23;
}

BufferId CodeFields::declared(KernelParams& kernel, const Argument& from, int64_t numbers, bool written) const {
  return from.from == Argument::From::value ? kernel.value(from.index, written)
                                            : kernel.scratch(from.index, numbers * 4, written);
}

bool CodeFields::is_in_kernel() const {
  return are_supplied() && std::ranges::all_of(supplies_, [&](const Supply& s) {
           return format_.fields[s.field].level == Level::tensor;
         });
}

void CodeFields::declare(KernelParams& kernel) {
  if (is_in_kernel())
    for (Supply& s : supplies_) s.buffer = declared(kernel, s.from, s.numbers, false);
  else
    for (Part& p : places_) p.buffer = declared(kernel, p.from, p.numbers, false);
}

void CodeFields::begin(Builder& b) {
  if (!is_in_kernel()) return;
  for (Supply& s : supplies_) s.number = b.load(s.buffer, {Scalar::f32, 1}, b.i64(0), 4);
  for (size_t k = 0; k < places_.size(); ++k)
    places_[k].number = part_of(b, parts_.parts[k], [&](int field) { return supply_of(field).number; });
}

namespace {

Expr evaluate(Builder& b, const RoutineExpr& e, const std::function<Expr(const RoutineExpr&)>& leaf) {
  if (e.kind == RoutineExpr::Kind::constant)
    return is_float(e.type) ? b.real(e.real, {e.type, 1}) : b.integer(e.integer, {e.type, 1});
  if (e.kind != RoutineExpr::Kind::op) return leaf(e);
  std::vector<Expr> args;
  int lanes = 1;
  for (const RoutineExpr& a : e.args) {
    args.push_back(evaluate(b, a, leaf));
    lanes = std::max(lanes, b.type(args.back()).lanes);
  }
  for (Expr& a : args)
    if (b.type(a).lanes < lanes) a = b.splat(a, lanes);
  return apply_op(b, e, args);
}

}  // namespace

void CodeFields::write_record(Builder& b, BufferId blob, Level level, Expr record, const Found& fields) const {
  const int64_t bytes = record_bytes(format_, level);
  const Expr base = layout_.section[ordinal(level)] + record * bytes;
  clear_bytes(b, blob, 0, bytes, base);
  for (const auto& [field, x] : fields) write_field(b, format_.fields[field], blob, base, b.i64(0), x);
}

Expr CodeFields::part_of(Builder& b, const RoutineExpr& part, const std::function<Expr(int)>& found) const {
  return evaluate(b, part, [&](const RoutineExpr& e) {
    const FieldType& t = format_.fields[e.slot].type;
    return decode_codes(b, t, encode_value(b, t, found(e.slot)));
  });
}

CodeFields::Values CodeFields::parts_of(Builder& b, const Found& fields) const {
  Values out;
  for (const RoutineExpr& part : parts_.parts)
    out.push_back(part_of(b, part, [&](int field) { return fields.at(field); }));
  return out;
}

// A task for a record of each level.
Step CodeFields::write_step(const graph::Plan& plan) const {
  StepBuilder builder(plan.graph);
  Builder& b = builder.b;
  std::map<int, BufferId> from;
  int64_t most = 0, all = 0;
  for (const Supply& s : supplies_) {
    from[s.field] = declared(builder, s.from, s.numbers, false);
    most = std::max(most, s.numbers);
    all += s.numbers;
  }
  std::vector<BufferId> parts;
  for (const Part& p : places_) parts.push_back(p.is_computed ? declared(builder, p.from, p.numbers, true) : -1);
  const BufferId blob = builder.value(cast_, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(most), 1, [&](Expr record) {
    const auto where = [&](int64_t numbers, const std::function<void()>& write) {
      numbers == most ? write() : b.branch(record < numbers, write);
    };
    const auto supplied = [&](int field) {
      const bool is_single = format_.fields[field].level == Level::tensor;
      return b.load(from.at(field), {Scalar::f32, 1}, is_single ? b.i64(0) : record * 4, 4);
    };
    for (const Level level : kSections) {
      std::vector<int> fields;
      for (const Supply& s : supplies_)
        if (format_.fields[s.field].level == level) fields.push_back(s.field);
      if (fields.empty()) continue;
      where(record_count(format_, level, rows_, columns_), [&] {
        Found found;
        for (const int field : fields) found[field] = supplied(field);
        write_record(b, blob, level, record, found);
      });
    }
    for (size_t k = 0; k < parts.size(); ++k) {
      if (parts[k] < 0) continue;
      where(places_[k].numbers, [&] { b.store(parts[k], part_of(b, parts_.parts[k], supplied), record * 4, 4); });
    }
  });
  return builder.finish(fmt::format("fields {}x{} {}", rows_, columns_, format_.hash.hex().substr(0, 8)), 0, 8.0 * all);
}

bool CodeFields::are_many() const {
  return std::ranges::any_of(places_, [](const Part& p) { return p.numbers > 1; });
}

bool CodeFields::is_same_for(int64_t run, int64_t length) const {
  return std::ranges::all_of(places_, [&](const Part& p) {
    if (p.level == Level::tensor) return true;
    return length % run == 0 && columns_ % run == 0 && (p.level == Level::row || format_.tile_columns % run == 0);
  });
}

bool CodeFields::is_same_below(int64_t run) const {
  return std::ranges::all_of(places_, [&](const Part& p) {
    return p.level == Level::tensor || (p.level == Level::tile && format_.tile_rows % run == 0);
  });
}

Expr CodeFields::record(Level level, Expr row, Expr column) const {
  if (level == Level::row) return row;
  const Expr tile_row = format_.tile_rows == 1 ? row : row / format_.tile_rows;
  return tile_row * layout_.tile_columns + column / format_.tile_columns;
}

Expr CodeFields::value(Builder& b, const Part& p, const std::vector<Expr>& records, bool are_neighbours) const {
  if (p.number.exists()) return p.number;
  const int lanes = records.size();
  const auto load = [&](Expr record, int n) { return b.load(p.buffer, {Scalar::f32, n}, record * 4, 4); };
  return lanes == 1 || are_neighbours ? load(records[0], lanes)
                                      : b.join(lanes, [&](int l) { return load(records[l], 1); });
}

CodeFields::Values CodeFields::at(Builder& b, Expr row, Expr column) const {
  return along(b, row, column, 1);
}

CodeFields::Values CodeFields::along(Builder& b, Expr row, Expr column, int lanes) const {
  Values out;
  for (const Part& p : places_) {
    const bool differ = p.level == Level::tile && format_.tile_columns % lanes != 0;
    std::vector<Expr> records;
    for (int l = 0; l < (differ ? lanes : 1); ++l)
      records.push_back(p.level == Level::tensor ? b.i64(0) : record(p.level, row, column + l));
    out.push_back(value(b, p, records, false));
  }
  return out;
}

CodeFields::Values CodeFields::below(Builder& b, Expr row, Expr column, int lanes) const {
  Values out;
  for (const Part& p : places_) {
    const bool differ = p.level == Level::row || (p.level == Level::tile && format_.tile_rows % lanes != 0);
    std::vector<Expr> records;
    for (int l = 0; l < (differ ? lanes : 1); ++l)
      records.push_back(p.level == Level::tensor ? b.i64(0) : record(p.level, row + l, column));
    out.push_back(value(b, p, records, p.level == Level::row));
  }
  return out;
}

Expr CodeFields::code(Builder& b, Expr x, const Values& parts) const {
  if (parts_.code)
    x = evaluate(b, *parts_.code, [&](const RoutineExpr& e) { return e.slot == 0 ? x : parts.at(e.slot - 1); });
  return encode_bytes(b, byte_.type, x, target_);
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

bool CodeFields::has_rest() const {
  bool any = is_in_kernel();
  each_gap([&](int64_t, int64_t) { any = true; });
  return any;
}

void CodeFields::write_rest(KernelParams& kernel) const {
  Builder& b = kernel.builder();
  const BufferId blob = kernel.value(cast_, true);
  each_gap([&](int64_t from, int64_t to) { clear_bytes(b, blob, from, to); });
  if (!is_in_kernel()) return;
  Found found;
  for (const Supply& s : supplies_) found[s.field] = s.number;
  write_record(b, blob, Level::tensor, b.i64(0), found);
}

}  // namespace lumen::synth
