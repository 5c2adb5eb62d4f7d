// The type rule of every operator: one function per row of op.def, found by name (a row without a rule does not
// compile). Rules compute the result's type where they can; the others check the type of the node. Proved by
// tests/graph/ir/type_test.cpp and text_test.cpp.
#include <algorithm>
#include <set>
#include <span>

#include "base/ordinal.h"
#include "graph/ir/build.h"

namespace lumen::graph {

namespace {

// A type or an extent in a message. It is formatted only if a rule fails, because rules run after every pass.
template <typename T>
struct Shown {
  const T& of;
};
template <typename T>
Shown<T> shown(const T& of) {
  return {of};
}

}  // namespace

}  // namespace lumen::graph

template <typename T>
struct fmt::formatter<lumen::graph::Shown<T>> : fmt::formatter<std::string> {
  template <typename Context>
  auto format(const lumen::graph::Shown<T>& shown, Context& context) const {
    if constexpr (std::is_same_v<T, lumen::graph::Shape>)
      return fmt::formatter<std::string>::format(print(lumen::graph::Type{shown.of, {}}), context);
    else
      return fmt::formatter<std::string>::format(print(shown.of), context);
  }
};

namespace lumen::graph {

namespace {

struct Wrong {
  std::string text;
};

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) throw Wrong{fmt::format(text, std::forward<Args>(args)...)};
}

// The inputs of a rule: the node and its operands' types.
struct Site {
  const Graph& g;
  const Node& node;
  const Attributes& attributes = node.attributes;

  const Type& operand(size_t i) const { return g[node.operands[i]].type; }
  const Shape& shape(size_t i) const { return operand(i).shape; }
  size_t rank(size_t i) const { return shape(i).size(); }
  void scalar_operand(size_t i) const {
    require(!operand(i).element.format, "operand {} is held in a format: cast it to f32 first", i);
  }
};

void check_dims(const Type& t) {
  Dim total(1);
  for (const Dim& d : t.shape) {
    require(d.coefficient >= 1, "extent {} in {}: extents are at least 1", shown(d), shown(t));
    total = total * d;
  }
  if (!t.element.format) return;
  require(!t.shape.empty(), "a rank-0 value cannot be held in a format");
  const Dim& columns = t.shape.back();
  const int64_t block = t.element.format->block;
  require(!columns.is_number() || columns.coefficient % block == 0,
          "the last extent of {} is no multiple of the block ({})", shown(t), block);
}

// One axis of slice and pad: `count` elements at start, start + stride, ... must lie inside `extent`.
void check_window(int axis, const Dim& extent, int64_t start, const Dim& count, int64_t stride) {
  require(start >= 0 && stride >= 1, "axis {}: start {} must be >= 0 and stride {} >= 1", axis, start, stride);
  if (!extent.is_number() || !count.is_number()) {  // extents with symbols are checked again once they are bound
    require(extent != count || (start == 0 && stride == 1), "axis {}: {} elements from {} leave the extent {}", axis,
            shown(count), start, shown(extent));
    return;
  }
  int64_t last = 0;
  const bool overflow =
      __builtin_mul_overflow(count.coefficient - 1, stride, &last) || __builtin_add_overflow(last, start, &last);
  require(!overflow && last < extent.coefficient, "axis {}: {} elements from {} with stride {} leave the extent {}",
          axis, count.coefficient, start, stride, extent.coefficient);
}

void check_windows(const Site& s, const Shape& outer, const Shape& inner) {
  const auto& [starts, strides] = std::tie(s.attributes.starts, s.attributes.strides);
  require(outer.size() == inner.size(), "ranks differ: {} and {}", shown(outer), shown(inner));
  require(starts.size() == outer.size() && strides.size() == outer.size(), "needs a start and a stride per axis");
  for (size_t d = 0; d < outer.size(); ++d) check_window(d, outer[d], starts[d], inner[d], strides[d]);
}

Shape stretch(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape r = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    Dim& out = r[d + shift];
    if (out == shorter[d] || shorter[d] == Dim(1)) continue;
    require(out == Dim(1), "{} and {} do not broadcast", shown(a), shown(b));
    out = shorter[d];
  }
  return r;
}

Type infer_input(const Site& s) {
  require(!s.attributes.name.empty(), "an input needs a name");
  return s.node.type;
}

