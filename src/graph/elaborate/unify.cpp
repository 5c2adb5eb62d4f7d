// Unifies written types with actual types: symbols get their extents, and errors show both shapes.
#include <algorithm>

#include "base/messages/spelling.h"
#include "graph/elaborate/elaboration.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;
using lang::TypeExpr;

namespace {

std::string text_of(const Place& p) {
  return p.source ? p.source->text.substr(p.begin, p.end - p.begin) : std::string();
}

// The symbol for a bare `...` whose extents no argument determines.
constexpr const char* kLeading = "Lead";

void names_in(const Expr& e, std::vector<const Expr*>& out) {
  if (e.kind == ExprKind::name) out.push_back(&e);
  for (const auto& a : e.args)
    if (a) names_in(*a, out);
}

}  // namespace

Element Elaboration::element_of(const TypeExpr& t) const {
  if (const auto scalar = scalar_from_name(t.name)) return {*scalar, nullptr};
  if (session_.scope.formats)
    if (FormatRef f = session_.scope.formats->find(t.name)) return {Scalar::f32, std::move(f)};
  std::vector<std::string> known = {"f32", "f16", "bf16", "f64", "i32", "u32", "i64", "i8", "u8", "bool"};
  if (session_.scope.formats)
    for (const FormatRef& f : session_.scope.formats->all()) known.push_back(f->name);
  throw error_at(t.place, fmt::format("unknown type '{}'", t.name),
                 did_you_mean(t.name, known, "a type is a scalar type like f32 or the name of a format"));
}

// Unbound names of an extent.
std::vector<std::string> Elaboration::unbound(const Expr& e, const Symbols& symbols) const {
  std::vector<const Expr*> names;
  names_in(e, names);
  std::vector<std::string> out;
  for (const Expr* n : names) {
    const bool known = symbols.dims.contains(n->text) || find(n->text) || (context_.model && n->text == "cfg");
    if (!known && std::find(out.begin(), out.end(), n->text) == out.end()) out.push_back(n->text);
  }
  return out;
}

Dim Elaboration::written_extent(const Expr& e, const Symbols& symbols) {
  frames_.emplace_back();
  for (const auto& [name, dim] : symbols.dims) bind(name, Value::of(dim));
  Dim d;
  try {
    d = extent(e);
  } catch (...) {
    frames_.pop_back();
    throw;
  }
  frames_.pop_back();
  return d;
}

Type Elaboration::written_type(const TypeExpr& t, Symbols& symbols) {
  Type out{{}, element_of(t)};
  if (!t.params.empty())
    throw error_at(t.place, fmt::format("'{}' takes no parameters here", t.name),
                   "formats with parameters get a name first: format small = whole(4, 32)");
  if (t.leading_any) {
    const auto [found, fresh] = symbols.leading.emplace(t.leading_name, Shape{});
    if (fresh) found->second = {Dim(t.leading_name.empty() ? kLeading : t.leading_name)};
    out.shape = found->second;
  }
  for (const auto& d : t.dims) {
    for (const std::string& name : unbound(*d, symbols)) symbols.dims[name] = Dim(name);
    out.shape.push_back(written_extent(*d, symbols));
  }
  if (out.element.format && out.shape.empty())
    throw error_at(t.place, fmt::format("a value in format '{}' needs a shape", t.name),
                   fmt::format("e.g. {}[rows, columns]", t.name));
  return out;
}

void Elaboration::match(const TypeExpr& t, const Type& actual, Symbols& symbols, const Place& place,
                        const std::string& who, std::vector<Equation>& equations) {
  const Element wanted = element_of(t);
  const std::string expected = text_of(t.place);
  if (!wanted.format && !actual.element.format && wanted.scalar != actual.element.scalar)
    throw error_at(place, fmt::format("{} is {}, expected {}", who, written(actual), expected),
                   fmt::format("convert it: {}(...)", scalar_name(wanted.scalar)));
  const size_t rank = actual.shape.size();
  if (rank < t.dims.size() || (rank > t.dims.size() && !t.leading_any))
    throw error_at(place, fmt::format("{} is {}, expected {}", who, written(actual), expected),
                   fmt::format("it has {} {}, expected {}{}", rank, rank == 1 ? "axis" : "axes",
                               t.leading_any ? "at least " : "", t.dims.size()));
  const size_t lead = rank - t.dims.size();
  if (t.leading_any) {
    const Shape leading(actual.shape.begin(), actual.shape.begin() + lead);
    const auto [found, fresh] = symbols.leading.emplace(t.leading_name, leading);
    if (!fresh && found->second != leading)
      throw error_at(
          place, fmt::format("{} is {}, expected {}", who, written(actual), expected),
          fmt::format("'...{}' stands for {} elsewhere in this function", t.leading_name, written(found->second)));
  }
  for (size_t i = 0; i < t.dims.size(); ++i)
    equations.push_back({t.dims[i].get(), actual.shape[lead + i],
                         fmt::format("{} is {}, expected {}: axis {}", who, written(actual), expected, lead + i),
                         place});
}

