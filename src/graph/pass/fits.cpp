// separate_fits: a cast into bytes whose scales are formulas of largest magnitudes gets them from separate nodes:
// reductions that fuse with the producer of the numbers or read them from memory, and a small map. The encoded value is
// then one map that both casts of a matrix read; if it is a conversion, the map reads the shorter type. Scales of tiles
// that squares contain whole stay with their casts, whose kernel finds them (graph/match/codes.h). Exact: extremes of
// magnitudes do not depend on the order, and the formulas are the format's. Proved by
// tests/graph/pass/separate_fits.txt and tests/graph/separate_fits_test.cpp.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "graph/fuse/plan.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/codes.h"
#include "graph/pass/pass.h"
#include "number/facts/record_fit.h"

namespace lumen::graph {

namespace {

constexpr Level kAbove[] = {Level::row, Level::tile, Level::tensor};
constexpr int64_t kShortRow = 512, kLongRow = 65536;  // row lengths for which one kernel reduces each row

bool has_fields(const Format& f, Level level) {
  return std::ranges::find(f.fields, level, &Field::level) != f.fields.end();
}

// A conversion of a shorter float to f32.
bool is_conversion(const Graph& g, ValueId v) {
  const Node& node = g[v];
  if (node.op != Op::map_ || node.operands.size() != 1) return false;
  const Formula& f = node.attributes.formula;
  const ScalarNode& last = f.nodes[f.outputs[0]];
  return last.op == ScalarOp::cast_ && is_float(f.inputs[0]) && f.nodes[last.args[0]].op == ScalarOp::input &&
         g[node.operands[0]].type.shape == node.type.shape && !g[node.operands[0]].type.element.format;
}

class Separator {
 public:
  Separator(const Graph& g, bool of_squares) : r_(g), b_(r_.build), of_squares_(of_squares) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v)
      if (!separate(v)) r_.keep(v);
    return r_.finish();
  }

 private:
  // The encoded value as stored in memory, in the new graph, and the conversion of its elements to f32.
  struct Numbers {
    ValueId value = -1;
    Formula as_f32;
  };
  struct Shared {
    ValueId first = -1;  // cast of the old graph
    ValueId map = -1;
    bool has[2] = {false, false};  // row-major, transposed
  };

  bool separate(ValueId v) {
    const auto cast = byte_cast(r_.from, v);
    if (!cast) return false;
    const Node& node = r_.from[v];
    const Format& f = *node.type.element.format;
    const Op source = r_.from[cast->source].op;
    if (byte_code(f)->fields.empty() || source == Op::cast_ || source == Op::constant_ || source == Op::iota_)
      return false;
    // Fits of all levels that are not supplied; if one has none, the cast stays.
    std::vector<std::pair<Level, RecordFit>> fits;
    for (const Level level : kAbove) {
      if (!has_fields(f, level) || is_supplied(node, level)) continue;
      auto fit = record_fit(f, level);
      if (!fit || !is_whole(f, level, *cast)) return false;
      fits.emplace_back(level, std::move(*fit));
    }
    if (fits.empty() && source == Op::map_ && !is_conversion(r_.from, cast->source)) return false;  // casts absorb it
    if (!of_squares_ && fitted_square(r_.from, v) > 0) fits.clear();  // the encoding kernel finds them
    const Numbers x = numbers(cast->source);
    std::vector<std::pair<int, FieldSource>> sources = node.attributes.sources;
    std::vector<ValueId> fields;
    for (size_t k = 1; k < node.operands.size(); ++k) fields.push_back(r_[node.operands[k]]);
    for (const auto& [level, fit] : fits)
      for (const auto& [field, value] : fit.fields) {
        sources.emplace_back(field, FieldSource::supplied);
        fields.push_back(fitted(x, *cast, f, level, fit, field, value));
      }
    ValueId y = shared(v, *cast, x);
    if (cast->transposed)
      y = b_.permute(reshaped(y, {Dim(cast->columns), Dim(cast->rows)}), {1, 0});
    else
      y = reshaped(y, node.type.shape);
    r_.replace(v, b_.cast(y, node.type.element, sources, fields));
    r_.keep_label(v);
    return true;
  }

  static bool is_supplied(const Node& cast, Level level) {
    const Format& f = *cast.type.element.format;
    for (int k = 0; k < std::ssize(f.fields); ++k)
      if (f.fields[k].level == level && std::ranges::find(cast.attributes.sources, k, [](const auto& s) {
                                          return s.first;
                                        }) == cast.attributes.sources.end())
        return false;
    return true;
  }

  // Tiles divide the matrix.
  static bool is_whole(const Format& f, Level level, const ByteCast& cast) {
    return level != Level::tile || (cast.rows % f.tile_rows == 0 && cast.columns % f.tile_columns == 0);
  }

