// Calls of functions: found by name, checked, then a `call` node of an instance for the argument types, or the inlined
// body.
#include <algorithm>

#include "base/messages/spelling.h"
#include "base/ordinal.h"
#include "graph/elaborate/elaboration.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;

namespace {

std::string signature(const lang::Function& fn) {
  std::string s = fn.name + "(";
  for (size_t i = 0; i < fn.params.size(); ++i) {
    const Place& p = fn.params[i].place;
    s += (i > 0 ? ", " : "") + (p.source ? p.source->text.substr(p.begin, p.end - p.begin) : fn.params[i].name);
  }
  return s + ")";
}

}  // namespace

bool Elaboration::is_of_model(const lang::Function& fn) const {
  if (!context_.model) return false;
  const auto& own = context_.model->functions;
  return std::any_of(own.begin(), own.end(), [&](const lang::Function& f) { return &f == &fn; });
}

// The model's own functions, then those of the same file, then all others in scope.
const lang::Function* Elaboration::find_function(const std::string& name, const Place& from) const {
  if (context_.model)
    for (const lang::Function& f : context_.model->functions)
      if (f.name == name) return &f;
  for (const bool same : {true, false})
    for (const lang::File* file : session_.scope.files) {
      if ((file->source == from.source) != same) continue;
      for (const lang::Function& f : file->functions)
        if (f.name == name) return &f;
    }
  return nullptr;
}

// One result, an expression of elementwise operations over the parameters.
bool Elaboration::is_elementwise(const lang::Function& fn) const {
  // While a function is being checked it counts as not elementwise, so recursive functions are not elementwise.
  const auto [known, fresh] = session_.elementwise.emplace(&fn, false);
  constexpr int kDeepest = 32;
  if (!fresh || session_.looking_at >= kDeepest) return known->second;
  if (is_of_model(fn) || fn.body.size() != 1 || fn.body[0].kind != lang::StmtKind::result ||
      fn.body[0].values.size() != 1)
    return false;
  const std::function<bool(const Expr&, int)> simple = [&](const Expr& e, int depth) {
    if (depth > 64) return false;
    switch (e.kind) {
      case ExprKind::number:
        return true;
      case ExprKind::name:
        return std::any_of(fn.params.begin(), fn.params.end(), [&](const lang::Param& p) { return p.name == e.text; });
      case ExprKind::call: {
        const lang::Function* inner = is_builtin(e.text) ? nullptr : find_function(e.text, e.place);
        if (e.args.empty()) return false;
        if (!inner && !is_elementwise_builtin(e.text) && !scalar_from_name(e.text)) return false;
        if (inner && !is_elementwise(*inner)) return false;
        break;
      }
      case ExprKind::unary:
      case ExprKind::binary:
      case ExprKind::choose:
        break;
      default:
        return false;
    }
    return std::all_of(e.args.begin(), e.args.end(), [&](const auto& a) { return simple(*a, depth + 1); });
  };
  const bool typed = std::all_of(fn.params.begin(), fn.params.end(), [](const lang::Param& p) {
    return p.type && p.type->dims.empty() && !p.type->is_state;
  });
  ++session_.looking_at;
  const bool answer = typed && simple(*fn.body[0].values[0], 0);
  --session_.looking_at;
  session_.elementwise[&fn] = answer;
  return answer;
}

Value Elaboration::call(const Expr& e) {
  if (find(e.text))
    throw error_at(e.place, fmt::format("'{}' is a value here, not a function", e.text),
                   "choose another name for the value");
  if (is_builtin(e.text)) {
    if (e.args.empty()) throw error_at(e.place, fmt::format("'{}' needs arguments", e.text));
    return builtin(e);
  }
  if (const lang::Function* fn = find_function(e.text, e.place)) {
    std::vector<Value> args = arguments(*fn, e, [&](const Expr& a) { return expression(a); });
    return invoke(*fn, std::move(args), e);
  }
  if (session_.scope.formats)
    if (FormatRef f = session_.scope.formats->find(e.text)) {
      if (e.args.size() != 1 || !e.names[0].empty())
        throw error_at(e.place, fmt::format("a conversion takes one value: {}(x)", e.text));
      const ValueId x = node_of(expression(*e.args[0]), e.args[0]->place, Scalar::f32);
      return Value::of_node(graph_, append(make(Op::cast_, {x}, {graph_[x].type.shape, {Scalar::f32, f}}), e.place));
    }
  std::vector<std::string> near = builtin_names();
  if (context_.model)
    for (const lang::Function& f : context_.model->functions) near.push_back(f.name);
  for (const lang::File* file : session_.scope.files)
    for (const lang::Function& f : file->functions) near.push_back(f.name);
  throw error_at(e.place, fmt::format("unknown function '{}'", e.text), did_you_mean(e.text, near));
}

