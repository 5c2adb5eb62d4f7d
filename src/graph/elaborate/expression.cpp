// Expressions of functions: names, members, subscripts, choices; see elaboration.h. Calls are in call.cpp and
// builtin.cpp.
#include <algorithm>

#include "base/check.h"
#include "base/messages/spelling.h"
#include "graph/elaborate/elaboration.h"
#include "graph/elaborate/indexed.h"
#include "lang/parser.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;

Value Elaboration::expression(const Expr& e) {
  session_.spend(e.place);
  const Deeper guard(session_, e.place);
  switch (e.kind) {
    case ExprKind::number:
      return Value::of(e.is_integer ? Number::of(e.integer) : Number::of(e.number));
    case ExprKind::string:
      return Value::of_text(e.text);
    case ExprKind::name:
      return name(e);
    case ExprKind::unary:
      return unary(e.text, expression(*e.args[0]), e.place);
    case ExprKind::binary: {
      Value a = expression(*e.args[0]);
      if (e.text == "and" || e.text == "or") {
        // A known left side decides without evaluating the right one, so that a guard can precede the expression it
        // guards.
        const bool is_and = e.text == "and";
        if (a.is_number() && a.number.kind == Number::Kind::truth && (a.number.integer != 0) != is_and) return a;
      }
      return binary(e.text, std::move(a), expression(*e.args[1]), e.place);
    }
    case ExprKind::call:
      return call(e);
    case ExprKind::index:
      return index(e);
    case ExprKind::member:
      return member(e);
    case ExprKind::list:
      throw error_at(e.place, "a list is not a value", "lists are shapes: reshape(x, [a, b])");
    case ExprKind::reduce:
      return Indexed(*this).whole(e);
    case ExprKind::choose:
      return choose(e);
    case ExprKind::slice:
    case ExprKind::range:
      break;
  }
  throw error_at(e.place, "a range is not a value");
}

// A number, a text, or a tuple of them when the key has an axis.
Value Elaboration::config_value(const lang::ConfigKey& key, const Place& place) const {
  const auto choices = choices_of(key);
  const auto scalar = scalar_from_name(key.type.name);
  const auto value = [&](const std::string& name) {
    const auto found = context_.config->find(name);
    if (found == context_.config->end())
      throw error_at(place, fmt::format("config key '{}' has no value here", name), "keys must not need each other");
    if (!choices.empty()) return Value::of_text(choices.at(static_cast<size_t>(found->second)));
    if (scalar == Scalar::boolean) return Value::of(Number::truth(found->second != 0));
    return Value::of(scalar && is_float(*scalar) ? Number::of(found->second)
                                                 : Number::of(static_cast<int64_t>(found->second)));
  };
  if (!key.type.has_dims) return value(key.name);
  Value all;
  all.kind = Value::Kind::tuple;
  for (int64_t i = 0; context_.config->contains(fmt::format("{}.{}", key.name, i)); ++i)
    all.items.push_back(value(fmt::format("{}.{}", key.name, i)));
  return all;
}

Value Elaboration::member(const Expr& e) {
  const Value base = expression(*e.args[0]);
  if (base.kind == Value::Kind::config) {
    for (const lang::ConfigKey& key : context_.model->config)
      if (key.name == e.text) return config_value(key, e.place);
    std::vector<std::string> keys;
    for (const auto& k : context_.model->config) keys.push_back(k.name);
    throw error_at(e.place, fmt::format("the config of '{}' has no key '{}'", context_.model->name, e.text),
                   did_you_mean(e.text, keys));
  }
  if (base.kind == Value::Kind::layer) {
    if (e.text == "index") return Value::of(Number::of(base.layer));
    std::vector<std::string> known = {"index"};
    for (const lang::ModelParam& p : context_.model->layer_params) {
      if (p.name == e.text) return use(parameter(p, fmt::format("layers.{}.", base.layer), base.layer), e.place);
      known.push_back(p.name);
    }
    throw error_at(e.place, fmt::format("a layer has no parameter '{}'", e.text), did_you_mean(e.text, known));
  }
  throw error_at(e.place, fmt::format("{} has no members", describe(base)),
                 "'.' is for cfg.key and, inside 'for l in layers', l.parameter");
}

