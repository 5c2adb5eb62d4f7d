// Fields above the block: one record per row, tile or tensor, fitted from all its values, or supplied. Scalar. Also the
// entry points of the codec kernels: encode, decode, casts into formats, updates of states stored in formats.
#include <algorithm>

#include "base/check.h"
#include "base/ordinal.h"
#include "base/round_up.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/convert.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/encode/fit_by_lanes.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

using graph::Node;

bool is_supplied(const std::vector<SuppliedValues>& supplied, int field) {
  return std::ranges::find(supplied, field, &SuppliedValues::field) != supplied.end();
}

int64_t record_count(const Format& f, Level level, int64_t rows, int64_t columns) {
  switch (level) {
    case Level::block:
      return rows * columns / f.block;
    case Level::row:
      return rows;
    case Level::tile:
      return f.tile_bytes > 0 ? ceil_div(rows, f.tile_rows) * ceil_div(columns, f.tile_columns) : 0;
    case Level::tensor:
      return 1;
  }
  LUMEN_UNREACHABLE("level {}", ordinal(level));
}

void clear_bytes(Builder& b, BufferId buffer, int64_t from, int64_t to, Expr base) {
  b.count(from, to, 1,
          [&](Expr at) { b.store(buffer, b.integer(0, {Scalar::u8, 1}), base.exists() ? base + at : at, 1); });
}

bool EncodeOperands::weighs(const Format& f, Level level) const {
  return importance != Importance::none && f.weighted_fit[ordinal(level)];
}

const std::optional<Routine>& EncodeOperands::fit(const Format& f, Level level) const {
  return (weighs(f, level) ? f.weighted_fit : f.fit)[ordinal(level)];
}

Expr EncodeOperands::weight(Builder& b, Expr row, Expr column) const {
  const Expr at = importance == Importance::columns ? column : row * columns + column;
  return b.load(weights, {Scalar::f32, 1}, at * 4, 4);
}

Expr EncodeOperands::values(Builder& b, Expr first, int lanes, int align) const {
  const int bytes = scalar_bytes(x_type);
  return cast(b.load(x, {x_type, lanes}, first * bytes, align * bytes), Scalar::f32);
}

Expr RecordPlace::element(Expr index, int64_t columns) const {
  const Expr r = row + index / wide;
  return r * columns + (column + index % wide);
}

RecordPlace record_place(Builder& b, const Format& f, Level level, const EncodeOperands& given, Expr record) {
  if (level == Level::row) return {record, b.i64(0), b.i64(1), b.i64(given.columns)};
  if (level != Level::tile) return {b.i64(0), b.i64(0), b.i64(given.rows), b.i64(given.columns)};
  const int64_t across = blob_layout(f, given.rows, given.columns).tile_columns;
  RecordPlace p;
  p.row = record / across * f.tile_rows;
  p.column = record % across * f.tile_columns;
  p.wide = min(b.i64(f.tile_columns), given.columns - p.column);
  p.high = min(b.i64(f.tile_rows), given.rows - p.row);
  return p;
}

RoutineHooks level_hooks(Builder& b, const Format& f, Level level, const EncodeOperands& given,
                         const RecordPlace& place, Expr base,
                         const std::function<void(const std::function<void()>&)>& once) {
  std::vector<BufferId> tables;
  for (const FormatTable& t : f.tables) tables.push_back(lay_table(b, t));
  RoutineHooks hooks;
  hooks.source = [=, &b, &given](int slot, Expr index) {
    if (slot == 1) return given.weight(b, place.row + index / place.wide, place.column + index % place.wide);
    // Whole rows are contiguous.
    return given.values(b,
                        level == Level::tile ? place.element(index, given.columns) : place.row * given.columns + index);
  };
  hooks.extent = [=] { return place.wide * place.high; };
  hooks.field = [=, &b, &f, &given](int slot, Expr index) {
    const Field& field = f.fields[slot];
    Expr from = base;
    if (field.level != level) {
      LUMEN_CHECK(field.level == Level::tensor, "a fit reads a field of a level that is fitted later");
      from = b.i64(blob_layout(f, given.rows, given.columns).section[ordinal(Level::tensor)]);
    }
    return read_field(b, field, given.blob, from, index);
  };
  hooks.set_field = [=, &b, &f, &given](int slot, Expr index, Expr value, Expr) {
    if (!is_supplied(given.supplied, slot))
      once([&] { write_field(b, f.fields[slot], given.blob, base, index, value); });
  };
  hooks.table = [=, &b, &f](int slot, Expr index) { return read_table(b, f.tables[slot], tables[slot], index); };
  return hooks;
}

