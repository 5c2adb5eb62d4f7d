// The gradient of casts. Between scalars: the gradient is converted. Out of a format: it belongs to the decoded value.
// Into a format whose fields are fitted: straight-through estimator. With fields as operands (learned): x and the
// fields get the straight-through derivative of decode(code(x)), as number/gradient/gradient.h defines it; x then gets
// no gradient where it was clipped. Proved by tests/graph/grad/grad_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/rules.h"
#include "number/gradient/gradient.h"

namespace lumen::graph {

namespace {

// Entry index of a field as a function of the element's place i in its block: index(i) = i / run for all i.
// Formats nest groups in blocks that way; 0 for other expressions.
int64_t run_length(const RoutineExpr& index, int64_t block) {
  const auto value = [&](const auto& self, const RoutineExpr& e, int64_t i) -> std::optional<int64_t> {
    if (e.kind == RoutineExpr::Kind::constant) return e.integer;
    if (e.kind == RoutineExpr::Kind::variable) return e.slot == 0 ? std::optional(i) : std::nullopt;
    if (e.kind != RoutineExpr::Kind::op || e.args.empty() || e.args.size() > 2) return std::nullopt;
    const auto a = self(self, e.args[0], i), b = self(self, e.args.back(), i);
    if (!a || !b) return std::nullopt;
    ScalarNode n{e.op, e.type};
    n.args[0] = 0;
    n.args[1] = e.args.size() == 2 ? 1 : -1;
    return eval_scalar_op(n, e.args[0].type, {0, *a}, {0, *b}, {}).integer;
  };
  int64_t run = block;
  for (int64_t i = 1; i < block; ++i) {
    if (value(value, index, i).value_or(0) == 1) {
      run = i;
      break;
    }
  }
  for (int64_t i = 0; i < block; ++i) {
    if (value(value, index, i) != i / run) return 0;
  }
  return run;
}

class LearnedCast {
 public:
  LearnedCast(Reverse& r, ValueId v) : r_(r), node_(r.build.graph[v]), format_(*node_.type.element.format) {
    const auto fake = fake_quantize_formula(format_);
    if (!fake)
      throw user_error("no gradient: the fields of format {} cannot be learned, its code is no single formula",
                       format_.name);
    fake_ = *fake;
    shape_ = r.build.type(node_.operands[0]).shape;
    const auto blocks = divide(shape_.back(), Dim(format_.block));
    LUMEN_CHECK(blocks.has_value(), "rows of {} do not divide into blocks", print(node_.type));
    blocked_ = shape_;
    blocked_.back() = *blocks;
    blocked_.push_back(Dim(format_.block));
  }

  // Elementwise tensors have the shape [.., blocks, place in the block].
  void run(ValueId dr) {
    std::vector<ValueId> operands{r_.build.reshape(node_.operands[0], blocked_)};
    for (const ElementField& use : fake_.fields) operands.push_back(field_operand(use));
    if (fake_.uses_index) operands.push_back(r_.build.iota({{Dim(format_.block)}, {Scalar::i32, nullptr}}, 0));
    operands.push_back(r_.build.reshape(dr, blocked_));
    if (r_.active(node_.operands[0])) {
      r_.add(node_.operands[0], r_.build.reshape(slope(0, operands), shape_));
    }
    for (size_t k = 0; k < fake_.fields.size(); ++k) {
      const ValueId field = value_of(fake_.fields[k].field);
      if (!r_.active(field)) continue;
      const ValueId spread = slope(k + 1, operands);
      if (is_of_tiles(fake_.fields[k])) {
        r_.add(field, r_.build.reshape(sum_of_tiles(spread), r_.build.type(field).shape));
        continue;
      }
      const Shape split = split_shape(fake_.fields[k]);
      const ValueId sum = r_.reduce_to(r_.build.reshape(spread, split), record_shape(fake_.fields[k]));
      r_.add(field, r_.build.reshape(sum, r_.build.type(field).shape));
    }
  }

 private:
  // dr * d formula / d input `slot`, at the blocked shape.
  ValueId slope(int slot, const std::vector<ValueId>& operands) {
    Formula d = simplify_formula(straight_through_derivative(fake_.formula, 0, slot));
    const int output = d.outputs[0];
    d.inputs.push_back(Scalar::f32);
    const int seed = d.input(d.inputs.size() - 1);
    d.outputs[0] = d.op(ScalarOp::mul_, seed, output);
    const ValueId m = r_.lean_map(std::move(d), operands);
    return r_.build.type(m).shape == blocked_ ? m : r_.build.broadcast(m, blocked_);
  }

