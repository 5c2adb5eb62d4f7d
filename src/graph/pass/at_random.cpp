#include "graph/pass/at_random.h"

#include "base/error.h"

namespace lumen::graph {
namespace {

// The inputs of a rounding formula: the fields' values for each element, as stored.
struct Fitted {
  FakeQuantize rounding;
  std::vector<ValueId> fields;  // by rounding.fields, f32
};

Fitted fitted(Builder& b, ValueId value, const FormatRef& f, ValueId scale) {
  require_random(*f, "round to the nearest, or name a format whose codes are integers or small floats");
  Fitted out{*stochastic_formula(*f), {}};
  const Shape shape = b.type(value).shape;
  for (const ElementField& field : out.rounding.fields)
    out.fields.push_back(scale >= 0 ? b.broadcast(b.reshape(scale, Shape(shape.size(), Dim(1))), shape)
                                    : b.cast(b.cast(value, {Scalar::f32, as_field(*f, field)}), Element{}));
  return out;
}

ValueId rounded(Builder& b, ValueId value, const FormatRef& f, ValueId random, const Fitted& by) {
  const Shape shape = b.type(value).shape;
  std::vector<ValueId> inputs = {value};
  for (size_t k = 0; k < by.fields.size(); ++k) {
    const Scalar type = f->fields[by.rounding.fields[k].field].type.register_type();
    inputs.push_back(type == Scalar::f32 ? by.fields[k] : b.convert(by.fields[k], type));
  }
  if (by.rounding.uses_index) {
    Formula place;
    place.inputs = {Scalar::i32};
    place.outputs = {place.op(ScalarOp::rem_, place.input(0), place.integer(Scalar::i32, f->block))};
    inputs.push_back(b.map(place, {b.iota({shape, {Scalar::i32, nullptr}}, shape.size() - 1)}));
  }
  inputs.push_back(random);
  return b.map(by.rounding.formula, inputs);
}

// Expands to one number per record from the values its elements read.
ValueId of_records(Builder& b, ValueId elements, const Format& f, Level level) {
  Shape shape = b.type(elements).shape;
  if (level == Level::tile && shape.size() > 2) {
    const Dim columns = shape.back();
    Shape rows(shape.begin(), shape.end() - 1);
    elements = b.reshape(elements, {graph::elements(rows), columns});
    shape = b.type(elements).shape;
  }
  const size_t rank = shape.size();
  std::vector<int64_t> strides(rank, 1);
  const auto apart = [&](size_t axis, int64_t stride) {
    strides[axis] = stride;
    shape[axis] = Dim((shape[axis].number() + stride - 1) / stride);
  };
  if (level == Level::block) apart(rank - 1, f.block);
  if (level == Level::row) apart(rank - 1, shape.back().number());
  if (level == Level::tensor)
    for (size_t d = 0; d < rank; ++d) apart(d, shape[d].number());
  if (level == Level::tile) {
    apart(rank - 1, f.tile_columns);
    if (rank > 1) apart(rank - 2, f.tile_rows);
  }
  const ValueId records = b.slice(elements, std::vector<int64_t>(rank, 0), shape, strides);
  if (level == Level::row) shape.pop_back();
  if (level == Level::tensor) shape.clear();
  return shape == b.type(records).shape ? records : b.reshape(records, shape);
}

}  // namespace

void require_random(const Format& f, const std::string& hint) {
  if (stochastic_formula(f)) return;
  throw Error(Exit::user,
              fmt::format("format '{}' looks its codes up in a table: it is not rounded to at random", f.name), hint);
}

ValueId round_at_random(Builder& b, ValueId value, const FormatRef& f, ValueId random, ValueId scale) {
  return rounded(b, value, f, random, fitted(b, value, f, scale));
}

ValueId encode_at_random(Builder& b, ValueId value, const FormatRef& f, ValueId random) {
  const Fitted by = fitted(b, value, f, -1);
  const ValueId numbers = rounded(b, value, f, random, by);
  std::vector<std::pair<int, FieldSource>> sources;
  std::vector<ValueId> fields;
  for (int k = 0; k < std::ssize(f->fields); ++k) {
    if (k == f->code_field) continue;
    size_t use = 0;
    while (use < by.fields.size() && by.rounding.fields[use].field != k) ++use;
    if (use == by.fields.size() || f->fields[k].count != 1) return b.cast(numbers, {Scalar::f32, f});
    sources.emplace_back(k, FieldSource::supplied);
    fields.push_back(of_records(b, by.fields[use], *f, f->fields[k].level));
  }
  return b.cast(numbers, {Scalar::f32, f}, sources, fields);
}

}  // namespace lumen::graph