  Numbers numbers(ValueId source) {
    Numbers x;
    ValueId below = source;
    if (is_conversion(r_.from, source)) {
      below = r_.from[source].operands[0];
      while (r_.from[below].op == Op::reshape_) below = r_.from[below].operands[0];
    }
    x.value = r_[below];
    const Scalar s = r_.from[below].type.element.scalar;
    x.as_f32.inputs = {s};
    x.as_f32.outputs = {s == Scalar::f32 ? x.as_f32.input(0)
                                         : x.as_f32.convert(ScalarOp::cast_, Scalar::f32, x.as_f32.input(0))};
    return x;
  }

  ValueId reshaped(ValueId v, const Shape& shape) { return b_.type(v).shape == shape ? v : b_.reshape(v, shape); }

  // The map shared by casts of the same numbers, unless the other cast is so far away that its codes would be kept
  // long.
  ValueId shared(ValueId v, const ByteCast& cast, const Numbers& x) {
    Shared& s = shared_[{x.value, r_.from[v].type.element.format.get()}];
    if (s.map < 0 || v - s.first > kFar || s.has[cast.transposed]) s = {v, b_.map(x.as_f32, {x.value})};
    s.has[cast.transposed] = true;
    return s.map;
  }

  ValueId fitted(const Numbers& x, const ByteCast& cast, const Format& f, Level level, const RecordFit& fit, int field,
                 const Formula& value) {
    const bool is_of_all = level == Level::tensor;
    const auto key = std::tuple(x.value, &f, level, field, !is_of_all && cast.transposed, is_of_all ? 0 : cast.columns);
    const auto [place, is_new] = fitted_.try_emplace(key, -1);
    ValueId& known = place->second;
    if (!is_new) return known;
    std::vector<ValueId> extremes;
    for (const Extreme& e : fit.extremes) extremes.push_back(extreme(x, cast, f, level, e));
    known = b_.map(value, extremes);
    // For the transposed matrix: the row of one tile grid is the column of the other.
    if (level == Level::tile && cast.transposed) {
      const Shape tiles = {Dim(cast.columns / f.tile_columns), Dim(cast.rows / f.tile_rows)};
      known = b_.permute(b_.reshape(known, tiles), {1, 0});
    }
    return known;
  }

  ValueId extreme(const Numbers& x, const ByteCast& cast, const Format& f, Level level, const Extreme& e) {
    const int64_t rows = cast.transposed ? cast.columns : cast.rows,
                  columns = cast.transposed ? cast.rows : cast.columns;
    const Reduction way = e.op == ScalarOp::max_ ? Reduction::max : Reduction::min;
    const Formula of = compose(e.of, 0, x.as_f32, 0);
    if (level == Level::tile) {
      const int64_t high = cast.transposed ? f.tile_columns : f.tile_rows,
                    wide = cast.transposed ? f.tile_rows : f.tile_columns;
      const ValueId tiles = b_.reshape(x.value, {Dim(rows / high), Dim(high), Dim(columns / wide), Dim(wide)});
      return b_.reduce(b_.map(of, {tiles}), way, {1, 3});
    }
    // Keep the value's own axes if the last ones form the columns, so that the reduction fuses with its producer. If
    // the columns span several axes of a computed value, a row kernel would iterate badly: it is read again as a
    // matrix.
    const Shape& shape = b_.type(x.value).shape;
    std::vector<int> first, last, all;
    size_t d = shape.size();
    int64_t behind = 1;
    while (d > 0 && behind < columns) behind *= shape[--d].number();
    ValueId value = x.value;
    if (behind != columns || (d + 1 != shape.size() && !is_view(r_.to[value].op))) {
      value = b_.reshape(value, {Dim(rows), Dim(columns)});
      d = 1;
    }
    const int rank = b_.type(value).shape.size();
    for (int k = 0; k < rank; ++k) {
      (std::cmp_less(k, d) ? first : last).push_back(k);
      all.push_back(k);
    }
    ValueId most = b_.map(of, {value});
    if (level == Level::row) return b_.reduce(most, way, cast.transposed ? first : last);
    if (columns >= kShortRow && columns <= kLongRow && !first.empty()) most = b_.reduce(most, way, last);
    return b_.reduce(most, way, all);
  }

  Rewriter r_;
  Builder& b_;
  bool of_squares_;
  std::map<std::pair<ValueId, const Format*>, Shared> shared_;
  std::map<std::tuple<ValueId, const Format*, Level, int, bool, int64_t>, ValueId> fitted_;
};

// Removes conversions without readers.
Graph without_unread(const Graph& g) {
  const std::vector<bool> live = live_values(g);
  Rewriter r(g);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    if (live[v]) r.keep(v);
  return r.finish();
}

void separate(Graph& g, bool of_squares) {
  const auto has_cast = [&] {
    for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
      if (byte_cast(g, v)) return true;
    return false;
  };
  if (has_cast()) g = without_unread(Separator(g, of_squares).run());
}

}  // namespace

void separate_fits(Graph& g) {
  separate(g, false);
}

void separate_fits_of_squares(Graph& g) {
  separate(g, true);
}

}  // namespace lumen::graph
