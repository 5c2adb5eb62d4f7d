// Fields above the block: one record per row, tile or tensor, fitted from all its values, or supplied. Scalar; and the
// doors of the codec kernels: encode, decode, casts into formats, updates of states held in formats.
#include <algorithm>

#include "base/check.h"
#include "base/ordinal.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/convert.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/step/ceil_div.h"
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

void encode_level(Builder& b, const Format& f, Level level, const EncodeOperands& given) {
  const auto& [rows, columns, x, blob, supplied, importance, weights] = given;
  const BlobLayout layout = blob_layout(f, rows, columns);
  const int64_t bytes = record_bytes(f, level), records = record_count(f, level, rows, columns);
  bool all_supplied = true;
  for (size_t k = 0; k < f.fields.size(); ++k)
    if (f.fields[k].level == level) all_supplied = all_supplied && is_supplied(supplied, k);
  const auto& fit = given.fit(f, level);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(records), 1, [&](Expr record) {
    const Expr base = layout.section[ordinal(level)] + record * bytes;
    clear_bytes(b, blob, 0, bytes, base);
    for (const SuppliedValues& s : supplied) {
      const Field& field = f.fields[s.field];
      if (field.level != level) continue;
      for (int64_t i = 0; i < field.count; ++i) {
        const Expr at = (record * field.count + i) * 4;
        write_field(b, field, blob, base, b.i64(i), b.load(s.buffer, {Scalar::f32, 1}, at, 4));
      }
    }
    if (!fit || all_supplied) return;
    // The record's values: `wide` x `high` from (row0, column0), numbered row by row.
    Expr row0 = b.i64(0), column0 = b.i64(0), wide = b.i64(columns), high = b.i64(rows);
    if (level == Level::row) {
      row0 = record;
      high = b.i64(1);
    } else if (level == Level::tile) {
      row0 = record / layout.tile_columns * f.tile_rows;
      column0 = record % layout.tile_columns * f.tile_columns;
      wide = min(b.i64(f.tile_columns), columns - column0);
      high = min(b.i64(f.tile_rows), rows - row0);
    }
    std::vector<BufferId> tables;
    for (const FormatTable& t : f.tables) tables.push_back(lay_table(b, t));
    RoutineHooks hooks;
    hooks.source = [&](int slot, Expr index) {
      if (slot == 1) return given.weight(b, row0 + index / wide, column0 + index % wide);
      Expr at = row0 * columns + index;
      if (level == Level::tile) {
        const Expr r = row0 + index / wide;
        at = r * columns + (column0 + index % wide);
      }
      return b.load(x, {Scalar::f32, 1}, at * 4, 4);
    };
    hooks.extent = [&] { return wide * high; };
    hooks.field = [&](int slot, Expr index) {
      const Field& field = f.fields[slot];
      Expr from = base;
      if (field.level != level) {
        LUMEN_CHECK(field.level == Level::tensor, "a fit reads a field of a level that is fitted later");
        from = b.i64(layout.section[ordinal(Level::tensor)]);
      }
      return read_field(b, field, blob, from, index);
    };
    hooks.set_field = [&](int slot, Expr index, Expr value, Expr) {
      if (!is_supplied(supplied, slot)) write_field(b, f.fields[slot], blob, base, index, value);
    };
    hooks.table = [&](int slot, Expr index) { return read_table(b, f.tables[slot], tables[slot], index); };
    RoutineRun run(b, *fit, std::move(hooks));
    run.clear();
    run.run();
  });
}

namespace {

constexpr Level kOutermostFirst[] = {Level::tensor, Level::tile, Level::row};

// Adds the steps that encode x into a blob; both named by arguments.
void add_encode_steps(Synthesis& out, const Format& f, int64_t rows, int64_t columns, Argument x, Argument blob,
                      const std::vector<std::pair<int, Argument>>& supplied, const machine::Machine& target,
                      Importance importance = Importance::none) {
  const int64_t bytes = blob_layout(f, rows, columns).total;
  const auto step = [&](const std::string& plan, const auto& body) {
    Builder b("kernel");
    Step s;
    EncodeOperands given;
    given.rows = rows;
    given.columns = columns;
    given.x = b.param("x", rows * columns * 4, false);
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
    body(b, given);
    b.kernel.name = symbol_text(plan);
    s.plan = plan;
    s.kernel = b.finish();
    s.bytes = rows * columns * 4 + bytes;
    out.steps.push_back(std::move(s));
  };
  const std::string what = fmt::format("{}x{} {}{}", rows, columns, f.hash.hex().substr(0, 8),
                                       importance == Importance::none      ? ""
                                       : importance == Importance::columns ? " weighted"
                                                                           : " weighted one by one");
  for (const Level level : kOutermostFirst) {
    if (std::ranges::find(f.fields, level, &Field::level) == f.fields.end()) continue;
    step(fmt::format("encode level {} {}", ordinal(level), what),
         [&](Builder& b, const EncodeOperands& given) { encode_level(b, f, level, given); });
  }
  step(fmt::format("encode {}", what),
       [&](Builder& b, const EncodeOperands& given) { encode_blocks(b, f, given, target); });
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
  // A graph of one cast: dequantizing reads are written once, in Body.
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
  const auto laid_out = [&](graph::ValueId v) -> Argument {
    const Access a = follow(plan, group, v);
    const std::vector<int64_t> extents = extents_of(g[v].type.shape);
    const bool in_memory = graph::reads_memory(group, a.source);
    const bool whole = product(extents_of(g[a.source].type.shape)) == product(extents);
    if (in_memory && whole && a.offset == 0 && a.strides == own_strides_of(extents) &&
        g[v].type.element == graph::Element{})
      return {Argument::From::value, a.source};
    const int number = out.scratch.size();
    out.scratch.push_back(product(extents) * 4);
    out.steps.push_back(copy_to_scratch(plan, group, v, number, target));
    return {Argument::From::scratch, number};
  };
  const Argument x = laid_out(root.operands[0]);
  std::vector<std::pair<int, Argument>> supplied;
  for (size_t k = 0; k < root.attributes.sources.size() && k + 1 < root.operands.size(); ++k)
    supplied.emplace_back(root.attributes.sources[k].first, laid_out(root.operands[k + 1]));
  add_encode_steps(out, *root.type.element.format, rows, columns, x, {Argument::From::value, group.root}, supplied,
                   target);
  return out;
}

}  // namespace lumen::synth
