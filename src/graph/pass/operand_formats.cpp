#include "graph/pass/operand_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "graph/ir/eval.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/pass/at_random.h"
#include "graph/pass/learned/learned.h"
#include "number/facts/facts.h"
#include "number/facts/record_fit.h"

namespace lumen::graph {
namespace {

constexpr uint32_t kSigns = 0x51695;  // salt of the signs of rotations

// "layers.3.wq": step.products.3; in a graph of one layer, "layer.wq": step.products.layer.
std::string seed_for(const std::string& weight) {
  constexpr std::string_view kAny = "layers.", kOne = "layer.";
  if (weight.starts_with(kOne)) return std::string(kProductSeed) + ".layer";
  if (!weight.starts_with(kAny)) return kProductSeed;
  const size_t end = weight.find_first_not_of("0123456789", kAny.size());
  if (end == std::string::npos || end == kAny.size() || weight[end] != '.') return kProductSeed;
  return fmt::format("{}.{}", kProductSeed, weight.substr(kAny.size(), end - kAny.size()));
}

// Whether the field holds every f32.
bool is_f32(const Field& field) {
  return field.type.is_float && field.type.bits == 32 && field.type.mantissa_bits == 23;
}

}  // namespace

bool is_same_transposed(const Format& f) {
  return f.block == 1 && f.row_bytes == 0 && !f.fit[ordinal(Level::row)] &&
         (f.tile_bytes == 0 || f.tile_rows == f.tile_columns);
}

ValueId OperandEncoder::encoded(ValueId v, ValueId value, const std::string& letters, const std::string& kept,
                                const FormatRef& f, bool at_random, ValueId scale, int64_t rotation,
                                const std::string& weight, const LearnedFields& learned) {
  // A value that windows read several times is encoded once if one scale covers all of it.
  const bool is_of_tensor = is_same_transposed(*f) && f->tile_bytes == 0;
  if (r_.from[v].op == Op::windows_ && r_.to[value].op == Op::windows_ && is_of_tensor && rotation == 0 && !learned) {
    const Node windows = r_.to[value];
    std::string axes = "abcdefghijklmnopqrstuvwxyzABCDEF";
    axes.resize(std::min(axes.size(), r_.to[windows.operands[0]].type.shape.size()));
    const ValueId below = encoded(r_.from[v].operands[0], windows.operands[0], axes, axes.substr(0, axes.size() - 1), f,
                                  at_random, scale, rotation, weight);
    return r_.build.view(windows, below);
  }
  // Products read bytes along the summed axis: codes of data under a tensor scale are written in both orders at once. A
  // weight has one order, because its two uses are far apart; so have tiled formats, whose scales are then found once,
  // and randomly rounded or learned operands, which must be one set of codes.
  const bool is_one = f->tile_bytes > 0 || at_random || learned || is_parameter(r_.from, below_order(r_.from, v));
  const bool is_whole = letters.size() == 2 && rotation == 0 && is_same_transposed(*f) && is_one;
  std::vector<int> order;
  std::string summed_axes;
  const auto is_kept = [&](size_t d) { return kept.find(letters[d]) != std::string::npos; };
  for (const bool summed : {false, true})
    for (size_t d = 0; d < letters.size(); ++d)
      if (is_kept(d) != summed) order.push_back(d);
  if (is_whole) order = {0, 1};
  std::string key;
  for (const int d : order) key += fmt::format("{}{} ", d, is_kept(d) ? "" : "+");
  if (is_whole) key = "whole";
  const auto place = std::tuple(v, key, f.get(), at_random, rotation);
  if (const auto known = known_.find(place); known != known_.end()) return known->second;

  const Shape shape = r_.from[v].type.shape;
  Shape ordered, rows;
  int64_t summed = 1;
  for (const int d : order) {
    ordered.push_back(shape[d]);
    if (is_kept(d) || is_whole)
      rows.push_back(shape[d]);
    else
      summed *= shape[d].number();
  }
  if (!is_whole) rows.push_back(Dim(summed));
  Builder& b = r_.build;
  const bool moves = !std::is_sorted(order.begin(), order.end());
  ValueId y = b.type(value).element == Element{} ? value : b.convert(value, Scalar::f32);
  if (moves) y = b.permute(y, order);
  if (rows != ordered) y = b.reshape(y, rows);
  if (rotation > 0) y = rotated(y, rotation);
  const int64_t length = rows.back().number(), left = length % f->block;
  Shape padded = rows;
  if (left != 0) padded.back() = Dim(length + f->block - left);
  if (left != 0) y = b.pad(y, padded, std::vector<int64_t>(rows.size(), 0));
  if (at_random) y = rounded_at_random(y, f, scale, weight);
  std::vector<std::pair<int, FieldSource>> sources;
  std::vector<ValueId> fields;
  if (scale >= 0) {
    sources.emplace_back(tensor_scale(*f), FieldSource::supplied);
    fields.push_back(scale);
  }
  for (int k = 0; learned && k < std::ssize(f->fields); ++k) {
    if (k == f->code_field) continue;
    sources.emplace_back(k, FieldSource::learned);
    fields.push_back(learned(k, padded));
  }
  y = b.cast(b.cast(y, {Scalar::f32, f}, sources, fields), Element{});
  if (left != 0) y = b.slice(y, std::vector<int64_t>(rows.size(), 0), rows);
  if (rows != ordered) y = b.reshape(y, ordered);
  if (moves) {
    std::vector<int> back(order.size());
    for (size_t d = 0; d < order.size(); ++d) back[order[d]] = d;
    y = b.permute(y, back);
  }
  return known_[place] = y;
}

ValueId OperandEncoder::rotated(ValueId rows, int64_t run) {
  Builder& b = r_.build;
  const Shape shape = b.type(rows).shape;
  const int64_t length = shape.back().number();
  if (length % run != 0)
    throw user_error("a product sums {} numbers, which runs of {} that are rotated do not divide", length, run);
  std::vector<double> matrix(run * run);
  const double size = 1 / std::sqrt(double(run));
  for (int64_t i = 0; i < run; ++i)
    for (int64_t j = 0; j < run; ++j) {
      const bool is_negative = std::popcount(uint64_t(i & j)) % 2 == 1;
      matrix[i * run + j] = is_negative != (uniform_random(kSigns, 0, j) < 0.5F) ? -size : size;
    }
  Shape runs = shape;
  runs.back() = Dim(length / run);
  runs.push_back(Dim(run));
  const ValueId hadamard = b.constant({{run, run}, Element{}}, std::move(matrix));
  const std::string letters = std::string("abcdefgh").substr(0, runs.size() - 1);
  const ValueId turned = b.contract(b.reshape(rows, runs), hadamard, letters + "y", "zy", letters + "z");
  return b.reshape(turned, shape);
}

ValueId OperandEncoder::scale_of_largest(ValueId largest, const FormatRef& f) {
  Builder& b = r_.build;
  const int field = tensor_scale(*f);
  ValueId scale = -1;
  if (const auto fit = record_fit(*f, Level::tensor); fit && fit->extremes.size() == 1 && is_f32(f->fields[field])) {
    // The largest of one number is its magnitude.
    const auto own = std::ranges::find(fit->fields, field, [](const auto& set) { return set.first; });
    LUMEN_CHECK(own != fit->fields.end(), "a fit sets the fields of its level");
    scale = b.map(compose(own->second, 0, fit->extremes[0].of, 0), {largest});
  } else {
    const FormatRef alone = field_format(f, {field, RoutineExpr{RoutineExpr::Kind::constant, Scalar::i32}});
    const ValueId row = b.broadcast(b.reshape(largest, {1, 1}), {1, f->block});
    scale = b.slice(b.cast(b.cast(row, {Scalar::f32, alone}), Element{}), {0, 0}, {1, 1});
    scale = b.reshape(scale, b.type(largest).shape);
  }
  Formula known;
  known.inputs = {Scalar::f32, Scalar::f32};
  const int is_none = known.op(ScalarOp::eq_, known.input(0), known.constant(Scalar::f32, 0));
  known.outputs = {known.op(ScalarOp::select_, is_none, known.constant(Scalar::f32, 1), known.input(1))};
  return b.map(known, {largest, scale});
}

FormatRef OperandEncoder::field_format(const FormatRef& f, const ElementField& field) {
  FormatRef made = as_field(*f, field);
  return fields_.try_emplace(made->hash.hex(), made).first->second;
}

ValueId OperandEncoder::rounded_at_random(ValueId value, const FormatRef& f, ValueId scale, const std::string& weight) {
  require_random(*f, "round to the nearest, or name a format whose codes are integers or small floats");
  Builder& b = r_.build;
  return round_at_random(b, value, f, drawn_(seed_for(weight), b.type(value).shape), scale);
}

ValueId find_largest(Builder& build, ValueId value) {
  constexpr int64_t kInner = 64, kLeast = 512, kMost = 65536;
  Formula f;
  f.inputs = {build.graph[value].type.element.scalar};
  const int as_f32 = f.inputs[0] == Scalar::f32 ? f.input(0) : f.convert(ScalarOp::cast_, Scalar::f32, f.input(0));
  f.outputs = {f.op(ScalarOp::abs_, as_f32)};
  ValueId most = build.map(f, {value});
  const Shape shape = build.graph[value].type.shape;
  std::vector<int> all, row;
  for (int d = 0; d < std::ssize(shape); ++d) all.push_back(d);
  int64_t length = 1;
  for (size_t d = shape.size(); d-- > 0 && shape[d].is_number() && length < kLeast;) {
    length *= shape[d].number();
    if (length < kInner) break;
    row.insert(row.begin(), d);
  }
  if (length >= kLeast && length <= kMost && row.size() < all.size()) most = build.reduce(most, Reduction::max, row);
  return build.reduce(most, Reduction::max, all);
}

ValueId largest_of_history(Builder& build, ValueId history) {
  Formula f;
  f.inputs = {Scalar::f32};
  f.outputs = {f.op(ScalarOp::abs_, f.input(0))};
  return build.reduce(build.map(f, {history}), Reduction::max, {0});
}

void follow_history(Builder& build, ValueId history, ValueId newest) {
  const int64_t length = build.type(history).shape[0].number();
  newest = build.reshape(newest, {1});
  if (length == 1) {
    build.update(history, newest);
    return;
  }
  const ValueId places = build.iota({{length}, {Scalar::i32, nullptr}}, 0);
  // `place`: the last written position of the ring, -1 if none; `before`: the previous newest value, which goes into
  // the next position.
  Formula marked, last, follow;
  marked.inputs = last.inputs = {Scalar::f32, Scalar::i32};
  const auto is_negative = [](Formula& f) {  // includes -0
    return f.op(ScalarOp::lt_, f.convert(ScalarOp::bitcast_, Scalar::i32, f.input(0)), f.integer(Scalar::i32, 0));
  };
  marked.outputs = {marked.op(ScalarOp::select_, is_negative(marked),
                              marked.convert(ScalarOp::cast_, Scalar::f32, marked.input(1)),
                              marked.constant(Scalar::f32, -1))};
  const auto is_last = [&](Formula& f, int place) {
    return f.op(ScalarOp::eq_, place, f.integer(Scalar::i32, length - 1));
  };
  last.outputs = {last.op(ScalarOp::select_, is_last(last, last.input(1)), last.op(ScalarOp::abs_, last.input(0)),
                          last.constant(Scalar::f32, 0))};
  const ValueId place = build.reduce(build.map(marked, {history, places}), Reduction::max, {0});
  const ValueId before = build.reduce(build.map(last, {history, places}), Reduction::max, {0});

  follow.inputs = {Scalar::f32, Scalar::i32, Scalar::f32, Scalar::f32, Scalar::f32};
  const int next = follow.op(ScalarOp::add_, follow.convert(ScalarOp::cast_, Scalar::i32, follow.input(2)),
                             follow.integer(Scalar::i32, 1));
  const int in_ring = follow.op(ScalarOp::select_, is_last(follow, next), follow.integer(Scalar::i32, 0), next);
  const int is_next = follow.op(ScalarOp::eq_, follow.input(1), in_ring);
  const int moved = follow.op(ScalarOp::select_, is_next, follow.op(ScalarOp::neg_, follow.input(3)),
                              follow.op(ScalarOp::abs_, follow.input(0)));
  follow.outputs = {follow.op(ScalarOp::select_, is_last(follow, follow.input(1)), follow.input(4), moved)};
  build.update(history, build.map(follow, {history, places, place, before, newest}));
}

ProductType learned_alone(const ProductType& type, bool attention) {
  ProductType out;
  const OperandFormats& forward = type.formats[ordinal(ProductKind::forward)];
  OperandFormats& own = out.formats[ordinal(ProductKind::forward)];
  if (type.sources.activation == FieldSource::learned) own.activation = forward.activation;
  if (type.sources.weight == FieldSource::learned) own.weight = forward.weight;
  if (attention) out.attention = type.attention;
  out.random = type.random;
  out.rotations = type.rotations;
  out.sources = type.sources;
  return out;
}

bool is_held(const Graph& g, ValueId v) {
  while (is_view(g[v].op)) v = g[v].operands[0];
  const Node& node = g[v];
  return node.op == Op::cast_ && !node.label.empty() && node.label == g[node.operands[0]].attributes.name;
}

bool is_parameter(const Graph& g, ValueId v) {
  const Node& node = g[v];
  if (node.op == Op::cast_ && (is_held(g, v) || !g[node.operands[0]].type.element.format))
    return is_parameter(g, node.operands[0]);
  if (is_conversion(node)) return is_parameter(g, node.operands[0]);
  return node.op == Op::input_ && node.attributes.role == Role::parameter;
}

void refuse_learned_rounding(const Format& f, bool is_random) {
  throw Error(Exit::user,
              fmt::format("an operand in '{}' is {}: the gradient of a learned scale is the operand's own error after "
                          "rounding to nearest",
                          f.name, is_random ? "rounded at random" : "rotated"),
              is_random ? "round it to the nearest, or let its scale be fitted"
                        : "leave out rotations, or let scales be fitted");
}

void require_learned_rows(const Graph& g, ValueId v, const Format& f, const std::string& letters,
                          const std::string& kept, const std::string& weight) {
  bool in_order = true, summed = false;
  for (const char letter : letters) {
    const bool is_kept = kept.find(letter) != std::string::npos;
    in_order = in_order && !(summed && is_kept);
    summed = summed || !is_kept;
  }
  if (!is_parameter(g, below_order(g, v)))
    throw Error(
        Exit::user,
        fmt::format(
            "products read '{}' only after it was changed, and the result is no parameter: its scale cannot be learned",
            weight),
        "let scales of weights be fitted");
  while (g[v].op == Op::reshape_) v = g[v].operands[0];
  if (tensor_scale(f) < 0 && !is_same_transposed(f) && (!in_order || !is_parameter(g, v)))
    throw Error(Exit::user,
                fmt::format("rows of '{}' in '{}' are its columns in this product: their scales cannot be learned",
                            weight, f.name),
                "name a format with one scale for the tensor, or let scales of weights be fitted");
}

bool is_carried_in(const Node& node) {
  return node.op == Op::input_ && node.attributes.name.starts_with(kCarriedIn);
}
bool is_arriving(const Node& node) {
  return node.op == Op::input_ && node.attributes.name.starts_with(kArriving);
}

std::vector<bool> values_of_arriving(const Graph& g) {
  if (std::none_of(g.nodes.begin(), g.nodes.end(), is_arriving)) return {};
  std::vector<bool> out(g.nodes.size());
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    out[v] =
        is_arriving(g[v]) || std::any_of(g[v].operands.begin(), g[v].operands.end(), [&](ValueId o) { return out[o]; });
  return out;
}

std::vector<bool> values_of_forward_pass(const Graph& g) {
  if (std::vector<bool> behind = values_of_arriving(g); !behind.empty()) {
    behind.flip();
    return behind;
  }
  std::vector<bool> needed(g.nodes.size(), false);
  if (!g.results.empty()) needed[g.results[0]] = true;
  for (ValueId v = std::ssize(g.nodes); v-- > 0;) {
    if (!needed[v]) continue;
    for (const ValueId o : g[v].operands) needed[o] = true;
  }
  // Results of a forward scan that only the backward pass reads belong to the forward pass, and so does the scan.
  std::vector<bool> given(g.nodes.size(), false);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (needed[v] || g[v].operands.empty()) continue;
    const ValueId below = g[v].operands[0];
    given[v] = g[v].op == Op::result_ ? needed[below] : is_view(g[v].op) && given[below];
    needed[v] = given[v];
  }
  return needed;
}

}  // namespace lumen::graph