void encode_level(Builder& b, const Format& f, Level level, const EncodeOperands& given) {
  const BlobLayout layout = blob_layout(f, given.rows, given.columns);
  const int64_t bytes = record_bytes(f, level), records = record_count(f, level, given.rows, given.columns);
  bool all_supplied = true;
  for (size_t k = 0; k < f.fields.size(); ++k)
    if (f.fields[k].level == level) all_supplied = all_supplied && is_supplied(given.supplied, k);
  const auto& fit = given.fit(f, level);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(records), 1, [&](Expr record) {
    const Expr base = layout.section[ordinal(level)] + record * bytes;
    clear_bytes(b, given.blob, 0, bytes, base);
    for (const SuppliedValues& s : given.supplied) {
      const Field& field = f.fields[s.field];
      if (field.level != level) continue;
      for (int64_t i = 0; i < field.count; ++i) {
        const Expr at = (record * field.count + i) * 4;
        write_field(b, field, given.blob, base, b.i64(i), b.load(s.buffer, {Scalar::f32, 1}, at, 4));
      }
    }
    if (!fit || all_supplied) return;
    const auto always = [](const std::function<void()>& body) { body(); };
    RoutineRun run(b, *fit, level_hooks(b, f, level, given, record_place(b, f, level, given, record), base, always));
    run.clear();
    run.run();
  });
}

namespace {

constexpr Level kOutermostFirst[] = {Level::tensor, Level::tile, Level::row};

// Adds the steps that encode x into a blob; both named by arguments.
void add_encode_steps(Synthesis& out, const Format& f, int64_t rows, int64_t columns, Argument x, Argument blob,
                      const std::vector<std::pair<int, Argument>>& supplied, const machine::Machine& target,
                      Importance importance = Importance::none, Scalar x_type = Scalar::f32) {
  const int64_t bytes = blob_layout(f, rows, columns).total, x_bytes = rows * columns * scalar_bytes(x_type);
  // `partial`: additional scratch, and whether the step writes it.
  const auto step = [&](const std::string& plan, const auto& body, std::optional<std::pair<int, bool>> partial = {}) {
    Builder b("kernel");
    Step s;
    EncodeOperands given;
    given.rows = rows;
    given.columns = columns;
    given.x_type = x_type;
    given.x = b.param("x", x_bytes, false);
    given.blob = b.param("blob", bytes, true);
    s.arguments = {x, blob};
    for (const auto& [field, argument] : supplied) {
      const Field& info = f.fields[field];
      const int64_t numbers = record_count(f, info.level, rows, columns) * info.count;
      given.supplied.push_back({field, b.param(fmt::format("field{}", given.supplied.size()), numbers * 4, false)});
      s.arguments.push_back(argument);
    }
    if (importance != Importance::none) {
      given.importance = importance;
      given.weights = b.param("importance", (importance == Importance::columns ? 1 : rows) * columns * 4, false);
      s.arguments.push_back({Argument::From::value, 2});
    }
    BufferId parts = -1;
    if (partial) {
      parts = b.param("partial", out.scratch[partial->first], partial->second);
      s.arguments.push_back({Argument::From::scratch, partial->first});
    }
    body(b, given, parts);
    b.kernel.name = symbol_text(plan);
    s.plan = plan;
    s.kernel = b.finish();
    s.bytes = x_bytes + bytes;
    out.steps.push_back(std::move(s));
  };
  const std::string what = fmt::format("{}x{} {}{}", rows, columns, f.hash.hex().substr(0, 8),
                                       importance == Importance::none      ? ""
                                       : importance == Importance::columns ? " weighted"
                                                                           : " weighted one by one");
  EncodeOperands shape;
  shape.rows = rows;
  shape.columns = columns;
  shape.importance = importance;
  for (const auto& [field, argument] : supplied) shape.supplied.push_back({field});
  for (const Level level : kOutermostFirst) {
    if (std::ranges::find(f.fields, level, &Field::level) == f.fields.end()) continue;
    const std::string name = fmt::format("encode level {} {}", ordinal(level), what);
    const auto shared = FitByLanes::of(f, level, shape, target);
    if (!shared) {
      step(name, [&](Builder& b, const EncodeOperands& given, BufferId) { encode_level(b, f, level, given); });
      continue;
    }
    std::optional<std::pair<int, bool>> partial;
    if (const int64_t partial_bytes = shared->partial_bytes()) {
      partial.emplace(out.scratch.size(), true);
      out.scratch.push_back(partial_bytes);
      step(
          fmt::format("{} {}", name, shared->text()),
          [&](Builder& b, const EncodeOperands& given, BufferId parts) { shared->write_partial(b, given, parts); },
          partial);
      partial->second = false;
    }
    step(
        fmt::format("{} {}", name, partial ? "joined" : shared->text()),
        [&](Builder& b, const EncodeOperands& given, BufferId parts) { shared->write(b, given, parts); }, partial);
    if (partial) out.steps.back().bytes = out.scratch[partial->first];
  }
  step(fmt::format("encode {}", what),
       [&](Builder& b, const EncodeOperands& given, BufferId) { encode_blocks(b, f, given, target); });
}

}  // namespace