Type infer_constant(const Site& s) {
  const Type& t = s.node.type;
  require(!t.element.format, "constants are plain scalars");
  if (s.attributes.data.size() == 1) return t;
  const Dim count = elements(t.shape);
  require(count.is_number(), "a constant of symbolic shape must be a splat");
  require(std::ssize(s.attributes.data) == count.coefficient, "{} numbers for {}", s.attributes.data.size(), shown(t));
  return t;
}

Type infer_iota(const Site& s) {
  const Type& t = s.node.type;
  require(!t.element.format && t.element.scalar != Scalar::boolean, "iota is an integer or a float");
  require(s.attributes.axis >= 0 && s.attributes.axis < std::ssize(t.shape), "axis {} of {}", s.attributes.axis,
          shown(t));
  return t;
}

Type infer_map(const Site& s) {
  const Formula& f = s.attributes.formula;
  require(!s.node.operands.empty(), "needs an operand");
  require(f.outputs.size() == 1, "the formula must have one output, not {}", f.outputs.size());
  require(f.inputs.size() == s.node.operands.size(), "the formula has {} inputs for {} operands", f.inputs.size(),
          s.node.operands.size());
  Shape shape;
  for (size_t i = 0; i < f.inputs.size(); ++i) {
    s.scalar_operand(i);
    require(f.inputs[i] == s.operand(i).element.scalar, "operand {} is {}, the formula needs {}", i,
            shown(s.operand(i)), scalar_name(f.inputs[i]));
    shape = stretch(shape, s.shape(i));
  }
  return {shape, {f.type(f.outputs[0]), nullptr}};
}

// Integers of 8 or 16 bits: their products and sums are i32.
bool is_short_integer(Scalar s) {
  return s == Scalar::i8 || s == Scalar::u8 || s == Scalar::i16 || s == Scalar::u16;
}

Element product_element(const Site& s) {
  if (!is_float(s.operand(0).element.scalar)) return {Scalar::i32, nullptr};
  const bool wide = s.operand(0).element.scalar == Scalar::f64 && s.operand(1).element.scalar == Scalar::f64;
  return {wide ? Scalar::f64 : Scalar::f32, nullptr};
}

Type infer_contract(const Site& s) {
  const auto& indices = s.attributes.indices;
  require(indices.size() == 3, "needs three index lists");
  std::map<char, Dim> extent;
  for (size_t i = 0; i < 2; ++i) {
    s.scalar_operand(i);
    require(is_float(s.operand(i).element.scalar) || is_short_integer(s.operand(i).element.scalar),
            "operand {} is neither floating nor of whole numbers of 8 or 16 bits: {}", i, shown(s.operand(i)));
    require(is_float(s.operand(i).element.scalar) == is_float(s.operand(0).element.scalar),
            "operands are whole numbers and floats: {} and {}", shown(s.operand(0)), shown(s.operand(i)));
    require(indices[i].size() == s.rank(i), "{} letters for operand {} of {}", indices[i].size(), i,
            shown(s.operand(i)));
    require(std::set<char>(indices[i].begin(), indices[i].end()).size() == indices[i].size(),
            "a letter repeats within operand {}", i);
    for (size_t d = 0; d < s.rank(i); ++d) {
      const auto [known, fresh] = extent.emplace(indices[i][d], s.shape(i)[d]);
      require(fresh || known->second == s.shape(i)[d], "index {} is {} in one operand and {} in the other",
              indices[i][d], shown(known->second), shown(s.shape(i)[d]));
    }
  }
  require(std::set<char>(indices[2].begin(), indices[2].end()).size() == indices[2].size(),
          "a letter repeats within the result");
  Shape shape;
  for (char c : indices[2]) {
    require(extent.contains(c), "index {} of the result is in no operand", c);
    shape.push_back(extent[c]);
  }
  for (const auto& [c, size] : extent) {
    const bool summed = indices[2].find(c) == std::string::npos;
    const bool in_both = indices[0].find(c) != std::string::npos && indices[1].find(c) != std::string::npos;
    require(!summed || in_both, "index {} is summed but occurs in one operand only: reduce it first", c);
  }
  return {shape, product_element(s)};
}