void Elaboration::solve(std::vector<Equation>& equations, Symbols& symbols) {
  const auto check = [&](Equation& q) {
    const Dim d = written_extent(*q.written, symbols);
    if (d == q.actual) {
      q.solved = true;
      return;
    }
    const std::string text = text_of(q.written->place);
    throw error_at(q.place, text == written(d) ? fmt::format("{} is {}, not {}", q.context, written(q.actual), text)
                                               : fmt::format("{} is {}, but {} is {}", q.context, written(q.actual),
                                                             text, written(d)));
  };
  const auto open = [](const Equation& q) { return !q.solved; };
  // Symbols that are whole extents first; then products with one unknown factor.
  for (const bool products : {false, true}) {
    bool progress = true;
    while (progress && std::any_of(equations.begin(), equations.end(), open)) {
      progress = false;
      for (Equation& q : equations) {
        if (q.solved) continue;
        const auto names = unbound(*q.written, symbols);
        if (names.empty()) {
          check(q);
          progress = true;
        } else if (q.written->kind == ExprKind::name) {
          symbols.dims[names[0]] = q.actual;
          q.solved = true;
          progress = true;
        } else if (products && names.size() == 1) {
          symbols.dims[names[0]] = Dim(1);
          const auto quotient = divide(q.actual, written_extent(*q.written, symbols));
          if (!quotient)
            throw error_at(q.place, fmt::format("{} is {}, which {} cannot be for any {}", q.context, written(q.actual),
                                                text_of(q.written->place), names[0]));
          symbols.dims[names[0]] = *quotient;
          check(q);
          progress = true;
        }
      }
    }
  }
  for (const Equation& q : equations)
    if (!q.solved)
      throw error_at(
          q.written->place,
          fmt::format("the extents in '{}' cannot be inferred from the arguments", text_of(q.written->place)),
          "give each symbol an axis of its own in the type of some parameter");
}

void Elaboration::bind_symbols(const Symbols& symbols) {
  for (const auto& [name, dim] : symbols.dims) bind(name, Value::of(dim));
  for (const auto& [name, shape] : symbols.leading) {
    if (name.empty()) continue;
    Value v;
    v.kind = Value::Kind::extents;
    v.shape = shape;
    bind(name, std::move(v));
  }
}

Symbols Elaboration::match_arguments(const lang::Function& fn, std::vector<Value>& args,
                                     const std::vector<Place>& places) {
  // Numbers first: extents may be written with them.
  for (size_t i = 0; i < args.size(); ++i) {
    const lang::Param& p = fn.params[i];
    Value& v = args[i];
    if (v.is_number() && p.type) {
      const Element wanted = element_of(*p.type);
      const std::string who = fmt::format("argument '{}' of '{}'", p.name, fn.name);
      if (!p.type->dims.empty())
        throw error_at(places[i], fmt::format("{} is {}, expected {}", who, describe(v), text_of(p.type->place)),
                       "a tensor is needed: broadcast(x, [shape])");
      const bool truth = v.number.kind == Number::Kind::truth;
      if (truth != (wanted.scalar == Scalar::boolean) ||
          (v.number.kind == Number::Kind::real && !is_float(wanted.scalar)))
        throw error_at(places[i], fmt::format("{} is {}, expected {}", who, describe(v), text_of(p.type->place)));
      if (is_float(wanted.scalar)) v.number = Number::of(v.number.value());
    }
    if (v.kind == Value::Kind::dim && p.type && (element_of(*p.type).scalar != Scalar::i32 || !p.type->dims.empty()))
      throw error_at(
          places[i],
          fmt::format("argument '{}' of '{}' is {}, expected {}", p.name, fn.name, describe(v), text_of(p.type->place)),
          is_float(element_of(*p.type).scalar) ? "convert it: f32(...)" : "");
    if (!v.is_tensor()) bind(p.name, v);
  }
  Symbols symbols;
  std::vector<Equation> equations;
  for (size_t i = 0; i < args.size(); ++i) {
    const lang::Param& p = fn.params[i];
    if (!args[i].is_tensor() || !p.type) continue;
    match(*p.type, args[i].type(), symbols, places[i], fmt::format("argument '{}' of '{}'", p.name, fn.name),
          equations);
  }
  solve(equations, symbols);
  return symbols;
}

void Elaboration::check_results(const lang::Function& fn, std::vector<Value>& values, const Symbols& symbols) {
  if (fn.results.empty()) return;
  const Place place = fn.body.empty() ? fn.place : fn.body.back().place;
  if (values.size() != fn.results.size())
    throw error_at(place, fmt::format("'{}' gives {} value{}, but its type has {}", fn.name, values.size(),
                                      values.size() == 1 ? "" : "s", fn.results.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const TypeExpr& t = fn.results[i];
    Value& v = values[i];
    const Element wanted = element_of(t);
    if (!v.is_tensor()) {
      if (!t.dims.empty())
        throw error_at(place, fmt::format("'{}' gives {}, its type is {}", fn.name, describe(v), text_of(t.place)),
                       "a constant tensor is broadcast(x, [shape])");
      v = Value::of_node(graph_, node_of(v, place, wanted.scalar));
    }
    Symbols known = symbols;
    std::vector<Equation> equations;
    match(t, v.type(), known, place, fmt::format("the result of '{}'", fn.name), equations);
    for (Equation& q : equations)
      for (const std::string& name : unbound(*q.written, known))
        throw error_at(t.place, fmt::format("'{}' in the result's type is no extent of a parameter", name),
                       "use the symbols of the parameters, numbers and config keys");
    solve(equations, known);
  }
}

}  // namespace lumen::graph
