// Values at elaboration time and their spelling in messages; see value.h.
#include "graph/elaborate/value.h"

namespace lumen::graph {

Value Value::of(Number n) {
  Value v;
  v.number = n;
  return v;
}

Value Value::of_text(std::string text) {
  Value v;
  v.kind = Kind::text;
  v.text = std::move(text);
  return v;
}

Value Value::of(Dim d) {
  if (d.is_number()) return of(Number::of(d.coefficient));
  Value v;
  v.kind = Kind::dim;
  v.dim = std::move(d);
  return v;
}

Value Value::of_node(const Graph& g, ValueId id) {
  Value v;
  v.kind = Kind::tensor;
  v.id = id;
  v.shape = g[id].type.shape;
  v.element = g[id].type.element;
  return v;
}

std::string written(const Dim& d) {
  std::string text;
  if (d.coefficient != 1 || d.symbols.empty()) text = std::to_string(d.coefficient);
  for (const std::string& s : d.symbols) text += (text.empty() ? "" : " * ") + s;
  return text;
}

std::string written(const Shape& s) {
  std::string text = "[";
  for (size_t i = 0; i < s.size(); ++i) text += (i > 0 ? ", " : "") + written(s[i]);
  return text + "]";
}

std::string written(const Type& t) {
  return (t.element.format ? t.element.format->name : std::string(scalar_name(t.element.scalar))) + written(t.shape);
}

std::string describe(const Value& v) {
  switch (v.kind) {
    case Value::Kind::number:
      if (v.number.kind == Number::Kind::truth)
        return v.number.integer != 0 ? "the truth value true" : "the truth value false";
      return v.number.kind == Number::Kind::integer ? fmt::format("the number {}", v.number.integer)
                                                    : fmt::format("the number {}", v.number.real);
    case Value::Kind::dim:
      return fmt::format("the extent {}", written(v.dim));
    case Value::Kind::tensor:
      return written(v.type());
    case Value::Kind::tuple:
      return fmt::format("{} values", v.items.size());
    case Value::Kind::extents:
      return fmt::format("the extents {}", written(v.shape));
    case Value::Kind::layer:
      return fmt::format("layer {}", v.layer);
    case Value::Kind::config:
      return "the config";
    case Value::Kind::text:
      return fmt::format("the text \"{}\"", v.text);
  }
  return {};
}

}  // namespace lumen::graph