// Letters of a, b and the index: one per axis, none twice within an operand, one extent each.
std::map<char, Dim> letters_of_three(const Site& s) {
  const auto& indices = s.attributes.indices;
  require(indices.size() == 4, "needs four index lists");
  std::map<char, Dim> extent;
  for (size_t i = 0; i < 3; ++i) {
    s.scalar_operand(i);
    require(indices[i].size() == s.rank(i), "{} letters for operand {} of {}", indices[i].size(), i,
            shown(s.operand(i)));
    require(std::set<char>(indices[i].begin(), indices[i].end()).size() == indices[i].size(),
            "a letter repeats within operand {}", i);
    for (size_t d = 0; d < s.rank(i); ++d) {
      const auto [known, fresh] = extent.emplace(indices[i][d], s.shape(i)[d]);
      require(fresh || known->second == s.shape(i)[d], "index {} is {} in one operand and {} in another", indices[i][d],
              shown(known->second), shown(s.shape(i)[d]));
    }
  }
  for (size_t i = 0; i < 2; ++i)
    require(is_float(s.operand(i).element.scalar), "operand {} is not floating: {}", i, shown(s.operand(i)));
  require(!is_float(s.operand(2).element.scalar) && s.operand(2).element.scalar != Scalar::boolean,
          "the index must be an integer tensor, not {}", shown(s.operand(2)));
  return extent;
}

bool has_letter(const std::string& letters, char c) {
  return letters.find(c) != std::string::npos;
}

Type infer_contract_gather(const Site& s) {
  std::map<char, Dim> extent = letters_of_three(s);
  const std::string &a = s.attributes.indices[0], &b = s.attributes.indices[1], &index = s.attributes.indices[2];
  require(!b.empty() && !has_letter(a + index, b[0]), "the picked axis of operand 1 must have a letter of its own");
  std::string result = index;
  for (size_t d = 1; d < b.size(); ++d) {
    require(!has_letter(index, b[d]), "index {} both picks and runs along operand 1", b[d]);
    if (!has_letter(a, b[d])) result += b[d];
  }
  for (const char c : a)
    require(has_letter(index, c) || has_letter(b, c), "index {} is neither the index's nor summed with operand 1", c);
  require(s.attributes.indices[3] == result, "the result's letters must be {}: the index's, then those of operand 1",
          result);
  Shape shape;
  for (const char c : result) shape.push_back(extent[c]);
  return {shape, product_element(s)};
}

Type infer_contract_scatter(const Site& s) {
  std::map<char, Dim> extent = letters_of_three(s);
  const std::string &a = s.attributes.indices[0], &b = s.attributes.indices[1], &index = s.attributes.indices[2];
  const std::string& result = s.attributes.indices[3];
  require(!result.empty() && !has_letter(a + b + index, result[0]),
          "the first axis of the result must have a letter of its own");
  require(!s.node.type.shape.empty(), "the result needs rows");
  for (const char c : index) require(has_letter(a + b, c), "index {} is in no factor", c);
  std::string free;
  for (const char c : a) {
    require(has_letter(index, c) || !has_letter(b, c), "index {} is in both factors and not the index's", c);
    if (!has_letter(index, c)) free += c;
  }
  for (const char c : b)
    if (!has_letter(index, c)) free += c;
  std::string wanted = result.substr(1);
  std::sort(wanted.begin(), wanted.end());
  std::sort(free.begin(), free.end());
  require(wanted == free, "after its first axis the result must have the letters {}, not {}", free, wanted);
  Shape shape{s.node.type.shape[0]};
  for (size_t d = 1; d < result.size(); ++d) shape.push_back(extent[result[d]]);
  return {shape, product_element(s)};
}

Type infer_reduce(const Site& s) {
  s.scalar_operand(0);
  require(s.operand(0).element.scalar != Scalar::boolean, "cannot reduce truth values: select numbers first");
  Type t = s.operand(0);
  int previous = -1;
  for (int a : s.attributes.axes) {
    require(a > previous && a < static_cast<int>(s.rank(0)), "axes must rise and lie inside {}", shown(t));
    previous = a;
    t.shape[a] = Dim(1);
  }
  return t;
}

Type infer_gather(const Site& s) {
  s.scalar_operand(0);
  require(s.rank(0) >= 1, "the table needs rows");
  require(!s.operand(1).element.format && !is_float(s.operand(1).element.scalar) &&
              s.operand(1).element.scalar != Scalar::boolean,
          "the index must be an integer tensor, not {}", shown(s.operand(1)));
  Type t{s.shape(1), s.operand(0).element};
  t.shape.insert(t.shape.end(), s.shape(0).begin() + 1, s.shape(0).end());
  return t;
}

