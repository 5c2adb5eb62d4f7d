// Nodes, names and parameters; see elaboration.h.
#include "graph/elaborate/elaboration.h"

#include <algorithm>

#include "base/messages/spelling.h"

namespace lumen::graph {
namespace {

constexpr int64_t kMaxWork = 3'000'000;  // eighty layers with rotations of sixty-four pairs need four hundred thousand
constexpr size_t kMaxNodes = 1 << 20;

// The same formula with its inputs first, the conventional order.
Formula inputs_first(const Formula& f) {
  Formula out;
  out.inputs = f.inputs;
  for (size_t i = 0; i < f.inputs.size(); ++i) out.input(i);
  std::vector<int> moved(f.nodes.size(), -1);
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    ScalarNode n = f.nodes[i];
    if (n.op == ScalarOp::input) {
      moved[i] = out.input(n.index);
      continue;
    }
    for (int& a : n.args)
      if (a >= 0) a = moved[a];
    if (scalar_op_info(n.op).commutative && n.args[0] > n.args[1]) std::swap(n.args[0], n.args[1]);
    moved[i] = out.nodes.size();
    out.nodes.push_back(n);
  }
  for (int o : f.outputs) out.outputs.push_back(moved[o]);
  return out;
}

}  // namespace

void Session::spend(const Place& place) {
  if (++work > kMaxWork)
    throw error_at(place, "this program unrolls into too many operations",
                   "loops are unrolled while the graph is built: make them shorter");
}

Elaboration::Deeper::Deeper(Session& s, const Place& place) : session_(s) {
  constexpr int kMaxExpressions = 1000;
  if (++session_.expressions <= kMaxExpressions) return;
  --session_.expressions;
  throw error_at(place, "expressions and functions are nested too deeply here",
                 "a function that calls itself never ends: graphs have no recursion");
}

Node Elaboration::make(Op op, std::vector<ValueId> operands, Type type) const {
  Node n{op, std::move(type), std::move(operands), {}, {}};
  return n;
}

ValueId Elaboration::append(Node node, const Place& place) {
  if (graph_.nodes.size() >= kMaxNodes) throw error_at(place, "this program builds too many operations");
  Type type = node.type;
  const std::string wrong = infer_type(graph_, node, &type);
  if (!wrong.empty()) throw error_at(place, wrong);
  node.type = std::move(type);
  if (node.label.empty() && !label_prefix_.empty() && node.op == Op::call_)
    node.label = label_prefix_ + node.attributes.name;
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.size() - 1;
}

Value Elaboration::use(const Value& v, const Place& place) {
  const auto check = [&](ValueId id) {
    if (newer_.contains(id))
      throw error_at(place, "this is the state's value before its update",
                     "read the result of update(): 'cache = update(cache, ...)'");
  };
  if (v.is_tensor() && v.id >= 0) check(v.id);
  if (v.is_pending())
    for (ValueId id : v.operands) check(id);
  return v;
}

Value Elaboration::finished(Value v, const Place& place) {
  if (!v.is_pending()) return v;
  use(v, place);
  // A formula that only returns its operand is that operand.
  if (v.operands.size() == 1 && v.formula.nodes[v.formula.outputs[0]].op == ScalarOp::input)
    return Value::of_node(graph_, v.operands[0]);
  Node n = make(Op::map_, v.operands);
  n.attributes.formula = inputs_first(v.formula);
  return Value::of_node(graph_, append(std::move(n), place));
}

Value Elaboration::plain(Value v, const Place& place) {
  if (!v.is_tensor()) return v;
  use(v, place);
  if (!v.element.format) return v;
  const auto known = decoded_.find(v.id);
  if (known != decoded_.end()) return Value::of_node(graph_, known->second);
  const ValueId cast = append(make(Op::cast_, {v.id}, {v.shape, {Scalar::f32, nullptr}}), place);
  decoded_[v.id] = cast;
  return Value::of_node(graph_, cast);
}

ValueId Elaboration::constant(Number n, Scalar type, const Place& place) {
  Node node = make(Op::constant_, {}, {{}, {type, nullptr}});
  node.attributes.data = {is_float(type) ? round_to_scalar(type, n.value()) : n.value()};
  return append(std::move(node), place);
}

ValueId Elaboration::count(const Dim& d, const Place& place) {
  std::string key = written(d);
  if (const auto known = counts_.find(key); known != counts_.end()) return known->second;
  // The number of elements of a vector of ones: exact in integers, and foldable once the symbol is bound.
  Node ones = make(Op::constant_, {}, {{d}, {Scalar::i32, nullptr}});
  ones.attributes.data = {1};
  Node sum = make(Op::reduce_, {append(std::move(ones), place)});
  sum.attributes.axes = {0};
  const ValueId id = append(make(Op::reshape_, {append(std::move(sum), place)}, {{}, {Scalar::i32, nullptr}}), place);
  counts_[key] = id;
  return id;
}

