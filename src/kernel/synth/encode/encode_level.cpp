// Fields above the block: one record per row, tile or tensor, fitted from all its values, or supplied. Scalar; and the
// doors of the codec kernels: encode, decode, casts into formats, updates of states held in formats.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/convert.h"
#include "kernel/synth/encode/copy.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

using graph::Node;
using loop::BufferId;
using loop::Expr;
using loop::VType;

bool has_level(const Format& f, Level level) {
  return std::any_of(f.fields.begin(), f.fields.end(), [&](const Field& field) { return field.level == level; });
}

void encode_level(loop::Builder& b, const Format& f, Level level, int64_t rows, int64_t columns, BufferId x,
                  BufferId blob, const std::vector<SuppliedValues>& supplied) {
  const BlobLayout layout = blob_layout(f, rows, columns);
  const int64_t bytes = level == Level::row ? f.row_bytes : level == Level::tile ? f.tile_bytes : f.tensor_bytes;
  const int64_t tile_rows = level == Level::tile ? (rows + f.tile_rows - 1) / f.tile_rows : 0;
  const int64_t records = level == Level::row ? rows : level == Level::tile ? tile_rows * layout.tile_columns : 1;
  const auto is_supplied = [&](int field) {
    return std::any_of(supplied.begin(), supplied.end(), [&](const SuppliedValues& s) { return s.field == field; });
  };
  bool all_supplied = true;
  for (size_t k = 0; k < f.fields.size(); ++k)
    if (f.fields[k].level == level) all_supplied = all_supplied && is_supplied(static_cast<int>(k));
  const auto& fit = f.fit[static_cast<size_t>(level)];
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(records), 1, [&](Expr record) {
    const Expr base = layout.section[static_cast<size_t>(level)] + record * bytes;
    b.loop(loop::LoopKind::serial, b.i64(0), b.i64(bytes), 1,
           [&](Expr at) { b.store(blob, b.integer(0, {Scalar::u8, 1}), base + at, 1); });
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
    hooks.source = [&](Expr index) {
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
        from = b.i64(layout.section[static_cast<size_t>(Level::tensor)]);
      }
      return read_field(b, field, blob, from, index);
    };
    hooks.set_field = [&](int slot, Expr index, Expr value, Expr) {
      if (!is_supplied(slot)) write_field(b, f.fields[slot], blob, base, index, value);
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
                      const std::vector<std::pair<int, Argument>>& supplied, const machine::Machine& target) {
  const int64_t bytes = blob_layout(f, rows, columns).total;
  const auto step = [&](const std::string& plan, const auto& body) {
    loop::Builder b("kernel");
    Step s;
    const BufferId from = b.param("x", rows * columns * 4, false), to = b.param("blob", bytes, true);
    s.arguments = {x, blob};
    std::vector<SuppliedValues> values;
    for (const auto& [field, argument] : supplied) {
      const Field& info = f.fields[field];
      const int64_t records = info.level == Level::block ? rows * columns / f.block
                              : info.level == Level::row ? rows
                              : info.level == Level::tensor
                                  ? 1
                                  : (rows + f.tile_rows - 1) / f.tile_rows * blob_layout(f, rows, columns).tile_columns;
      values.push_back({field, b.param(fmt::format("field{}", values.size()), records * info.count * 4, false)});
      s.arguments.push_back(argument);
    }
    body(b, from, to, values);
    b.kernel.name = symbol_text(plan);
    s.plan = plan;
    s.kernel = b.finish();
    s.bytes = static_cast<double>(rows * columns * 4 + bytes);
    out.steps.push_back(std::move(s));
  };
  const std::string what = fmt::format("{}x{} {}", rows, columns, f.hash.hex().substr(0, 8));
  for (const Level level : kOutermostFirst) {
    if (!has_level(f, level)) continue;
    step(fmt::format("encode level {} {}", static_cast<int>(level), what),
         [&](loop::Builder& b, BufferId from, BufferId to, const auto& values) {
           encode_level(b, f, level, rows, columns, from, to, values);
         });
  }
  step(fmt::format("encode {}", what), [&](loop::Builder& b, BufferId from, BufferId to, const auto& values) {
    encode_blocks(b, f, rows, columns, from, to, values, target);
  });
}

}  // namespace

Synthesis synthesize_encode(const Format& f, int64_t rows, int64_t columns, const machine::Machine& target) {
  Synthesis out;
  add_encode_steps(out, f, rows, columns, {Argument::From::value, 0}, {Argument::From::value, 1}, {}, target);
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
  const auto in_memory = [&](graph::ValueId v) -> Argument {
    const Access a = follow(plan, group, v);
    const std::vector<int64_t> extents = extents_of(g[v].type.shape);
    std::vector<int64_t> dense = dense_strides_of(extents);
    for (size_t d = 0; d < dense.size(); ++d)
      if (extents[d] == 1) dense[d] = 0;
    const bool is_input = std::find(group.inputs.begin(), group.inputs.end(), a.source) != group.inputs.end();
    const bool whole = product(extents_of(g[a.source].type.shape)) == product(extents);
    if (is_input && whole && a.offset == 0 && a.strides == dense && g[v].type.element == graph::Element{})
      return {Argument::From::value, a.source};
    const int number = out.scratch.size();
    out.scratch.push_back(product(extents) * 4);
    out.steps.push_back(copy_to_scratch(plan, group, v, number, target));
    return {Argument::From::scratch, number};
  };
  const Argument x = in_memory(root.operands[0]);
  std::vector<std::pair<int, Argument>> supplied;
  for (size_t k = 0; k < root.attributes.sources.size() && k + 1 < root.operands.size(); ++k)
    supplied.emplace_back(root.attributes.sources[k].first, in_memory(root.operands[k + 1]));
  add_encode_steps(out, *root.type.element.format, rows, columns, x, {Argument::From::value, group.root}, supplied,
                   target);
  return out;
}

}  // namespace lumen::synth