Type infer_scatter_add(const Site& s) {
  s.scalar_operand(0);
  require(!s.operand(1).element.format && !is_float(s.operand(1).element.scalar) &&
              s.operand(1).element.scalar != Scalar::boolean,
          "the index must be an integer tensor, not {}", shown(s.operand(1)));
  require(s.operand(0).element.scalar != Scalar::boolean, "cannot add truth values");
  require(s.rank(0) >= s.rank(1) && std::equal(s.shape(1).begin(), s.shape(1).end(), s.shape(0).begin()),
          "the value {} must begin with the index's axes {}", shown(s.operand(0)), shown(s.operand(1)));
  require(!s.node.type.shape.empty(), "the result needs rows");
  Type t{{s.node.type.shape[0]}, s.operand(0).element};
  t.shape.insert(t.shape.end(), s.shape(0).begin() + s.rank(1), s.shape(0).end());
  return t;
}

Type infer_reshape(const Site& s) {
  s.scalar_operand(0);
  require(elements(s.shape(0)) == elements(s.node.type.shape), "{} and {} hold different numbers of elements",
          shown(s.shape(0)), shown(s.node.type.shape));
  return {s.node.type.shape, s.operand(0).element};
}

Type infer_permute(const Site& s) {
  s.scalar_operand(0);
  const auto& axes = s.attributes.axes;
  std::vector<bool> seen(s.rank(0));
  require(axes.size() == s.rank(0), "{} axes for {}", axes.size(), shown(s.operand(0)));
  Type t{{}, s.operand(0).element};
  for (int a : axes) {
    require(a >= 0 && a < std::ssize(axes) && !seen[a], "axes must name every axis once");
    seen[a] = true;
    t.shape.push_back(s.shape(0)[a]);
  }
  return t;
}

Type infer_broadcast(const Site& s) {
  s.scalar_operand(0);
  const Shape& to = s.node.type.shape;
  require(stretch(s.shape(0), to) == to, "{} does not broadcast to {}", shown(s.shape(0)), shown(to));
  return {to, s.operand(0).element};
}

Type infer_slice(const Site& s) {
  s.scalar_operand(0);
  check_windows(s, s.shape(0), s.node.type.shape);
  return {s.node.type.shape, s.operand(0).element};
}

// Whether exactly one index reads `axis`, whole and in order.
bool reads_whole_axis(const Shape& to, std::span<const int64_t> strides, int64_t start, const Dim& extent) {
  int reading = 0;
  bool whole = start == 0;
  for (size_t j = 0; j < strides.size(); ++j) {
    if (strides[j] == 0) continue;
    ++reading;
    whole = whole && strides[j] == 1 && to[j] == extent;
  }
  return whole && reading == 1;
}

Type infer_windows(const Site& s) {
  s.scalar_operand(0);
  const Shape &from = s.shape(0), &to = s.node.type.shape;
  const auto& [starts, strides] = std::tie(s.attributes.starts, s.attributes.strides);
  require(!from.empty(), "a single number has no axis to read at");
  require(starts.size() == from.size(), "{} subscripts for {}", starts.size(), shown(from));
  require(strides.size() == from.size() * to.size(), "the subscripts have another number of indices than {}",
          shown(to));
  for (size_t d = 0; d < from.size(); ++d) {
    const std::span<const int64_t> row(strides.data() + d * to.size(), to.size());
    require(starts[d] >= 0 && std::all_of(row.begin(), row.end(), [](int64_t x) { return x >= 0; }),
            "axis {}: starts and strides are not below 0", d);
    if (reads_whole_axis(to, row, starts[d], from[d])) continue;
    int64_t last = starts[d];
    bool overflow = false;
    for (size_t j = 0; j < row.size(); ++j) {
      if (row[j] == 0) continue;
      require(to[j].is_number(), "axis {}: an index of symbolic extent {} reads an axis of its own extent alone", d,
              shown(to[j]));
      int64_t way = 0;
      overflow = overflow || __builtin_mul_overflow(to[j].coefficient - 1, row[j], &way) ||
                 __builtin_add_overflow(last, way, &last);
    }
    require(from[d].is_number(), "axis {} of symbolic extent {} is read by one index of its own extent alone", d,
            shown(from[d]));
    require(!overflow && last < from[d].coefficient, "axis {}: its last element read is {} of {}", d, last,
            from[d].coefficient);
  }
  return {to, s.operand(0).element};
}