// Arguments in the order of the parameters; missing ones take their defaults.
std::vector<Value> Elaboration::arguments(const lang::Function& fn, const Expr& e,
                                          const std::function<Value(const Expr&)>& evaluate) {
  const std::string usage = fmt::format("it is declared {}", signature(fn));
  std::vector<const Expr*> given(fn.params.size(), nullptr);
  for (size_t i = 0; i < e.args.size(); ++i) {
    size_t at = i;
    if (!e.names[i].empty()) {
      const auto p =
          std::find_if(fn.params.begin(), fn.params.end(), [&](const lang::Param& q) { return q.name == e.names[i]; });
      if (p == fn.params.end()) {
        std::vector<std::string> near;
        for (const lang::Param& q : fn.params) near.push_back(q.name);
        throw error_at(e.args[i]->place, fmt::format("'{}' has no parameter '{}'", fn.name, e.names[i]),
                       did_you_mean(e.names[i], near, usage));
      }
      at = p - fn.params.begin();
    }
    if (at >= given.size())
      throw error_at(e.place, fmt::format("'{}' takes {} arguments, not {}", fn.name, fn.params.size(), e.args.size()),
                     usage);
    if (given[at]) throw error_at(e.args[i]->place, fmt::format("argument '{}' is given twice", fn.params[at].name));
    given[at] = e.args[i].get();
  }
  std::vector<Value> out;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i]) {
      out.push_back(evaluate(*given[i]));
    } else if (fn.params[i].default_value) {
      std::vector<Frame> own(1);
      std::swap(own, frames_);
      out.push_back(expression(*fn.params[i].default_value));
      std::swap(own, frames_);
    } else {
      throw error_at(e.place, fmt::format("'{}' needs an argument for '{}'", fn.name, fn.params[i].name), usage);
    }
  }
  return out;
}

Value Elaboration::invoke(const lang::Function& fn, std::vector<Value> args, const Expr& e) {
  bool in_place = is_of_model(fn) || is_elementwise(fn);
  bool tensors = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto& type = fn.params[i].type;
    in_place = in_place || !type || type->is_state ||
               (!args[i].is_tensor() && !args[i].is_number() && args[i].kind != Value::Kind::dim);
    tensors = tensors || args[i].is_tensor();
  }
  if (in_place || !tensors) return inlined(fn, std::move(args), e);

  std::string key = fmt::format("{}@{}", fn.name, static_cast<const void*>(&fn));
  std::vector<Place> places;
  std::vector<ValueId> operands;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto given = std::find(e.names.begin(), e.names.end(), fn.params[i].name);
    const size_t at = given != e.names.end() ? static_cast<size_t>(given - e.names.begin()) : i;
    places.push_back(at < e.args.size() ? e.args[at]->place : e.place);
    if (args[i].is_tensor()) {
      args[i] = Value::of_node(graph_, node_of(args[i], places[i]));
      operands.push_back(args[i].id);
      key += "|" + written(args[i].type());
    } else if (args[i].is_number()) {
      key += fmt::format("|{}:{}:{}", ordinal(args[i].number.kind), args[i].number.integer, args[i].number.real);
    } else {
      key += "|dim " + written(args[i].dim);
    }
  }
  auto& cached = session_.instances[key];
  if (!cached) {
    Elaboration callee(session_, {});
    auto graph = std::make_shared<Graph>(callee.instance(fn, args, places, e.place));
    session_.instances[key] = std::move(graph);
  }
  const std::shared_ptr<const Graph> callee = session_.instances[key];
  Node n = make(Op::call_, std::move(operands));
  n.attributes.name = callee->name;
  n.attributes.callee = callee;
  const ValueId id = append(std::move(n), e.place);
  if (callee->results.size() == 1) return Value::of_node(graph_, id);
  Value out;
  out.kind = Value::Kind::tuple;
  for (size_t i = 0; i < callee->results.size(); ++i) {
    Node r = make(Op::result_, {id});
    r.attributes.index = i;
    out.items.push_back(Value::of_node(graph_, append(std::move(r), e.place)));
  }
  return out;
}

Value Elaboration::inlined(const lang::Function& fn, std::vector<Value> args, const Expr& e, bool checked) {
  const std::vector<Place> places(args.size(), e.place);
  std::vector<Frame> own(1);
  ModelContext context = is_of_model(fn) ? context_ : ModelContext{};
  std::swap(own, frames_);
  std::swap(context, context_);
  Symbols symbols;
  for (size_t i = 0; i < args.size(); ++i) args[i] = use(args[i], e.place);
  if (checked) symbols = match_arguments(fn, args, places);
  bind_symbols(symbols);
  const bool keep = is_elementwise(fn);
  for (size_t i = 0; i < args.size(); ++i) bind(fn.params[i].name, keep ? args[i] : finished(args[i], e.place));
  std::vector<Value> results = body_of(fn);
  if (!keep)
    for (Value& v : results) v = finished(std::move(v), e.place);
  if (checked) check_results(fn, results, symbols);
  std::swap(own, frames_);
  std::swap(context, context_);
  if (results.size() == 1) return results[0];
  Value out;
  out.kind = Value::Kind::tuple;
  out.items = std::move(results);
  return out;
}