Value Elaboration::choose(const Expr& e) {
  const Value c = expression(*e.args[0]);
  if (c.is_number()) {
    if (c.number.kind != Number::Kind::truth)
      throw error_at(e.args[0]->place, fmt::format("a condition is a truth value, not {}", describe(c)),
                     "compare it: x != 0");
    return expression(*e.args[c.number.integer != 0 ? 1 : 2]);
  }
  Value yes = expression(*e.args[1]);
  return select(c, std::move(yes), expression(*e.args[2]), e.place);
}

// ---- constants

Number Elaboration::constant_number(const Expr& e, std::string_view what) {
  const Value v = expression(e);
  if (v.is_number() && v.number.kind != Number::Kind::truth) return v.number;
  const std::string message =
      fmt::format("{} must be a number known when the graph is built, found {}", what, describe(v));
  if (v.is_tensor())
    throw NeedsConstant(
        Exit::user,
        render_diagnostic(e.place, message, "use a literal, a config key, or a parameter that is given a number"));
  if (v.kind == Value::Kind::dim) throw NeedsExtent(Exit::user, render_diagnostic(e.place, message, {}));
  throw error_at(e.place, message);
}

int64_t Elaboration::integer(const Expr& e, std::string_view what) {
  const Number n = constant_number(e, what);
  if (n.kind != Number::Kind::integer)
    throw error_at(e.place, fmt::format("{} must be a whole number, found {}", what, n.real));
  return n.integer;
}

Dim Elaboration::extent_of(const Value& v, const Place& place, std::string_view what) const {
  if (v.kind == Value::Kind::dim) return v.dim;
  if (v.is_integer()) {
    if (v.number.integer < 1)
      throw error_at(place, fmt::format("{} must be at least 1, found {}", what, v.number.integer));
    return Dim(v.number.integer);
  }
  const std::string message = fmt::format("{} must be known when the graph is built, found {}", what, describe(v));
  if (v.is_tensor())
    throw NeedsConstant(
        Exit::user,
        render_diagnostic(
            place, message,
            "extents are numbers, config keys, symbols, and products of them; sums of symbols are not extents"));
  throw error_at(place, message);
}

Dim Elaboration::extent(const Expr& e) {
  return extent_of(expression(e), e.place, "an extent");
}

// Whether an expression has a symbol and no value that is known only at run time.
bool Elaboration::is_of_extents(const Expr& e) const {
  if (e.kind == ExprKind::name) {
    const Value* v = find(e.text);
    return v && v->kind == Value::Kind::dim;
  }
  const auto is_known = [&](const lang::ExprPtr& a) {
    const Value* v = a->kind == ExprKind::name ? find(a->text) : nullptr;
    return a->kind == ExprKind::number || (v && v->is_number()) || is_of_extents(*a);
  };
  return e.kind == ExprKind::binary && std::all_of(e.args.begin(), e.args.end(), is_known);
}

Shape Elaboration::shape_list(const Expr& e, std::string_view what) {
  if (e.kind != ExprKind::list)
    throw error_at(e.place, fmt::format("{} is a list of extents", what), "e.g. [B, T, 64]");
  Shape out;
  for (const lang::ExprPtr& item : e.args) {
    const Value v = expression(*item);
    if (v.kind == Value::Kind::extents) {
      out.insert(out.end(), v.shape.begin(), v.shape.end());
    } else {
      out.push_back(extent_of(v, item->place, "an extent"));
    }
  }
  return out;
}

std::vector<int64_t> Elaboration::integer_list(const Expr& e, std::string_view what) {
  if (e.kind != ExprKind::list)
    throw error_at(e.place, fmt::format("{} is a list of whole numbers", what), "e.g. [1, 0, 2]");
  std::vector<int64_t> out;
  for (const lang::ExprPtr& item : e.args) out.push_back(integer(*item, what));
  return out;
}

// ---- subscripts

Value Elaboration::index(const Expr& e) {
  if (e.outside)
    throw error_at(e.outside->place, "a padding value has a meaning in index notation alone",
                   "name the indices of the result: y[i] = x[i + 1; 0]");
  return index_value(expression(*e.args[0]), e);
}

