#include "run/engine/verify/trial/determinism.h"

#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {
namespace {

using graph::Builder;
using graph::Role;
using graph::ValueId;

// Table look-up, a layer, a loss; gradients of both weights, scattered and summed, and an update.
Trial step_trial() {
  Trial t{.what = "determinism: a training step"};
  t.options.products = Scalar::bf16;
  t.table = 57;
  Builder b(t.graph);
  const auto type = [](int64_t rows, int64_t columns) { return graph::Type{{rows, columns}, {}}; };
  const ValueId table = b.input("table", Role::state, type(t.table, 96)), w = b.input("w", Role::state, type(200, 96));
  const ValueId index = b.input("index", Role::data, {{graph::Dim(300)}, {Scalar::i32, nullptr}});
  const ValueId y = b.contract(b.gather(table, index), w, "mk", "nk", "mn");
  const ValueId e = b.unary(ScalarOp::exp_, b.sub(y, b.reduce(y, graph::Reduction::max, {1})));
  const ValueId rows = b.unary(ScalarOp::log_, b.reduce(e, graph::Reduction::sum, {1}));
  const ValueId loss = b.reshape(b.reduce(rows, graph::Reduction::sum, {0, 1}), {});
  const std::vector<ValueId> gradients = graph::differentiate(t.graph, loss, {table, w});
  const auto stepped = [&](ValueId of, ValueId by) { return b.update(of, b.sub(of, b.mul(by, b.scalar(0.0078125)))); };
  t.graph.results = {stepped(table, gradients[0]), stepped(w, gradients[1])};
  t.graph.result_names = {"table after", "w after"};
  t.numbers = {{"table", TrialNumbers::normal}, {"w", TrialNumbers::normal}, {"index", TrialNumbers::indices}};
  t.runs = 3;
  return t;
}

}  // namespace

Determinism prove_determinism(const CompileContext& context, const CompileContext* alone) {
  const Trial step = step_trial();
  const auto first = outcome_of(context, step), second = outcome_of(context, step);
  size_t bytes = 0;
  for (const auto& one : first) bytes += one.size();
  if (first != second) return {kVaries, fmt::format("{} bytes of a step differ when it is run again", bytes)};
  if (!alone) return {kSameDevice, fmt::format("{} bytes of a step, twice the same", bytes)};
  if (outcome_of(*alone, step) != first)
    return {kSameDevice, fmt::format("{} bytes of a step, twice the same, but not with one thread", bytes)};
  return {kAnyThreads, fmt::format("{} bytes of a step, twice the same, and with one thread", bytes)};
}

}  // namespace lumen::run
