// Built-in functions of the language: operators that change shapes, reductions over axes, state, conversions. One row
// each; functions that can be written in the language are in models/functions.lum instead.
#include <algorithm>
#include <array>
#include <limits>

#include "base/messages/spelling.h"
#include "graph/elaborate/elaboration.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;

std::vector<std::string> elementwise_builtin_names();

namespace {

struct Row {
  std::string_view name;
  int least, most;            // arguments; most -1: any number
  std::string_view keywords;  // names of keyword arguments, space separated, in the order of the arguments
  std::string_view usage;
};

constexpr std::array<Row, 20> kRows = {{
    {"reshape", 2, 2, "x shape", "reshape(x, [a, b]); one extent may be -1"},
    {"permute", 2, 2, "x axes", "permute(x, [1, 0, 2])"},
    {"broadcast", 2, 2, "x shape", "broadcast(x, [a, b])"},
    {"concat", 1, -1, "axis", "concat(a, b, axis = -1)"},
    {"pad", 3, 4, "x shape starts strides", "pad(x, [result extents], [starts]), and [strides] where zeros go between"},
    {"iota", 2, 2, "shape axis", "iota([T], 0)"},
    {"random", 3, 3, "shape seed salt", "random([a, b], seed, 1)"},
    {"update", 2, -1, "state value", "update(state, value, start, ...) with no start, or one for each axis"},
    {"shape", 2, 2, "x axis", "shape(x, 0)"},
    {"sum", 1, -1, "x axis", "sum(x, -1)"},
    {"mean", 1, -1, "x axis", "mean(x, -1)"},
    {"max", 1, -1, "x axis", "max(x, -1) over an axis, max(a, b) of two"},
    {"min", 1, -1, "x axis", "min(x, -1) over an axis, min(a, b) of two"},
    {"argmax", 2, 2, "x axis", "argmax(x, -1)"},
    {"argmin", 2, 2, "x axis", "argmin(x, -1)"},
    {"any", 1, -1, "x axis", "any(x, -1)"},
    {"all", 1, -1, "x axis", "all(x, -1)"},
    {"each", 3, 3, "", "each(i, n, formula): the n values of the formula, a constant"},
    {"scan", 3, -1, "", "scan(step, [carries], [sequences], constants .., axis = 0, reverse = 0)"},
    {"gather", 2, 2, "table rows", "gather(table, rows), the same as table[rows]"},
}};

const Row* row_of(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return &r;
  return nullptr;
}

// Position of a keyword in a row's list, or -1.
int keyword_position(const Row& row, const std::string& keyword) {
  int at = 0;
  std::string_view words = row.keywords;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == keyword) return at;
    words.remove_prefix(std::min(end + 1, words.size()));
    ++at;
  }
  return -1;
}

// Arguments in the order of the keywords; concat's axis stays separate.
std::vector<const Expr*> ordered(const Row& row, const Expr& e) {
  std::vector<const Expr*> out;
  for (size_t i = 0; i < e.args.size(); ++i) {
    if (e.names[i].empty()) {
      out.push_back(e.args[i].get());
      continue;
    }
    const int at = keyword_position(row, e.names[i]);
    if (at < 0)
      throw error_at(e.args[i]->place, fmt::format("'{}' has no parameter '{}'", e.text, e.names[i]),
                     fmt::format("usage: {}", row.usage));
    if (e.text == "concat") continue;
    if (at < std::ssize(out) && out[at])
      throw error_at(e.args[i]->place, fmt::format("'{}' is given twice", e.names[i]));
    if (std::ssize(out) <= at) out.resize(static_cast<size_t>(at) + 1, nullptr);
    out[at] = e.args[i].get();
  }
  const bool hole = std::find(out.begin(), out.end(), nullptr) != out.end();
  const int count = out.size();
  if (hole || count < row.least || (row.most >= 0 && count > row.most))
    throw error_at(e.place, fmt::format("wrong number of arguments for '{}'", e.text),
                   fmt::format("usage: {}", row.usage));
  return out;
}

bool is_axis_reduction(std::string_view n) {
  return n == "sum" || n == "mean" || n == "max" || n == "min" || n == "argmax" || n == "argmin" || n == "any" ||
         n == "all";
}

}  // namespace