Type infer_pad(const Site& s) {
  s.scalar_operand(0);
  check_windows(s, s.node.type.shape, s.shape(0));
  return {s.node.type.shape, s.operand(0).element};
}

Type infer_concat(const Site& s) {
  require(!s.node.operands.empty(), "needs an operand");
  Type t = s.operand(0);
  const int axis = s.attributes.axis;
  require(axis >= 0 && axis < std::ssize(t.shape), "axis {} of {}", axis, shown(t));
  for (size_t i = 0; i < s.node.operands.size(); ++i) {
    s.scalar_operand(i);
    if (i == 0) continue;
    Type part = s.operand(i);
    require(part.shape.size() == t.shape.size(), "ranks differ: {} and {}", shown(t), shown(part));
    require(part.shape[axis].symbols == t.shape[axis].symbols, "cannot add the extents {} and {}", shown(t.shape[axis]),
            shown(part.shape[axis]));
    require(
        !__builtin_add_overflow(t.shape[axis].coefficient, part.shape[axis].coefficient, &t.shape[axis].coefficient),
        "the result is too large");
    part.shape[axis] = t.shape[axis];
    require(part == t, "{} does not fit to {}", shown(s.operand(i)), shown(s.operand(0)));
  }
  return t;
}

Type infer_cast(const Site& s) {
  const Element &from = s.operand(0).element, &to = s.node.type.element;
  require(!from.format || (!to.format && to.scalar == Scalar::f32), "a format is cast to f32, not to {}",
          shown(s.node.type));
  require(!to.format || from.scalar == Scalar::f32, "only f32 is cast into a format, not {}", shown(s.operand(0)));
  const auto& sources = s.attributes.sources;
  require(sources.size() + 1 == s.node.operands.size(), "{} sources for {} further operands", sources.size(),
          s.node.operands.size() - 1);
  require(sources.empty() || to.format, "only a cast into a format has sources");
  for (size_t i = 0; i < sources.size(); ++i) {
    s.scalar_operand(i + 1);
    require(sources[i].first >= 0 && sources[i].first < std::ssize(to.format->fields), "no field {} in {}",
            sources[i].first, to.format->name);
    require(is_float(s.operand(i + 1).element.scalar), "field values must be floating");
  }
  return {s.shape(0), to};
}

Type infer_random(const Site& s) {
  require(s.operand(0) == Type{{}, {Scalar::u32, nullptr}}, "the seed must be tensor<u32>, not {}",
          shown(s.operand(0)));
  return {s.node.type.shape, {Scalar::f32, nullptr}};
}

Type infer_update(const Site& s) {
  require(s.node.operands.size() >= 2, "needs a state and a value");
  const Node& state = s.g[s.node.operands[0]];
  require(state.op == Op::update_ || (state.op == Op::input_ && state.attributes.role != Role::data),
          "the first operand must be a state, a parameter, or an update of one");
  require(s.operand(0).element == s.operand(1).element, "{} cannot be written into {}", shown(s.operand(1)),
          shown(s.operand(0)));
  const size_t starts = s.node.operands.size() - 2;
  require(starts == 0 || starts == s.rank(0), "{} starts for rank {}", starts, s.rank(0));
  Shape parts;  // axes of the starts tensors
  for (size_t i = 2; i < s.node.operands.size(); ++i) {
    if (s.rank(i) > 0) parts = s.shape(i);
  }
  for (size_t i = 2; i < s.node.operands.size(); ++i) {
    require(s.operand(i).element == Element{Scalar::i32, nullptr}, "a start must be i32, not {}", shown(s.operand(i)));
    require(s.rank(i) == 0 || s.shape(i) == parts, "starts differ: {} and {}", shown(s.operand(i)),
            shown(Type{parts, {Scalar::i32, nullptr}}));
  }
  require(s.rank(0) + parts.size() == s.rank(1), "ranks differ: {} and {}", shown(s.operand(0)), shown(s.operand(1)));
  for (size_t d = 0; d < s.rank(1); ++d) {
    if (d < parts.size()) {
      require(s.shape(1)[d] == parts[d], "starts of shape {} for {}", shown(Type{parts, {Scalar::i32, nullptr}}),
              shown(s.operand(1)));
    } else {
      check_window(d - parts.size(), s.shape(0)[d - parts.size()], 0, s.shape(1)[d], 1);
    }
  }
  if (const FormatRef& f = s.operand(0).element.format; f && s.operand(0) != s.operand(1)) {
    require(s.shape(0).back() == s.shape(1).back(), "a state in a format is written in whole rows");
    require(f->tile_bytes == 0 && f->tensor_bytes == 0, "a state in {} can only be written as a whole", f->name);
  }
  return s.operand(0);
}