// Slices, single positions (which drop the axis), and rows of a table selected by an integer tensor.
Value Elaboration::index_value(Value base, const Expr& e) {
  if (base.kind == Value::Kind::tuple && e.args.size() == 2) {  // a config key with an axis
    const int64_t at = integer(*e.args[1], "the subscript of a list");
    if (at < 0 || at >= std::ssize(base.items))
      throw error_at(e.args[1]->place, fmt::format("{} is outside {}", at, describe(base)));
    return base.items[at];
  }
  if (!base.is_tensor()) throw error_at(e.place, fmt::format("{} has no axes to index", describe(base)));
  base = finished(plain(std::move(base), e.args[0]->place), e.place);
  const size_t rank = base.shape.size();
  const size_t given = e.args.size() - 1;
  if (given > rank)
    throw error_at(e.args[rank + 1]->place, fmt::format("{} subscripts for {}", given, written(base.type())),
                   fmt::format("it has {} {}", rank, rank == 1 ? "axis" : "axes"));
  std::vector<int64_t> starts(rank, 0);
  Shape sizes = base.shape, kept;
  std::optional<ValueId> rows;
  bool sliced = false;
  const auto position = [&](const lang::ExprPtr& s, size_t axis, int64_t otherwise) -> int64_t {
    if (!s) return otherwise;
    int64_t n = integer(*s, "the bound of a slice");
    const Dim& d = base.shape[axis];
    if (n < 0) {
      if (!d.is_number())
        throw error_at(s->place,
                       fmt::format("a bound counted from the end needs a known extent, this one is {}", written(d)));
      n += d.coefficient;
    }
    if (n < 0 || (d.is_number() && n > d.coefficient))
      throw error_at(s->place, fmt::format("{} is outside axis {} of {}", n, axis, written(base.type())));
    return n;
  };
  for (size_t axis = 0; axis < rank; ++axis) {
    const Expr* s = axis < given ? e.args[axis + 1].get() : nullptr;
    if (!s || (s->kind == ExprKind::slice && !s->args[0] && !s->args[1])) {
      kept.push_back(sizes[axis]);
      continue;
    }
    if (s->kind == ExprKind::slice) {
      const int64_t from = position(s->args[0], axis, 0);
      const Dim& whole = base.shape[axis];
      // x[0:T] over an axis of extent T is all of it, also when T is a symbol.
      std::optional<Dim> symbolic;
      if (s->args[1])
        if (const Value end = expression(*s->args[1]); end.kind == Value::Kind::dim) symbolic = end.dim;
      if (symbolic || (!s->args[1] && !whole.is_number())) {
        if (from != 0 || (symbolic && *symbolic != whole && whole.is_number()))
          throw error_at(
              s->place,
              fmt::format("this slice of an axis of extent {} has no extent that could be written", written(whole)),
              "extents are products of symbols: begin at 0");
        if (symbolic) sizes[axis] = *symbolic;
      } else {
        const int64_t to = position(s->args[1], axis, whole.is_number() ? whole.coefficient : 0);
        if (to <= from) throw error_at(s->place, fmt::format("the slice {}:{} is empty", from, to));
        sizes[axis] = Dim(to - from);
      }
      starts[axis] = from;
      sliced = sliced || sizes[axis] != whole || from != 0;
      kept.push_back(sizes[axis]);
      continue;
    }
    const Value v = expression(*s);
    if (v.is_integer()) {
      const int64_t n = position(e.args[axis + 1], axis, 0);
      if (base.shape[axis].is_number() && n >= base.shape[axis].coefficient)
        throw error_at(s->place, fmt::format("{} is outside axis {} of {}", n, axis, written(base.type())));
      starts[axis] = n;
      sizes[axis] = Dim(1);
      sliced = true;
    } else if (v.is_tensor() && !is_float(v.element.scalar) && v.element.scalar != Scalar::boolean &&
               !v.element.format) {
      if (axis != 0)
        throw error_at(s->place, "rows can only be picked along the first axis", "permute the tensor first");
      rows = node_of(v, s->place);
      kept.push_back(sizes[axis]);
    } else {
      throw error_at(
          s->place,
          fmt::format("a subscript is a whole number, a slice, or a tensor of integers, found {}", describe(v)),
          v.is_tensor() && is_float(v.element.scalar) ? "convert it: i32(...)" : "");
    }
  }
  Value out = base;
  if (sliced) {
    Node n = make(Op::slice_, {base.id}, {sizes, {}});
    n.attributes.starts = starts;
    n.attributes.strides.assign(rank, 1);
    out = Value::of_node(graph_, append(std::move(n), e.place));
  }
  out = reshape(out, kept, e.place);
  if (rows) out = Value::of_node(graph_, append(make(Op::gather_, {out.id, *rows}), e.place));
  return out;
}

}  // namespace lumen::graph
