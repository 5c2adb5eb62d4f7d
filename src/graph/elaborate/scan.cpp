// scan(step, [carries], [sequences], constants ..): a function applied step after step. Proved by
// tests/graph/elaborate/scan_test.cpp.
#include <algorithm>

#include "base/messages/spelling.h"
#include "graph/elaborate/elaboration.h"
#include "graph/ir/rewrite.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;

namespace {

constexpr const char* kUsage =
    "usage: scan(step, [carries], [sequences], constants .., axis = 0, reverse = 0, chunk = function, most = 64)";
// Shorter chunks are hardly faster than their steps.
constexpr int64_t kLeastChunk = 8, kDefaultChunk = 64, kMostChunk = 4096;

// The call's arguments by kind.
struct Parts {
  std::vector<const Expr*> carries, sequences, constants;
  const Expr *axis = nullptr, *reverse = nullptr, *chunk = nullptr, *most = nullptr;
};

Parts parts_of(const Expr& e) {
  Parts parts;
  std::vector<const Expr*> plain;
  for (size_t i = 0; i < e.args.size(); ++i) {
    const std::string& name = e.names[i];
    if (name.empty()) {
      plain.push_back(e.args[i].get());
    } else if (name == "axis" || name == "reverse") {
      (name == "axis" ? parts.axis : parts.reverse) = e.args[i].get();
    } else if (name == "chunk" || name == "most") {
      (name == "chunk" ? parts.chunk : parts.most) = e.args[i].get();
    } else {
      throw error_at(e.args[i]->place, fmt::format("'scan' has no parameter '{}'", name), kUsage);
    }
  }
  if (plain.size() < 3) throw error_at(e.place, "'scan' needs a function, its carries and its sequences", kUsage);
  if (plain[0]->kind != ExprKind::name)
    throw error_at(plain[0]->place, "'scan' begins with the name of the function that is one step", kUsage);
  const auto list = [](const Expr& of, std::string_view what, std::vector<const Expr*>* out) {
    if (of.kind != ExprKind::list)
      throw error_at(of.place, fmt::format("the {} of a scan are in brackets", what), kUsage);
    for (const lang::ExprPtr& item : of.args) out->push_back(item.get());
  };
  list(*plain[1], "carries", &parts.carries);
  list(*plain[2], "sequences", &parts.sequences);
  if (parts.sequences.empty())
    throw error_at(plain[2]->place, "a scan without a sequence has no number of steps", "iota([T], 0) counts them");
  parts.constants.assign(plain.begin() + 3, plain.end());
  return parts;
}

}  // namespace

const lang::Function& Elaboration::step_function(const Expr& name, size_t arguments) {
  const lang::Function* fn = find_function(name.text, name.place);
  if (!fn) {
    std::vector<std::string> near;
    for (const lang::File* file : session_.scope.files)
      for (const lang::Function& f : file->functions) near.push_back(f.name);
    throw error_at(name.place, fmt::format("unknown function '{}'", name.text), did_you_mean(name.text, near));
  }
  if (is_of_model(*fn))
    throw error_at(name.place, fmt::format("'{}' is a function of the model, which a step cannot be", name.text),
                   "write it outside of the model, and hand it the parameters that it reads");
  for (const lang::Param& p : fn->params)
    if (p.type && p.type->is_state)
      throw error_at(name.place, fmt::format("'{}' has the state '{}'", name.text, p.name),
                     "a value that lasts from step to step is a carry");
  size_t least = 0;
  for (const lang::Param& p : fn->params) least += p.default_value ? 0 : 1;
  if (arguments < least || arguments > fn->params.size())
    throw error_at(name.place,
                   fmt::format("'{}' takes {} arguments, the scan has {} carries, sequences and constants for it",
                               name.text, fn->params.size(), arguments),
                   "its parameters are carries, then sequences, then constants");
  return *fn;
}