ValueId Elaboration::node_of(const Value& v, const Place& place, std::optional<Scalar> wanted) {
  switch (v.kind) {
    case Value::Kind::tensor: {
      const Value done = finished(plain(v, place), place);
      if (wanted && done.element.scalar != *wanted)
        throw error_at(place,
                       fmt::format("expected elements of {}, found {}", scalar_name(*wanted), written(done.type())),
                       fmt::format("convert it: {}(...)", scalar_name(*wanted)));
      return done.id;
    }
    case Value::Kind::number: {
      const Scalar natural = v.number.kind == Number::Kind::real    ? Scalar::f32
                             : v.number.kind == Number::Kind::truth ? Scalar::boolean
                                                                    : Scalar::i32;
      if (wanted && (*wanted == Scalar::boolean) != (natural == Scalar::boolean))
        throw error_at(place, fmt::format("expected {}, found {}", scalar_name(*wanted), describe(v)));
      if (wanted && !is_float(*wanted) && natural == Scalar::f32)
        throw error_at(place, fmt::format("expected {}, found {}", scalar_name(*wanted), describe(v)),
                       "write a whole number");
      return constant(v.number, wanted.value_or(natural), place);
    }
    case Value::Kind::dim: {
      const ValueId id = count(v.dim, place);
      if (!wanted || *wanted == Scalar::i32) return id;
      return node_of(convert(Value::of_node(graph_, id), *wanted, place), place);
    }
    default:
      throw error_at(place, fmt::format("expected a tensor, found {}", describe(v)));
  }
}

Value Elaboration::reshape(const Value& v, Shape shape, const Place& place) {
  const ValueId id = node_of(v, place);
  if (graph_[id].type.shape == shape) return Value::of_node(graph_, id);
  return Value::of_node(graph_, append(make(Op::reshape_, {id}, {std::move(shape), {}}), place));
}

// ---- names

const Value* Elaboration::find(const std::string& name) const {
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame)
    if (const auto found = frame->find(name); found != frame->end()) return &found->second;
  return nullptr;
}

Value Elaboration::name(const lang::Expr& e) {
  if (const Value* v = find(e.text)) return use(*v, e.place);
  if (context_.model) {
    if (e.text == "cfg") {
      Value v;
      v.kind = Value::Kind::config;
      return v;
    }
    for (const lang::ModelParam& p : context_.model->params)
      if (p.name == e.text) return use(parameter(p, "", {}), e.place);
  }
  for (const lang::File* file : session_.scope.files)
    for (const lang::Table& t : file->tables)
      if (t.name == e.text) return table(t, e.place);
  unknown_name(e.text, e.place);
}

void Elaboration::unknown_name(const std::string& name, const Place& place) const {
  std::vector<std::string> near;
  for (const Frame& f : frames_)
    for (const auto& [known, unused] : f) near.push_back(known);
  if (context_.model) {
    near.push_back("cfg");
    for (const lang::ModelParam& p : context_.model->params) near.push_back(p.name);
    for (const lang::ModelParam& p : context_.model->layer_params)
      if (p.name == name)
        throw error_at(place, fmt::format("'{}' is a parameter of a layer", name),
                       fmt::format("inside 'for l in layers {{ }}' it is written 'l.{}'", name));
    for (const lang::ConfigKey& k : context_.model->config)
      if (k.name == name)
        throw error_at(place, fmt::format("unknown name '{}'", name),
                       fmt::format("the config key is written 'cfg.{}'", name));
  }
  for (const lang::File* file : session_.scope.files)
    for (const lang::Table& t : file->tables) near.push_back(t.name);
  if (is_builtin(name) || find_function(name, place))
    throw error_at(place, fmt::format("'{}' is a function, not a value", name), fmt::format("call it: {}(...)", name));
  throw error_at(place, fmt::format("unknown name '{}'", name), did_you_mean(name, near));
}

Value Elaboration::table(const lang::Table& t, const Place& place) {
  if (const auto known = tables_.find(t.name); known != tables_.end()) return Value::of_node(graph_, known->second);
  const auto scalar = scalar_from_name(t.type.name);
  if (!scalar)
    throw error_at(t.type.place, fmt::format("a table holds numbers of a scalar type, not '{}'", t.type.name),
                   "e.g. f32 or i32");
  Node n = make(Op::constant_, {}, {{Dim(std::ssize(t.values))}, {*scalar, nullptr}});
  for (const lang::ExprPtr& e : t.values) {
    const double value = constant_number(*e, "a table's value").value();
    n.attributes.data.push_back(is_float(*scalar) ? round_to_scalar(*scalar, value) : value);
  }
  const ValueId id = append(std::move(n), place);
  tables_[t.name] = id;
  return Value::of_node(graph_, id);
}