Type infer_exchange(const Site& s) {
  s.scalar_operand(0);
  const int ranks = s.attributes.ranks;
  require(ranks >= 2, "an exchange between {} ranks", ranks);
  Type t = s.operand(0);
  if (s.attributes.moves == Moves::gather) {
    t.shape.insert(t.shape.begin(), Dim(ranks));
    return t;
  }
  require(!t.shape.empty() && t.shape[0] == Dim(ranks), "{} has no row for each of {} ranks", shown(t), ranks);
  return t;
}

Type infer_call(const Site& s) {
  require(s.attributes.callee != nullptr, "needs a callee");
  const Graph& callee = *s.attributes.callee;
  const std::vector<ValueId> inputs = callee.inputs();
  require(!callee.results.empty(), "{} has no results", callee.name);
  require(inputs.size() == s.node.operands.size(), "{} takes {} operands, not {}", callee.name, inputs.size(),
          s.node.operands.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(callee[inputs[i]].type == s.operand(i), "operand {} is {}, but {} needs {}", i, shown(s.operand(i)),
            callee.name, shown(callee[inputs[i]].type));
  }
  return callee[callee.results[0]].type;
}

// The type of a scan's result: its last carries, then outputs with a leading axis of steps.
Type scan_result(const Graph& g, const Node& scan, int index) {
  const Graph& body = *scan.attributes.callee;
  Type t = body[body.results[index]].type;
  if (index >= scan.attributes.carries) {
    const Shape& stepped = g[scan.operands[scan.attributes.carries]].type.shape;
    t.shape.insert(t.shape.begin(), stepped[0]);
  }
  return t;
}

// The nodes of a step must be functions of their operands alone.
void check_body(const Graph& body) {
  for (const Node& node : body.nodes) {
    require(op_info(node.op).pure || node.op == Op::input_, "{} is not allowed in a step, but {} contains it",
            op_info(node.op).name, body.name);
    require(node.op != Op::exchange_, "ranks exchange nothing within a step, as {} does", body.name);
    require(node.op != Op::input_ || node.attributes.role != Role::state,
            "{} has the state '{}': a value that lasts from step to step is a carry", body.name, node.attributes.name);
  }
}

Type infer_scan(const Site& s) {
  const Attributes& a = s.attributes;
  require(a.callee != nullptr, "needs a callee");
  const Graph& body = *a.callee;
  const std::vector<ValueId> inputs = body.inputs();
  const int count = std::ssize(inputs), results = std::ssize(body.results);
  require(a.carries >= 0 && a.sequences >= 1 && a.carries <= count && a.sequences <= count - a.carries,
          "{} carries and {} sequences of {} operands: there is one sequence at least", a.carries, a.sequences, count);
  require(inputs.size() == s.node.operands.size(), "{} takes {} operands, not {}", body.name, inputs.size(),
          s.node.operands.size());
  require(results >= std::max(a.carries, 1), "{} has {} results for {} carries", body.name, results, a.carries);
  check_body(body);
  for (int i = 0; i < count; ++i) {
    Type given = s.operand(i);
    const bool steps = i >= a.carries && i < a.carries + a.sequences;
    if (i < a.carries + a.sequences) s.scalar_operand(i);
    if (steps) {
      require(!given.shape.empty(), "operand {} is a single number: it has no steps", i);
      require(given.shape[0] == s.shape(a.carries)[0], "operand {} has {} steps, the first sequence {}", i,
              shown(given.shape[0]), shown(s.shape(a.carries)[0]));
      given.shape.erase(given.shape.begin());
    }
    require(body[inputs[i]].type == given, "operand {} is {}{}, but {} needs {}", i, shown(given),
            steps ? " in a step" : "", body.name, shown(body[inputs[i]].type));
  }
  for (int k = 0; k < results; ++k) {
    const Type& given = body[body.results[k]].type;
    require(!given.element.format, "result {} of {} is held in a format", k, body.name);
    require(k >= a.carries || given == s.operand(k), "carry {} is {} before a step and {} after it", k,
            k < a.carries ? print(s.operand(k)) : "", shown(given));
  }
  return scan_result(s.g, s.node, 0);
}