Value Elaboration::scan(const Expr& e) {
  const Parts parts = parts_of(e);
  const Expr& name = *e.args[0];
  const size_t carries = parts.carries.size(), sequences = parts.sequences.size();
  const lang::Function& fn = step_function(name, carries + sequences + parts.constants.size());
  const int64_t axis = parts.axis ? integer(*parts.axis, "the axis") : 0;
  std::vector<Value> args;
  std::vector<Place> places;
  std::vector<ValueId> operands;
  const auto add = [&](Value v, const Place& place) {
    if (v.is_tensor()) operands.push_back(v.id);
    args.push_back(std::move(v));
    places.push_back(place);
  };
  for (const Expr* c : parts.carries) add(Value::of_node(graph_, node_of(expression(*c), c->place)), c->place);
  Dim steps(1);
  for (const Expr* s : parts.sequences) {
    Value v = Value::of_node(graph_, node_of(expression(*s), s->place));
    if (v.shape.empty()) throw error_at(s->place, "a single number is no sequence", "a sequence has an axis of steps");
    v = with_axis_at(v, axis_of(axis, v.shape.size(), s->place), 0, s->place);
    if (s == parts.sequences[0]) steps = v.shape[0];
    if (!(v.shape[0] == steps))
      throw error_at(s->place,
                     fmt::format("this sequence has {} steps, the first has {}", written(v.shape[0]), written(steps)));
    Value one = v;
    one.shape.erase(one.shape.begin());
    add(std::move(one), s->place);
  }
  for (const Expr* c : parts.constants) {
    Value v = expression(*c);
    add(v.is_tensor() ? Value::of_node(graph_, node_of(v, c->place)) : std::move(v), c->place);
  }
  for (size_t i = args.size(); i < fn.params.size(); ++i) {
    std::vector<Frame> own(1);
    std::swap(own, frames_);
    args.push_back(expression(*fn.params[i].default_value));
    std::swap(own, frames_);
    places.push_back(e.place);
  }
  Elaboration step(session_, {});
  auto body = std::make_shared<const Graph>(step.instance(fn, args, places, e.place));
  if (body->results.size() < std::max<size_t>(carries, 1))
    throw error_at(name.place,
                   fmt::format("'{}' gives {} values for {} carries", fn.name, body->results.size(), carries),
                   "a step returns its carries for the next one, then its outputs");
  for (size_t k = 0; k < carries; ++k)
    if (const Type& next = (*body)[body->results[k]].type; next != args[k].type())
      throw error_at(places[k], fmt::format("this carry is {} before a step of '{}' and {} after it",
                                            written(args[k].type()), fn.name, written(next)));
  Node n = make(Op::scan_, std::move(operands));
  n.attributes.name = body->name;
  n.attributes.callee = body;
  n.attributes.carries = carries;
  n.attributes.sequences = sequences;
  n.attributes.reverse = parts.reverse && constant_number(*parts.reverse, "the direction").value() != 0;
  const bool reverse = n.attributes.reverse;
  ValueId id = append(std::move(n), e.place);
  for (const int64_t each : chunk_lengths(parts.chunk, parts.most, reverse)) {
    Node chunk = make(Op::chunk_, {id});
    chunk.attributes.callee = chunk_of(*parts.chunk, *body, {args, places, carries, sequences, axis}, each);
    chunk.attributes.name = chunk.attributes.callee->name;
    id = append(std::move(chunk), e.place);
  }
  Value out;
  out.kind = Value::Kind::tuple;
  for (size_t k = 0; k < body->results.size(); ++k) {
    Node r = make(Op::result_, {id});
    r.attributes.index = k;
    Value v = Value::of_node(graph_, append(std::move(r), e.place));
    if (k >= carries) v = with_axis_at(v, 0, axis_of(axis, v.shape.size(), e.place), e.place);
    out.items.push_back(std::move(v));
  }
  return out.items.size() == 1 ? out.items[0] : out;
}