  ValueId value_of(int field) const {
    for (size_t i = 0; i < node_.attributes.sources.size(); ++i) {
      if (node_.attributes.sources[i].first == field) return node_.operands[i + 1];
    }
    throw user_error("no gradient: field {} of format {} is fitted while others are handed in",
                     format_.fields[field].name, format_.name);
  }

  int64_t run_of(const ElementField& use) const {
    const int64_t run = run_length(use.index, format_.block);
    if (run == 0 || format_.block % run != 0) {
      throw user_error("no gradient: field {} of format {} is indexed in a way that cannot be learned",
                       format_.fields[use.field].name, format_.name);
    }
    return run;
  }

  // [.., blocks, runs, elements of a run]: elements grouped by the field's entries.
  Shape split_shape(const ElementField& use) const {
    const int64_t run = run_of(use);
    Shape s(blocked_.begin(), blocked_.end() - 1);
    s.push_back(Dim(format_.block / run));
    s.push_back(Dim(run));
    return s;
  }

  // The field's values in the axes of split_shape, extent 1 where one value applies to all.
  Shape record_shape(const ElementField& use) const {
    Shape s = split_shape(use);
    s.back() = Dim(1);
    switch (format_.fields[use.field].level) {
      case Level::block:
        break;
      case Level::row:
        s[s.size() - 3] = Dim(1);
        break;
      case Level::tensor:
        std::fill(s.begin(), s.end() - 2, Dim(1));
        break;
      case Level::tile:
        LUMEN_UNREACHABLE("tiles are no runs of a row");
    }
    return s;
  }

  bool is_of_tiles(const ElementField& use) const {
    if (format_.fields[use.field].level != Level::tile) return false;
    if (format_.fields[use.field].count > 1)
      throw user_error("no gradient: field {} of format {} has several numbers for a tile",
                       format_.fields[use.field].name, format_.name);
    return true;
  }

  // A matrix as tiles, padded where the last ones extend beyond it: [tiles, rows of one, tiles, columns of one].
  struct Tiles {
    int64_t rows = 1, columns = 1;
    Shape whole, split, records;
  };
  Tiles tiles() const {
    Tiles t;
    for (const Dim& d : shape_) t.rows *= d.number();
    t.columns = shape_.back().number();
    t.rows /= t.columns;
    const int64_t high = format_.tile_rows, wide = format_.tile_columns;
    const int64_t down = (t.rows + high - 1) / high, across = (t.columns + wide - 1) / wide;
    t.whole = {down * high, across * wide};
    t.split = {down, high, across, wide};
    t.records = {down, 1, across, 1};
    return t;
  }
  ValueId sum_of_tiles(ValueId spread) {
    const Tiles t = tiles();
    ValueId y = r_.build.reshape(spread, {t.rows, t.columns});
    if (r_.build.type(y).shape != t.whole) y = r_.build.pad(y, t.whole, {0, 0});
    return r_.reduce_to(r_.build.reshape(y, t.split), t.records);
  }
  ValueId spread_over_tiles(ValueId field) {
    const Tiles t = tiles();
    ValueId y = r_.build.broadcast(r_.build.reshape(field, t.records), t.split);
    y = r_.build.reshape(y, t.whole);
    if (t.whole != Shape{t.rows, t.columns}) y = r_.build.slice(y, {0, 0}, {t.rows, t.columns});
    return r_.build.reshape(y, blocked_);
  }

  ValueId field_operand(const ElementField& use) {
    const Scalar type = fake_.formula.inputs[1 + (&use - fake_.fields.data())];
    if (is_of_tiles(use)) return spread_over_tiles(r_.build.convert(value_of(use.field), type));
    ValueId field = r_.build.reshape(value_of(use.field), record_shape(use));
    field = r_.build.convert(field, type);
    return r_.build.reshape(r_.build.broadcast(field, split_shape(use)), blocked_);
  }

  Reverse& r_;
  const Node node_;
  const Format& format_;
  FakeQuantize fake_;
  Shape shape_, blocked_;
};

}  // namespace

void cast_gradient(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  const ValueId a = node.operands[0];
  if (!node.attributes.sources.empty()) {
    LearnedCast(r, v).run(dr);
    return;
  }
  const Element& from = r.build.type(a).element;
  if (from.format || node.type.element.format) {
    r.add(a, dr);
  } else if (is_float(from.scalar) && is_float(node.type.element.scalar)) {
    r.add(a, r.build.convert(dr, from.scalar));
  }
}

}  // namespace lumen::graph