Synthesis synthesize_encode(const Format& f, int64_t rows, int64_t columns, const machine::Machine& target,
                            Importance importance) {
  Synthesis out;
  if (!f.weighs()) importance = Importance::none;
  add_encode_steps(out, f, rows, columns, {Argument::From::value, 0}, {Argument::From::value, 1}, {}, target,
                   importance);
  return out;
}

Synthesis synthesize_decode(const Format& f, int64_t rows, int64_t columns, const machine::Machine& target) {
  // A graph of one cast: reads that dequantize are implemented once, in Body.
  graph::Plan plan;
  graph::Type blob, plain;
  blob.shape = plain.shape = {graph::Dim(rows), graph::Dim(columns)};
  blob.element.format = std::make_shared<const Format>(f);
  Node input{}, cast{};
  input.op = graph::Op::input_;
  input.type = blob;
  cast.op = graph::Op::cast_;
  cast.type = plain;
  cast.operands = {0};
  plan.graph.nodes = {input, cast};
  graph::Group group;
  group.shape = graph::KernelShape::move;
  group.nodes = {1};
  group.inputs = {0};
  group.results = {1};
  group.root = 1;
  return synthesize_map(plan, group, target);
}

Synthesis synthesize_cast(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  const graph::Graph& g = plan.graph;
  const Node& root = g[group.root];
  const std::vector<int64_t> shape = extents_of(root.type.shape);
  const int64_t columns = shape.empty() ? 1 : shape.back(), rows = columns == 0 ? 0 : product(shape) / columns;
  Synthesis out;
  // Operands that are not plain f32 in memory are laid out in scratch first.
  const auto laid_out = [&](graph::ValueId v, Scalar* type = nullptr) -> Argument {
    const Access a = follow(plan, group, v);
    const std::vector<int64_t> extents = extents_of(g[v].type.shape);
    const bool in_memory = graph::reads_memory(group, a.source);
    const bool whole = product(extents_of(g[a.source].type.shape)) == product(extents);
    const graph::Element element = g[a.source].type.element;
    if (in_memory && whole && a.offset == 0 && a.strides == own_strides_of(extents) &&
        (element == graph::Element{} || (type && is_16bit_float(element)))) {
      if (type) *type = element.scalar;
      return {Argument::From::value, a.source};
    }
    if (type && is_16bit_float(g[v].type.element)) *type = g[v].type.element.scalar;
    const int number = out.scratch.size();
    const Scalar held = type ? *type : Scalar::f32;
    out.scratch.push_back(product(extents) * scalar_bytes(held));
    out.steps.push_back(copy_to_scratch(plan, group, v, number, target, held));
    return {Argument::From::scratch, number};
  };
  Scalar x_type = Scalar::f32;
  const Argument x = laid_out(root.operands[0], &x_type);
  std::vector<std::pair<int, Argument>> supplied;
  for (size_t k = 0; k < root.attributes.sources.size() && k + 1 < root.operands.size(); ++k)
    supplied.emplace_back(root.attributes.sources[k].first, laid_out(root.operands[k + 1]));
  add_encode_steps(out, *root.type.element.format, rows, columns, x, {Argument::From::value, group.root}, supplied,
                   target, Importance::none, x_type);
  return out;
}

}  // namespace lumen::synth