// The numbers of steps of a scan's chunks, largest first.
std::vector<int64_t> Elaboration::chunk_lengths(const Expr* chunk, const Expr* most, bool reverse) {
  std::vector<int64_t> out;
  if (!chunk && most)
    throw error_at(most->place, "'most' is the largest number of steps of a chunk, and no 'chunk' is given", kUsage);
  if (!chunk) return out;
  if (chunk->kind != ExprKind::name)
    throw error_at(chunk->place, "'chunk' is the name of the function that computes several steps at once", kUsage);
  if (reverse) throw error_at(chunk->place, "a scan in reverse has no chunks", "leave out 'chunk' or 'reverse'");
  const int64_t longest = most ? integer(*most, "the largest number of steps of a chunk") : kDefaultChunk;
  if (longest < kLeastChunk || longest > kMostChunk || (longest & (longest - 1)) != 0)
    throw error_at(most->place, fmt::format("the largest number of steps of a chunk is {}", longest),
                   fmt::format("a power of two from {} to {}", kLeastChunk, kMostChunk));
  for (int64_t steps = longest; steps >= kLeastChunk; steps /= 2) out.push_back(steps);
  return out;
}

// The function that computes `steps` steps of a scan at once, with the axis of steps first in its sequences and
// outputs.
std::shared_ptr<const Graph> Elaboration::chunk_of(const Expr& name, const Graph& step, const ScanArguments& given,
                                                   int64_t steps) {
  const lang::Function& fn = step_function(name, given.values.size());
  std::vector<Value> args = given.values;
  const size_t stepped = given.carries + given.sequences;
  std::vector<int> axes;
  for (size_t i = given.carries; i < stepped; ++i) {
    axes.push_back(axis_of(given.axis, args[i].shape.size() + 1, name.place));
    args[i].shape.insert(args[i].shape.begin() + axes.back(), Dim(steps));
  }
  Elaboration inside(session_, {});
  const Graph own = inside.instance(fn, args, given.places, name.place);
  Graph chunk;
  chunk.name = fmt::format("{}.{}", own.name, steps);
  Builder b(chunk);
  const auto moved = [&](ValueId v, int from, int to) {
    std::vector<int> order;
    for (int d = 0; d < std::ssize(b.type(v).shape); ++d)
      if (d != from) order.push_back(d);
    order.insert(order.begin() + to, from);
    return from == to ? v : b.permute(v, std::move(order));
  };
  std::vector<ValueId> inputs;
  for (const ValueId v : own.inputs()) {
    Type type = own[v].type;
    const size_t i = inputs.size();
    if (i >= given.carries && i < stepped) {
      const int at = axes[i - given.carries];
      type.shape.erase(type.shape.begin() + at);
      type.shape.insert(type.shape.begin(), Dim(steps));
    }
    inputs.push_back(b.input(own[v].attributes.name, Role::data, type));
  }
  for (size_t i = given.carries; i < stepped; ++i) inputs[i] = moved(inputs[i], 0, axes[i - given.carries]);
  chunk.results = expand_call(chunk, own, inputs);
  chunk.result_names = own.result_names;
  if (chunk.results.size() != step.results.size())
    throw error_at(name.place,
                   fmt::format("'{}' gives {} values, a step of '{}' gives {}", fn.name, chunk.results.size(),
                               step.name, step.results.size()),
                   "a chunk returns the carries after its steps, then its outputs");
  for (size_t k = 0; k < chunk.results.size(); ++k) {
    Type wanted = step[step.results[k]].type;
    if (k >= given.carries) {
      const int at = axis_of(given.axis, wanted.shape.size() + 1, name.place);
      wanted.shape.insert(wanted.shape.begin() + at, Dim(steps));
    }
    if (const Type& made = b.type(chunk.results[k]); made != wanted)
      throw error_at(name.place,
                     fmt::format("value {} of '{}' is {} for {} steps, and should be {}", k + 1, fn.name, written(made),
                                 steps, written(wanted)),
                     "it is the step's value, with an axis of steps in outputs");
    if (k >= given.carries)
      chunk.results[k] = moved(chunk.results[k], axis_of(given.axis, wanted.shape.size(), name.place), 0);
  }
  return std::make_shared<const Graph>(std::move(chunk));
}

// The tensor with one axis moved.
Value Elaboration::with_axis_at(const Value& v, int from, int to, const Place& place) {
  if (from == to) return v;
  Node n = make(Op::permute_, {v.id});
  for (int d = 0; d < std::ssize(v.shape); ++d)
    if (d != from) n.attributes.axes.push_back(d);
  n.attributes.axes.insert(n.attributes.axes.begin() + to, from);
  return Value::of_node(graph_, append(std::move(n), place));
}

}  // namespace lumen::graph
