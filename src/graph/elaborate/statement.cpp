// Statements of functions: bindings, unrolled loops, branches decided at elaboration, results; see elaboration.h.
#include <algorithm>
#include <utility>

#include "base/messages/spelling.h"
#include "graph/elaborate/elaboration.h"
#include "graph/elaborate/indexed.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;
using lang::Stmt;
using lang::StmtKind;

std::optional<std::vector<Value>> Elaboration::run(const std::vector<Stmt>& body) {
  for (const Stmt& s : body)
    if (auto result = run(s)) return result;
  return std::nullopt;
}

// Whether a label of this name would be that of a parameter: formats are assigned by both.
bool Elaboration::is_parameter_name(const std::string& name) const {
  if (!context_.model) return false;
  const auto has = [&](const std::vector<lang::ModelParam>& params) {
    return std::any_of(params.begin(), params.end(), [&](const auto& p) { return p.name == name; });
  };
  return has(label_prefix_.empty() ? context_.model->params : context_.model->layer_params);
}

// Names a value: tensors become nodes, and new nodes get the name as label.
void Elaboration::bind_let(const std::string& name, Value v, const Place& place, size_t first_fresh) {
  if (v.kind == Value::Kind::tuple)
    throw error_at(place, fmt::format("{} values for one name", v.items.size()), "take them apart: let (a, b) = ...");
  v = finished(std::move(v), place);
  if (v.is_tensor() && static_cast<size_t>(v.id) >= first_fresh && graph_[v.id].op != Op::input_)
    graph_[v.id].label = label_prefix_ + name + (is_parameter_name(name) ? ".value" : "");
  // An assignment changes the visible binding, a let makes a new one.
  bind(name, std::move(v));
}

std::optional<std::vector<Value>> Elaboration::run(const Stmt& s) {
  session_.spend(s.place);
  const size_t fresh = graph_.nodes.size();
  switch (s.kind) {
    case StmtKind::let:
    case StmtKind::var: {
      if (s.extent)
        throw error_at(s.place, "local arrays exist only in the routines of formats",
                       "a constant tensor is broadcast(0.0, [n])");
      Value v = expression(*s.value);
      if (s.names.size() == 1) {
        bind_let(s.names[0], std::move(v), s.place, fresh);
        return std::nullopt;
      }
      if (v.kind != Value::Kind::tuple || v.items.size() != s.names.size())
        throw error_at(s.place, fmt::format("{} names for {}", s.names.size(), describe(v)),
                       "the numbers of names and results must be equal");
      for (size_t i = 0; i < s.names.size(); ++i) bind_let(s.names[i], v.items[i], s.place, fresh);
      return std::nullopt;
    }
    case StmtKind::define:
    case StmtKind::assign:
      assign(s);
      return std::nullopt;
    case StmtKind::loop:
      return loop(s);
    case StmtKind::branch: {
      const Value c = expression(*s.value);
      if (!c.is_number() || c.number.kind != Number::Kind::truth) {
        const std::string message =
            fmt::format("the condition of 'if' must be known when the graph is built, found {}", describe(c));
        if (c.is_tensor())
          throw NeedsConstant(
              Exit::user, render_diagnostic(s.value->place, message, "choose between values instead: select(c, a, b)"));
        throw error_at(s.value->place, message, "compare it: x != 0");
      }
      frames_.emplace_back();
      auto result = run(c.number.integer != 0 ? s.body : s.otherwise);
      frames_.pop_back();
      return result;
    }
    case StmtKind::result: {
      std::vector<Value> values;
      for (const auto& e : s.values) {
        Value v = expression(*e);
        if (v.kind == Value::Kind::tuple && s.values.size() == 1) {
          values = v.items;
        } else {
          values.push_back(std::move(v));
        }
      }
      return values;
    }
  }
  return std::nullopt;
}

