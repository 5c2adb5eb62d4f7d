// Types of graph values: tensor<dims x element>. A dimension is a number or a monomial of named symbols (B*T, 2*T), an
// element is a scalar type or a number format.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "number/format/format.h"
#include "number/formula/scalar.h"

namespace lumen::graph {

// coefficient * product of symbols (sorted, with repetition). A plain number has no symbols.
struct Dim {
  int64_t coefficient = 1;
  std::vector<std::string> symbols;

  Dim() = default;
  Dim(int64_t n) : coefficient(n) {}  // NOLINT: numbers are dimensions
  explicit Dim(std::string symbol) : symbols{std::move(symbol)} {}
  bool is_number() const { return symbols.empty(); }
  int64_t number() const;  // LUMEN_CHECKs is_number()
  friend bool operator==(const Dim&, const Dim&) = default;
};
Dim operator*(const Dim& a, const Dim& b);              // checked
std::optional<Dim> divide(const Dim& a, const Dim& b);  // nullopt unless exact
std::string print(const Dim& d);

using Shape = std::vector<Dim>;
Dim elements(const Shape& s);

// A scalar type, or a format (then `scalar` is f32, the type it decodes to).
struct Element {
  Scalar scalar = Scalar::f32;
  FormatRef format;  // null for plain scalars
  friend bool operator==(const Element& a, const Element& b) {
    return a.scalar == b.scalar && (a.format == b.format || (a.format && b.format && a.format->hash == b.format->hash));
  }
};

struct Type {
  Shape shape;
  Element element;
  friend bool operator==(const Type&, const Type&) = default;
};
std::string print(const Type& t);  // tensor<4096x4096xNAME> for a format, tensor<f32> for rank 0, tensor<B*Tx64xf32>

// Bytes of a value with numeric dims: rows*columns*scalar_bytes, or blob_layout().total for formats. Checked.
int64_t byte_size(const Type& t);

// Symbol values chosen at compile time.
using Bindings = std::map<std::string, int64_t>;
Type bind(const Type& t, const Bindings& symbols);

}  // namespace lumen::graph
