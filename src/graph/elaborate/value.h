// The value of an expression of a function while its graph is being built: a number known now, an extent, a tensor
// (finished, or an elementwise formula that is not a node yet), or one of the few kinds that exist only at this time.
// Must not depend on syntax. Proved by tests/graph/elaborate/elaborate_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// A number known while the graph is built. Integers stay exact; they become floats where a float is required.
struct Number {
  enum class Kind : uint8_t { integer, real, truth } kind = Kind::integer;
  int64_t integer = 0;  // integers and truth values
  double real = 0;      // reals

  static Number of(int64_t n) { return {Kind::integer, n, 0}; }
  static Number of(double x) { return {Kind::real, 0, x}; }
  static Number truth(bool b) { return {Kind::truth, b ? 1 : 0, 0}; }
  double value() const { return kind == Kind::real ? real : integer; }
};

struct Value {
  enum class Kind : uint8_t {
    number,
    dim,      // an extent with symbols, usable in shapes; `dim`
    tensor,   // a node `id`, or (id < 0) `formula` over `operands`, not yet a node
    tuple,    // several results of a call; `items`
    extents,  // the extents of a leading `...Name`; `shape`
    layer,    // `l` in `for l in layers`; `layer`
    config,   // cfg
    text,     // a string, for comparisons; `text`
  } kind = Kind::number;

  Number number;
  Dim dim;
  ValueId id = -1;
  Formula formula;
  std::vector<ValueId> operands;
  Shape shape;  // of a tensor
  Element element;
  std::vector<Value> items;
  int64_t layer = 0;
  std::string text;

  static Value of(Number n);
  static Value of_text(std::string text);
  static Value of(Dim d);  // a number when it has no symbols
  static Value of_node(const Graph& g, ValueId id);

  bool is_number() const { return kind == Kind::number; }
  bool is_integer() const { return is_number() && number.kind == Number::Kind::integer; }
  bool is_tensor() const { return kind == Kind::tensor; }
  bool is_pending() const { return is_tensor() && id < 0; }
  Type type() const { return {shape, element}; }
};

// In the language's spelling: f32[B, T, 64], and [B, T, 64].
std::string written(const Type& t);
std::string written(const Shape& s);
std::string written(const Dim& d);
// "a number", "f32[B, T]", ...: for messages.
std::string describe(const Value& v);

}  // namespace lumen::graph