bool is_builtin(const std::string& name) {
  return row_of(name) || is_elementwise_builtin(name) || scalar_from_name(name);
}

std::vector<std::string> builtin_names() {
  std::vector<std::string> out = elementwise_builtin_names();
  for (const Row& r : kRows) out.emplace_back(r.name);
  return out;
}

int Elaboration::axis_of(int64_t axis, size_t rank, const Place& place) const {
  const int64_t r = rank;
  if (axis < -r || axis >= r)
    throw error_at(place,
                   fmt::format("axis {} does not exist: the tensor has {} {}", axis, rank, rank == 1 ? "axis" : "axes"),
                   "axes count from 0, or from the end with -1");
  return axis < 0 ? axis + r : axis;
}

Value Elaboration::builtin(const Expr& e) {
  if (const auto scalar = scalar_from_name(e.text)) {
    if (e.args.size() != 1 || !e.names[0].empty())
      throw error_at(e.place, fmt::format("a conversion takes one value: {}(x)", e.text));
    return convert(expression(*e.args[0]), *scalar, e.place);
  }
  if (is_axis_reduction(e.text)) return axis_reduction(e);
  if (is_elementwise_builtin(e.text)) {
    std::vector<Value> args;
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (!e.names[i].empty())
        throw error_at(e.args[i]->place, fmt::format("'{}' takes its arguments by position", e.text));
      args.push_back(expression(*e.args[i]));
    }
    return elementwise(e.text, std::move(args), e.place);
  }
  if (e.text == "scan") return scan(e);
  const Row& row = *row_of(e.text);
  const std::vector<const Expr*> args = ordered(row, e);
  if (e.text == "each") return each(e);
  const auto tensor = [&](size_t i) {
    Value v = expression(*args[i]);
    return Value::of_node(graph_, node_of(v, args[i]->place));
  };
  if (e.text == "concat") return concat(e);
  if (e.text == "update") return update(e);
  if (e.text == "reshape") return reshaped(e, tensor(0), *args[1]);
  if (e.text == "permute") return permuted(e, tensor(0), *args[1]);
  if (e.text == "broadcast") return broadcasted(e, *args[0], *args[1]);
  if (e.text == "pad") {
    const Value x = tensor(0);
    Shape shape;
    try {
      shape = shape_list(*args[1], "the padded shape");
    } catch (const NeedsConstant& wrong) {  // the padded extent is not a symbol where the function is called
      const auto grows = [&](const lang::ExprPtr& a) { return a->kind == ExprKind::binary && is_of_extents(*a); };
      if (std::any_of(args[1]->args.begin(), args[1]->args.end(), grows)) throw NeedsExtent(Exit::user, wrong.what());
      throw;
    }
    Node n = make(Op::pad_, {x.id}, {std::move(shape), {}});
    n.attributes.starts = integer_list(*args[2], "a start");
    n.attributes.strides.assign(n.attributes.starts.size(), 1);
    if (args.size() == 4) n.attributes.strides = integer_list(*args[3], "a stride");
    return Value::of_node(graph_, append(std::move(n), e.place));
  }
  if (e.text == "iota") {
    Node n = make(Op::iota_, {}, {shape_list(*args[0], "the shape"), {Scalar::i32, nullptr}});
    n.attributes.axis = axis_of(integer(*args[1], "the axis"), n.type.shape.size(), args[1]->place);
    return Value::of_node(graph_, append(std::move(n), e.place));
  }
  if (e.text == "random") return random_numbers(e, args);
  if (e.text == "shape") {
    const Value x = plain(expression(*args[0]), args[0]->place);
    if (!x.is_tensor()) throw error_at(args[0]->place, fmt::format("{} has no shape", describe(x)));
    return Value::of(x.shape[axis_of(integer(*args[1], "the axis"), x.shape.size(), args[1]->place)]);
  }
  // gather
  const Value x = tensor(0), rows = tensor(1);
  return Value::of_node(graph_, append(make(Op::gather_, {x.id, rows.id}), e.place));
}

