// Dims, shapes and types of graph values: arithmetic and text. Independent of operators.
// Proved by tests/graph/ir/type_test.cpp.
#include "graph/ir/type.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace lumen::graph {

namespace {

constexpr const char* kTooLargeHint = "choose a smaller batch, context or model";

int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error(Exit::hardware, fmt::format("a shape is too large: {} * {} elements", a, b), kTooLargeHint);
  return product;
}

// Upper-case symbols without 'x' and lower-case element names need no parentheses: `TxI` and `4xmxf` stay readable by
// eye and by the parser, which takes an upper-case word as a symbol and splits at 'x'. A format called like a scalar
// type gets them too.
bool plain_symbol(const std::string& s) {
  return s[0] >= 'A' && s[0] <= 'Z' && s.find('x') == std::string::npos;
}

}  // namespace

int64_t Dim::number() const {
  LUMEN_CHECK(is_number(), "dimension {} is not bound to a number", print(*this));
  return coefficient;
}

Dim operator*(const Dim& a, const Dim& b) {
  Dim r(checked_multiply(a.coefficient, b.coefficient));
  std::merge(a.symbols.begin(), a.symbols.end(), b.symbols.begin(), b.symbols.end(), std::back_inserter(r.symbols));
  return r;
}

std::optional<Dim> divide(const Dim& a, const Dim& b) {
  if (b.coefficient == 0 || a.coefficient % b.coefficient != 0) return std::nullopt;
  if (!std::includes(a.symbols.begin(), a.symbols.end(), b.symbols.begin(), b.symbols.end())) return std::nullopt;
  Dim r(a.coefficient / b.coefficient);
  std::set_difference(a.symbols.begin(), a.symbols.end(), b.symbols.begin(), b.symbols.end(),
                      std::back_inserter(r.symbols));
  return r;
}

std::string print(const Dim& d) {
  std::string text;
  if (d.coefficient != 1 || d.symbols.empty()) text = std::to_string(d.coefficient);
  for (const std::string& s : d.symbols) {
    if (!text.empty()) text += '*';
    text += plain_symbol(s) ? s : "(" + s + ")";
  }
  return text;
}

Dim elements(const Shape& s) {
  Dim n(1);
  for (const Dim& d : s) n = n * d;
  return n;
}

std::string print(const Type& t) {
  std::string text = "tensor<";
  for (const Dim& d : t.shape) text += print(d) + "x";
  if (!t.element.format) return text + std::string(scalar_name(t.element.scalar)) + ">";
  const std::string& name = t.element.format->name;
  const bool ambiguous = (name[0] >= 'A' && name[0] <= 'Z') || scalar_from_name(name);
  return text + (ambiguous ? "(" + name + ")" : name) + ">";
}

int64_t byte_size(const Type& t) {
  constexpr int64_t kMostElements = int64_t{1} << 54;  // so that sums over a graph's values do not overflow either
  if (elements(t.shape).number() > kMostElements)
    throw Error(Exit::hardware, fmt::format("{} is larger than any memory", print(t)), kTooLargeHint);
  if (!t.element.format) return checked_multiply(elements(t.shape).number(), scalar_bytes(t.element.scalar));
  if (t.shape.empty())
    throw user_error("a single number cannot be held in format '{}'; matrices and vectors can", t.element.format->name);
  Shape leading(t.shape.begin(), t.shape.end() - 1);
  return blob_layout(*t.element.format, elements(leading).number(), t.shape.back().number()).total;
}

Type bind(const Type& t, const Bindings& symbols) {
  Type bound = t;
  for (Dim& d : bound.shape) {
    Dim r(d.coefficient);
    for (const std::string& s : d.symbols) {
      const auto found = symbols.find(s);
      r = r * (found == symbols.end() ? Dim(s) : Dim(found->second));
    }
    d = r;
  }
  return bound;
}

}  // namespace lumen::graph