// ---- whole graphs

Graph Elaboration::finish(const lang::Function& fn, std::vector<Value> values, const Symbols& symbols) {
  const Place place = fn.body.back().place;
  check_results(fn, values, symbols);
  std::vector<ValueId> ids;
  std::vector<std::string> names;
  const lang::Stmt& last = fn.body.back();
  for (size_t i = 0; i < values.size(); ++i) {
    ids.push_back(node_of(values[i], place));
    // A result that is a name is named so.
    std::string name;
    if (last.kind == lang::StmtKind::result && last.values.size() == values.size() &&
        last.values[i]->kind == ExprKind::name)
      name = last.values[i]->text;
    if (std::find(names.begin(), names.end(), name) != names.end()) name.clear();
    names.push_back(std::move(name));
  }
  for (ValueId id : ids)
    if (newer_.contains(id))
      throw error_at(place, "this result is a state's value before its update", "return the result of update()");
  return in_order(std::move(ids), std::move(names));
}

Number Elaboration::number_of_call(const lang::Function& fn, const std::vector<Number>& arguments) {
  Expr call;
  call.kind = ExprKind::call;
  call.place = fn.place;
  call.text = fn.name;
  if (arguments.size() != fn.params.size())
    throw error_at(fn.place,
                   fmt::format("'{}' takes {} arguments, not {}", fn.name, fn.params.size(), arguments.size()));
  std::vector<Value> values;
  for (const Number& n : arguments) values.push_back(Value::of(n));
  const Value v = inlined(fn, std::move(values), call);
  if (!v.is_number())
    throw error_at(fn.place, fmt::format("'{}' must give a number, it gives {}", fn.name, describe(v)));
  return v.number;
}

Graph Elaboration::standalone(const lang::Function& fn, const std::map<std::string, Type>& given) {
  graph_.name = fn.name;
  session_.graph_names.insert(fn.name);
  frames_.assign(1, {});
  const auto built_in = [](const lang::Param& p) {
    return p.type && !p.type->has_dims && p.default_value && !p.type->is_state;
  };
  for (const lang::Param& p : fn.params) {
    if (!p.type)
      throw error_at(p.place, fmt::format("parameter '{}' of '{}' has no type", p.name, fn.name),
                     "a graph needs the types of its inputs: x: f32[B, T]");
    if (!built_in(p)) continue;
    std::vector<Value> value = {expression(*p.default_value)};
    lang::Function one;
    one.name = fn.name;
    one.params = {p};
    match_arguments(one, value, {p.place});
    bind(p.name, value[0]);
  }
  Symbols symbols;
  std::vector<Equation> equations;
  for (const lang::Param& p : fn.params)
    if (const auto type = given.find(p.name); type != given.end())
      match(*p.type, type->second, symbols, p.place, fmt::format("'{}' of '{}'", p.name, fn.name), equations);
  solve(equations, symbols);
  for (const lang::Param& p : fn.params) {
    if (built_in(p)) continue;
    const auto type = given.find(p.name);
    Node n = make(Op::input_, {}, type != given.end() ? type->second : written_type(*p.type, symbols));
    n.attributes.name = p.name;
    n.attributes.role = p.type->is_state ? Role::state : Role::data;
    const ValueId id = append(std::move(n), p.place);
    bind(p.name, Value::of_node(graph_, id));
  }
  for (const auto& [name, dim] : symbols.dims)
    for (const lang::Param& p : fn.params)
      if (p.name == name)
        throw error_at(p.place, fmt::format("'{}' is both a parameter and an extent", name),
                       "give a parameter used in shapes a default, or rename one of them");
  bind_symbols(symbols);
  return finish(fn, body_of(fn), symbols);
}

Graph Elaboration::instance(const lang::Function& fn, const std::vector<Value>& arguments,
                            const std::vector<Place>& places, const Place& call_place) {
  graph_.name = fn.name;
  for (int n = 2; !session_.graph_names.insert(graph_.name).second; ++n) graph_.name = fmt::format("{}.{}", fn.name, n);
  label_prefix_ = fn.name + ".";
  frames_.assign(1, {});
  std::vector<Value> args = arguments;
  const Symbols symbols = match_arguments(fn, args, places);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].is_tensor()) continue;
    Node n = make(Op::input_, {}, args[i].type());
    n.attributes.name = fn.params[i].name;
    bind(fn.params[i].name, Value::of_node(graph_, append(std::move(n), call_place)));
  }
  bind_symbols(symbols);
  return finish(fn, body_of(fn), symbols);
}

}  // namespace lumen::graph