// The new shape is a list of extents, one of which may be inferred: -1.
Value Elaboration::reshaped(const Expr& e, const Value& x, const Expr& list) {
  Shape shape;
  std::optional<size_t> open;
  if (list.kind != ExprKind::list) throw error_at(list.place, "the new shape is a list of extents", "e.g. [B, T, 64]");
  for (const lang::ExprPtr& item : list.args) {
    const Value v = expression(*item);
    if (v.kind == Value::Kind::extents) {
      shape.insert(shape.end(), v.shape.begin(), v.shape.end());
    } else if (v.is_integer() && v.number.integer == -1) {
      if (open) throw error_at(item->place, "only one extent may be -1");
      open = shape.size();
      shape.emplace_back(1);
    } else {
      shape.push_back(extent_of(v, item->place, "an extent"));
    }
  }
  const Dim have = elements(x.shape);
  if (open) {
    const auto rest = divide(have, elements(shape));
    if (!rest)
      throw error_at(e.place, fmt::format("{} cannot be reshaped to {}: the elements do not divide", written(x.type()),
                                          written(shape)));
    shape[*open] = *rest;
  }
  if (have != elements(shape))
    throw error_at(e.place, fmt::format("{} cannot be reshaped to {}", written(x.type()), written(shape)),
                   fmt::format("they have {} and {} elements", written(have), written(elements(shape))));
  return reshape(x, std::move(shape), e.place);
}

Value Elaboration::permuted(const Expr& e, const Value& x, const Expr& axes) {
  Node n = make(Op::permute_, {x.id});
  for (int64_t a : integer_list(axes, "an axis")) n.attributes.axes.push_back(axis_of(a, x.shape.size(), axes.place));
  std::vector<int> sorted = n.attributes.axes;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size() || i < x.shape.size(); ++i)
    if (i >= sorted.size() || sorted[i] != static_cast<int>(i))
      throw error_at(axes.place, fmt::format("the axes must name each of the {} axes of {} once", x.shape.size(),
                                             written(x.type())));
  return Value::of_node(graph_, append(std::move(n), e.place));
}

Value Elaboration::broadcasted(const Expr& e, const Expr& value, const Expr& extents) {
  const Value v = expression(value);
  Shape shape = shape_list(extents, "the shape");
  if (v.is_number()) {  // a constant tensor
    const Scalar s = v.number.kind == Number::Kind::real    ? Scalar::f32
                     : v.number.kind == Number::Kind::truth ? Scalar::boolean
                                                            : Scalar::i32;
    Node n = make(Op::constant_, {}, {std::move(shape), {s, nullptr}});
    n.attributes.data = {is_float(s) ? round_to_scalar(s, v.number.value()) : v.number.value()};
    return Value::of_node(graph_, append(std::move(n), e.place));
  }
  const ValueId x = node_of(v, value.place);
  if (graph_[x].type.shape == shape) return Value::of_node(graph_, x);
  return Value::of_node(graph_, append(make(Op::broadcast_, {x}, {std::move(shape), {}}), e.place));
}

Value Elaboration::random_numbers(const Expr& e, const std::vector<const Expr*>& args) {
  const Value seed = expression(*args[1]);
  const Value whole = seed.is_tensor() ? convert(seed, Scalar::u32, args[1]->place) : seed;
  const int64_t salt = integer(*args[2], "the salt");
  if (salt < 0 || salt > UINT32_MAX)
    throw error_at(args[2]->place, fmt::format("the salt {} does not fit into 32 bits", salt));
  const ValueId id = node_of(whole, args[1]->place, Scalar::u32);
  Node n = make(Op::random_, {id}, {shape_list(*args[0], "the shape"), {}});
  n.attributes.salt = salt;
  return Value::of_node(graph_, append(std::move(n), e.place));
}