Value Elaboration::parameter(const lang::ModelParam& p, const std::string& prefix, std::optional<int64_t> layer) {
  const std::string full = prefix + p.name;
  if (const auto known = parameters_.find(full); known != parameters_.end()) {
    // After an update the name refers to the newest value.
    ValueId id = known->second;
    while (newer_.contains(id)) id = newer_[id];
    return Value::of_node(graph_, id);
  }
  check_present(p, full, layer);
  Type type = parameter_type(p, layer);
  if (graph_.find_input(full) >= 0)
    throw error_at(p.place,
                   fmt::format("'{}' is both a parameter of the model and a value handed to the function", full),
                   "rename one of them");
  Node n = make(Op::input_, {}, std::move(type));
  n.attributes.name = full;
  n.attributes.role = p.type.is_state ? Role::state : Role::parameter;
  const ValueId id = append(std::move(n), p.place);
  parameters_[full] = id;
  return Value::of_node(graph_, id);
}

// A parameter that the config excludes has no values: a function that reads it would compute with nothing.
void Elaboration::check_present(const lang::ModelParam& p, const std::string& full, std::optional<int64_t> layer) {
  if (Elaboration(session_, context_).is_present(p, layer)) return;  // without the values of the function
  for (const lang::Attribute& a : p.attributes)
    if (a.name == "absent_says" && a.values.size() == 1) throw user_error("{}", a.values[0]->text);
  throw error_at(
      p.place, fmt::format("a function reads the parameter '{}', which a model with this config does not have", full),
      "its condition 'when' is false in this config: read it only where the condition holds ('if .. { .. }')");
}

bool Elaboration::is_present(const lang::ModelParam& p, std::optional<int64_t> layer) {
  std::map<std::string, int64_t> bound;
  if (layer) bound["i"] = *layer;
  for (const lang::Attribute& a : p.attributes) {
    if (a.name != "when") continue;
    if (a.values.size() != 1) throw error_at(a.place, "'when' needs one condition", "e.g. when (cfg.bias != 0)");
    if (number(*a.values[0], "the condition of 'when'", bound).value() == 0) return false;
  }
  return true;
}

// The shape may use the config, and the layer's number as `i`, but no values of the function.
Type Elaboration::parameter_type(const lang::ModelParam& p, std::optional<int64_t> layer) {
  std::vector<Frame> own(1);
  std::swap(own, frames_);
  if (layer) bind("i", Value::of(Number::of(*layer)));
  Symbols symbols;
  Type type = written_type(p.type, symbols);
  std::swap(own, frames_);
  if (!symbols.dims.empty() || !symbols.leading.empty())
    throw error_at(p.type.place, fmt::format("the shape of parameter '{}' is not known from the config", p.name),
                   symbols.dims.empty() ? "write each extent"
                                        : fmt::format("'{}' is no config key: those are written 'cfg.hidden'",
                                                      symbols.dims.begin()->first));
  return type;
}

Value Elaboration::constant_value(const lang::Expr& e, const std::map<std::string, int64_t>& bound) {
  frames_.emplace_back();
  for (const auto& [name, value] : bound) bind(name, Value::of(Number::of(value)));
  Value v = expression(e);
  frames_.pop_back();
  return v;
}

Number Elaboration::number(const lang::Expr& e, std::string_view what, const std::map<std::string, int64_t>& bound) {
  const Value v = constant_value(e, bound);
  if (!v.is_number()) throw error_at(e.place, fmt::format("{} must be a number, found {}", what, describe(v)));
  return v.number;
}

// Inputs come first, in the order they were made: data before parameters.
Graph Elaboration::in_order(std::vector<ValueId> results, std::vector<std::string> names) {
  Graph out;
  out.name = graph_.name;
  std::vector<ValueId> moved(graph_.nodes.size(), -1);
  for (const bool inputs : {true, false})
    for (size_t v = 0; v < graph_.nodes.size(); ++v) {
      if ((graph_.nodes[v].op == Op::input_) != inputs) continue;
      Node n = std::move(graph_.nodes[v]);
      for (ValueId& o : n.operands) o = moved[o];
      moved[v] = out.nodes.size();
      out.nodes.push_back(std::move(n));
    }
  for (ValueId r : results) out.results.push_back(moved[r]);
  out.result_names = std::move(names);
  return out;
}

}  // namespace lumen::graph