void Elaboration::assign(const Stmt& s) {
  const size_t fresh = graph_.nodes.size();
  const Expr& first = *s.targets[0];
  if (first.kind == ExprKind::index) {
    if (s.targets.size() > 1) throw error_at(first.place, "index notation defines one tensor at a time");
    if (first.args[0]->kind == ExprKind::name && find(first.args[0]->text)) {
      const bool indices = std::all_of(first.args.begin() + 1, first.args.end(),
                                       [&](const auto& a) { return a->kind == ExprKind::name && !find(a->text); });
      if (!indices)
        throw error_at(first.place,
                       fmt::format("'{}' is bound already, and tensors are not changed in place", first.args[0]->text),
                       "give the new tensor its own name; states are changed with update()");
    }
    Value v = Indexed(*this).define(s);
    bind_let(first.args[0]->text, std::move(v), s.place, fresh);
    return;
  }
  Value v = expression(*s.value);
  std::vector<Value> values = {v};
  if (s.targets.size() > 1) {
    if (v.kind != Value::Kind::tuple || v.items.size() != s.targets.size())
      throw error_at(s.place, fmt::format("{} names for {}", s.targets.size(), describe(v)),
                     "the numbers of names and results must be equal");
    values = v.items;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Expr& t = *s.targets[i];
    if (t.kind != ExprKind::name) throw error_at(t.place, "several results are taken by names");
    const auto frame =
        std::find_if(frames_.rbegin(), frames_.rend(), [&](const Frame& f) { return f.contains(t.text); });
    if (frame == frames_.rend()) {
      std::vector<std::string> near;
      for (const Frame& f : frames_)
        for (const auto& [known, unused] : f) near.push_back(known);
      throw error_at(t.place, fmt::format("'{}' is not bound, so it cannot be assigned", t.text),
                     did_you_mean(t.text, near, fmt::format("bind it first: let {} = ...", t.text)));
    }
    std::swap(*frame, frames_.back());
    bind_let(t.text, values[i], s.place, fresh);
    std::swap(*frame, frames_.back());
  }
}

std::optional<std::vector<Value>> Elaboration::loop(const Stmt& s) {
  const auto turn = [&](Value v) {
    frames_.emplace_back();
    bind(s.names[0], std::move(v));
    auto result = run(s.body);
    frames_.pop_back();
    return result;
  };
  if (!s.to) {  // for l in layers
    if (!context_.model || !context_.model->layer_count)
      throw error_at(s.from->place, "there are no layers here",
                     "'for l in layers' is only allowed in a function of a model with 'layers n { }'");
    std::vector<Frame> own(1);
    std::swap(own, frames_);
    const int64_t count = integer(*context_.model->layer_count, "the number of layers");
    std::swap(own, frames_);
    const std::string outer = label_prefix_;
    for (int64_t i = 0; i < count; ++i) {
      label_prefix_ = fmt::format("{}layers.{}.", outer, i);
      Value v;
      v.kind = Value::Kind::layer;
      v.layer = i;
      auto result = turn(std::move(v));
      if (result) return result;
    }
    label_prefix_ = outer;
    return std::nullopt;
  }
  const int64_t from = integer(*s.from, "the start of a loop"), to = integer(*s.to, "the end of a loop");
  const int64_t step = s.step ? integer(*s.step, "the step of a loop") : 1;
  if (step < 1) throw error_at(s.step->place, fmt::format("the step of a loop is at least 1, found {}", step));
  for (int64_t i = from; i < to;) {
    session_.spend(s.place);
    auto result = turn(Value::of(Number::of(i)));
    if (result) return result;
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return std::nullopt;
}

std::vector<std::optional<Dim>> Elaboration::declared_extents(const std::string& name, size_t axes) {
  std::vector<std::optional<Dim>> out(axes);
  if (!function_) return out;
  const auto is_it = [&](const lang::ExprPtr& e) { return e->kind == ExprKind::name && e->text == name; };
  const std::function<int(const std::vector<Stmt>&)> find = [&](const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      const auto at = std::find_if(s.values.begin(), s.values.end(), is_it);
      if (s.kind == StmtKind::result && at != s.values.end() && s.values.size() == function_->results.size())
        return int(at - s.values.begin());
      for (const auto* inner : {&s.body, &s.otherwise})
        if (const int found = find(*inner); found >= 0) return found;
    }
    return -1;
  };
  const int result = find(function_->body);
  if (result < 0) return out;
  const lang::TypeExpr& type = function_->results[result];
  if (type.dims.size() > axes || (type.dims.size() < axes && !type.leading_any)) return out;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    if (!unbound(*type.dims[d], {}).empty()) continue;
    try {
      out[axes - type.dims.size() + d] = extent(*type.dims[d]);
    } catch (const NeedsConstant& wrong) {
      throw NeedsExtent(Exit::user, wrong.what());
    }
  }
  return out;
}

std::vector<Value> Elaboration::body_of(const lang::Function& fn) {
  constexpr int kMaxFunctions = 64;
  if (session_.functions >= kMaxFunctions)
    throw error_at(fn.place, fmt::format("'{}' is called inside too many other functions", fn.name),
                   "a function that calls itself never ends: graphs have no recursion");
  ++session_.functions;
  const lang::Function* const outer = std::exchange(function_, &fn);
  auto result = run(fn.body);
  function_ = outer;
  --session_.functions;
  if (!result)
    throw error_at(fn.place, fmt::format("'{}' ends without a result", fn.name),
                   "its last line is the value, or 'return value'");
  return *result;
}

}  // namespace lumen::graph