// sum(x) over all axes has rank 0; sum(x, -1) keeps the axis with extent 1. max(a, b) is elementwise unless the second
// argument is a negative integer or is named axis.
Value Elaboration::axis_reduction(const Expr& e) {
  const bool of_two = (e.text == "max" || e.text == "min") && e.args.size() == 2 && e.names[1].empty();
  Value x = expression(*e.args.at(0));
  if (of_two) {
    Value second = expression(*e.args[1]);
    const bool axis = x.is_tensor() && second.is_integer() && second.number.integer < 0;
    if (!axis) return elementwise(e.text, {std::move(x), std::move(second)}, e.place);
  }
  ordered(*row_of(e.text), e);
  x = plain(std::move(x), e.args[0]->place);
  if (!x.is_tensor())
    throw error_at(e.args[0]->place, fmt::format("'{}' reduces a tensor, found {}", e.text, describe(x)),
                   fmt::format("usage: {}", row_of(e.text)->usage));
  std::vector<int> axes;
  for (size_t i = 1; i < e.args.size(); ++i) {
    const int axis = axis_of(integer(*e.args[i], "the axis"), x.shape.size(), e.args[i]->place);
    if (std::find(axes.begin(), axes.end(), axis) != axes.end())
      throw error_at(e.args[i]->place, fmt::format("axis {} is reduced twice", axis));
    axes.push_back(axis);
  }
  std::sort(axes.begin(), axes.end());
  if (e.args.size() > 1) return reduction(e.text, std::move(x), std::move(axes), e.place);
  for (size_t d = 0; d < x.shape.size(); ++d) axes.push_back(d);
  if (axes.empty()) return x;
  return reshape(reduction(e.text, std::move(x), std::move(axes), e.place), {}, e.place);
}

Value Elaboration::reduction(const std::string& kind, Value v, std::vector<int> axes, const Place& place) {
  v = plain(std::move(v), place);
  const bool truth = v.element.scalar == Scalar::boolean;
  const auto reduce = [&](Reduction r, Value x, const std::vector<int>& over) {
    Node n = make(Op::reduce_, {node_of(x, place)});
    n.attributes.reduction = r;
    n.attributes.axes = over;
    return Value::of_node(graph_, append(std::move(n), place));
  };
  if (kind == "any" || kind == "all") {
    if (!truth)
      throw error_at(place, fmt::format("'{}' needs truth values, found {}", kind, written(v.type())),
                     "a comparison makes them: x != 0");
    const Value ones =
        select(std::move(v), Value::of(Number::of(int64_t{1})), Value::of(Number::of(int64_t{0})), place);
    return elementwise(
        "!=", {reduce(kind == "any" ? Reduction::max : Reduction::min, ones, axes), Value::of(Number::of(int64_t{0}))},
        place);
  }
  if (truth)
    throw error_at(place, fmt::format("'{}' needs numbers, found {}", kind, written(v.type())),
                   "choose numbers first: select(c, 1.0, 0.0)");
  if (kind == "sum") return reduce(Reduction::sum, std::move(v), axes);
  if (kind == "max") return reduce(Reduction::max, std::move(v), axes);
  if (kind == "min") return reduce(Reduction::min, std::move(v), axes);
  if (kind == "mean") {
    if (!is_float(v.element.scalar))
      throw error_at(place, fmt::format("'mean' needs floats, found {}", written(v.type())), "convert it: f32(...)");
    Dim n(1);
    for (int a : axes) n = n * v.shape[a];
    Value divisor = n.is_number() ? Value::of(Number::of(n.coefficient)) : Value::of(n);
    return elementwise("/", {reduce(Reduction::sum, std::move(v), axes), std::move(divisor)}, place);
  }
  // argmax, argmin: the smallest position of the extreme value.
  if (axes.size() != 1) throw error_at(place, fmt::format("'{}' goes over one axis", kind));
  const Value x = finished(std::move(v), place);
  const Value best = reduce(kind == "argmax" ? Reduction::max : Reduction::min, x, axes);
  Shape line(x.shape.size() - axes[0], Dim(1));
  line[0] = x.shape[axes[0]];
  Node n = make(Op::iota_, {}, {std::move(line), {Scalar::i32, nullptr}});
  const Value positions = Value::of_node(graph_, append(std::move(n), place));
  const Value none = Value::of(Number::of(int64_t{std::numeric_limits<int32_t>::max()}));
  return reduce(Reduction::min, select(elementwise("==", {x, best}, place), positions, none, place), axes);
}