// A chunk has the types of single steps, but for a first axis of the same steps in its sequences and outputs.
Type infer_chunk(const Site& s) {
  const ValueId of = scan_of(s.g, s.node.operands[0]);
  require(of >= 0 && s.attributes.callee, "needs a callee, and a scan");
  const Attributes& a = s.g[of].attributes;
  const Graph &step = *a.callee, &chunk = *s.attributes.callee;
  const std::vector<ValueId> of_step = step.inputs(), inputs = chunk.inputs();
  require(!a.reverse, "a scan in reverse has no chunks");
  require(inputs.size() == of_step.size() && chunk.results.size() == step.results.size(),
          "{} has {} inputs and {} results, {} has {} and {}", chunk.name, inputs.size(), chunk.results.size(),
          step.name, of_step.size(), step.results.size());
  check_body(chunk);
  const Shape& first = chunk[inputs[a.carries]].type.shape;
  require(!first.empty() && first[0].is_number() && first[0].number() > 1, "{} does not have several steps",
          chunk.name);
  const auto expect = [&](std::string_view what, size_t i, ValueId of_chunk, ValueId one, bool steps) {
    Type wanted = step[one].type;
    if (steps) wanted.shape.insert(wanted.shape.begin(), first[0]);
    require(chunk[of_chunk].type == wanted, "{} {} of {} is {}, not {}", what, i, chunk.name,
            shown(chunk[of_chunk].type), shown(wanted));
  };
  const size_t carries = a.carries, stepped = carries + a.sequences;
  for (size_t i = 0; i < inputs.size(); ++i) expect("input", i, inputs[i], of_step[i], i >= carries && i < stepped);
  for (size_t k = 0; k < chunk.results.size(); ++k)
    expect("result", k, chunk.results[k], step.results[k], k >= carries);
  return scan_result(s.g, s.g[of], 0);
}

Type infer_result(const Site& s) {
  const ValueId scan = scan_of(s.g, s.node.operands[0]);
  const Node& call = s.g[scan >= 0 ? scan : s.node.operands[0]];
  const bool steps = call.op == Op::scan_;
  require((steps || call.op == Op::call_) && call.attributes.callee, "the operand must be a call or a scan");
  const Graph& callee = *call.attributes.callee;
  require(s.attributes.index >= 0 && s.attributes.index < std::ssize(callee.results), "{} has no result {}",
          callee.name, s.attributes.index);
  if (steps) return scan_result(s.g, call, s.attributes.index);
  return callee[callee.results[s.attributes.index]].type;
}

using Rule = Type (*)(const Site&);
constexpr Rule kRules[] = {
#define X(name, operands, attributes, pure, text) infer_##name,
#include "graph/ir/op.def"
#undef X
};

}  // namespace

std::string infer_type(const Graph& g, const Node& node, Type* result) {
  const OpInfo& info = op_info(node.op);
  try {
    require(info.operands < 0 || info.operands == std::ssize(node.operands), "needs {} operands, not {}", info.operands,
            node.operands.size());
    for (ValueId v : node.operands) {
      require(v >= 0 && v < std::ssize(g.nodes), "operand {} does not exist", v);
    }
    Type t = kRules[ordinal(node.op)](Site{g, node});
    check_dims(t);
    *result = std::move(t);
  } catch (const Wrong& wrong) {
    return fmt::format("{}: {}", info.name, wrong.text);
  } catch (const Error& error) {
    return fmt::format("{}: {}", info.name, error.what());
  }
  return {};
}

std::string check_type(const Graph& g, const Node& node) {
  Type expected;
  std::string wrong = infer_type(g, node, &expected);
  if (wrong.empty() && expected != node.type) {
    wrong = fmt::format("{}: the result is {}, not {}", op_info(node.op).name, print(expected), print(node.type));
  }
  return wrong;
}

}  // namespace lumen::graph