// A tensor of constants, computed in double precision and rounded once.
Value Elaboration::each(const Expr& e) {
  if (e.args[0]->kind != ExprKind::name)
    throw error_at(e.args[0]->place, "'each' begins with the name of its index", "e.g. each(i, 4, 1.0 / (i + 1))");
  const int64_t count = integer(*e.args[1], "the number of values");
  if (count < 1) throw error_at(e.args[1]->place, fmt::format("there cannot be {} values", count));
  Node n = make(Op::constant_, {}, {{Dim(count)}, {Scalar::f32, nullptr}});
  frames_.emplace_back();
  for (int64_t i = 0; i < count; ++i) {
    session_.spend(e.place);
    bind(e.args[0]->text, Value::of(Number::of(i)));
    n.attributes.data.push_back(round_to_scalar(Scalar::f32, constant_number(*e.args[2], "a value").value()));
  }
  frames_.pop_back();
  return Value::of_node(graph_, append(std::move(n), e.place));
}

Value Elaboration::concat(const Expr& e) {
  const std::vector<const Expr*> parts = ordered(*row_of("concat"), e);
  int64_t axis = -1;
  for (size_t i = 0; i < e.args.size(); ++i)
    if (e.names[i] == "axis") axis = integer(*e.args[i], "the axis");
  std::vector<Value> values;
  for (const Expr* p : parts) values.push_back(plain(expression(*p), p->place));
  std::optional<Scalar> scalar;
  for (const Value& v : values)
    if (v.is_tensor()) scalar = v.element.scalar;
  Node n = make(Op::concat_, {});
  for (size_t i = 0; i < values.size(); ++i) n.operands.push_back(node_of(values[i], parts[i]->place, scalar));
  n.attributes.axis = axis_of(axis, graph_[n.operands[0]].type.shape.size(), e.place);
  return Value::of_node(graph_, append(std::move(n), e.place));
}

Value Elaboration::update(const Expr& e) {
  const std::vector<const Expr*> args = ordered(*row_of("update"), e);
  const Value state = use(expression(*args[0]), args[0]->place);
  const bool is_state = state.is_tensor() && state.id >= 0 &&
                        (graph_[state.id].op == Op::update_ ||
                         (graph_[state.id].op == Op::input_ && graph_[state.id].attributes.role != Role::data));
  if (!is_state)
    throw error_at(args[0]->place, fmt::format("only a state can be updated, found {}", describe(state)),
                   "states are parameters typed 'state f32[...]'");
  Value value = expression(*args[1]);
  const size_t rank = state.shape.size();
  Shape shape;
  ValueId id = -1;
  if (state.element.format) {
    id = node_of(value, args[1]->place, Scalar::f32);
    id = append(make(Op::cast_, {id}, {graph_[id].type.shape, state.element}), args[1]->place);
  } else {
    id = node_of(value, args[1]->place, state.element.scalar);
  }
  shape = graph_[id].type.shape;
  const bool many = shape.size() > rank;               // several parts, counted by the starts' axes
  if (shape.size() < rank && !state.element.format) {  // missing leading axes have extent 1
    shape.insert(shape.begin(), rank - shape.size(), Dim(1));
    id = append(make(Op::reshape_, {id}, {shape, {}}), args[1]->place);
  }
  std::vector<ValueId> operands = {state.id, id};
  const size_t starts = args.size() - 2;
  if (starts != 0 && starts != rank)
    throw error_at(e.place, fmt::format("{} starts for a state with {} axes", starts, rank),
                   "give one start for each axis, or none");
  for (size_t i = 2; i < args.size(); ++i) {
    const Value start = expression(*args[i]);
    ValueId s = node_of(start, args[i]->place, Scalar::i32);
    if (!many && !graph_[s].type.shape.empty()) {
      if (elements(graph_[s].type.shape) != Dim(1))
        throw error_at(args[i]->place, fmt::format("a start is one number, found {}", written(graph_[s].type)),
                       "several starts need a value with their axes in front");
      s = append(make(Op::reshape_, {s}, {{}, {}}), args[i]->place);
    }
    operands.push_back(s);
  }
  const ValueId updated = append(make(Op::update_, std::move(operands)), e.place);
  newer_[state.id] = updated;
  return Value::of_node(graph_, updated);
}

}  // namespace lumen::graph
