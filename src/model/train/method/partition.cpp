// Tensor parallelism of a method: which tensors are split among ranks, and the graphs of one rank.
#include <algorithm>

#include "base/error.h"
#include "graph/pass/pass.h"
#include "model/train/method/method.h"

namespace lumen::model::train {
namespace {

// Inlines calls, so that each use names its parameter directly, and merges common subexpressions.
graph::Graph plain(graph::Graph g) {
  graph::inline_calls(g);
  graph::simplify(g);
  return g;
}

}  // namespace

void Method::partition_tensors() {
  // Trained parameters, and frozen weights under an adapter.
  const auto may_split = [&](const std::string& name) {
    return (is_frozen() && model_.find(name) != nullptr) ||
           std::any_of(trained_.begin(), trained_.end(), [&](const arch::Parameter& p) { return p.name == name; });
  };
  graph::TensorSplit found = graph::find_partition(plain(loss_), recipe_.tensor_parallel, may_split);
  for (const arch::Parameter& p : trained_) {
    const auto split = found.inputs.find(p.name);
    if (split == found.inputs.end()) continue;
    const graph::Split own = split->second;
    found.inputs[recipe::kGradient + p.name] = own;
    found.inputs[recipe::average_of(p.name)] = own;
    for (const recipe::Optimizer::State& s : optimizer_.states(p))
      if (s.type.shape == p.shape) found.inputs[recipe::optimizer_state(s.name, p.name)] = own;
  }
  found.sequence = recipe_.sequence_parallel;
  const int ranks = found.ranks;
  if (found.sequence && !graph::tokens_axis({graph::Dim(recipe_.batch), graph::Dim(recipe_.length)}, ranks))
    throw Error(Exit::usage,
                fmt::format("--sequence-parallel: {} ranks divide neither a batch of {} nor {} tokens", ranks,
                            recipe_.batch, recipe_.length),
                "--batch, of each group of ranks, or --length is a multiple of --tensor-parallel");
  partition_ = std::move(found);
}

std::vector<arch::Parameter> Method::trained_here() const {
  std::vector<arch::Parameter> out = trained_;
  if (!partition_) return out;
  for (arch::Parameter& p : out)
    if (const auto split = partition_->inputs.find(p.name); split != partition_->inputs.end())
      p.shape = graph::local_shape(p.shape, split->second, partition_->ranks);
  return out;
}

// Sums of squares of each rank's part are read only when numbers break, and are added up then.
Method::Work Method::in_parts(Work work) const {
  if (!partition_) return work;
  work.graph = graph::partitioned(plain(std::move(work.graph)), *partition_,
                                  [](const std::string& result) { return result.starts_with(recipe::kSquares); });
  return work;
}

std::string Method::partition_text() const {
  constexpr int64_t kNamed = 4;
  int64_t all = 0, split = 0, matrices = 0, others = 0;
  std::string whole;
  for (const arch::Parameter& p : model_.parameters) {
    all += p.count();
    const bool is_split = partition_->inputs.contains(p.name);
    if (is_split) split += p.count();
    if (is_split) ++matrices;
    if (is_split || p.shape.size() < 2) continue;
    if (++others <= kNamed) whole += fmt::format("{}'{}'", whole.empty() ? "" : ", ", p.name);
  }
  if (others > kNamed) whole += fmt::format(" and {} others", others - kNamed);
  graph::Exchanged sums;
  (void)graph::partitioned(plain(loss_), *partition_, {}, &sums);
  return fmt::format(
      "{} ranks hold one model: {} tensors with {:.1f} % of its numbers in parts{}; {} sums are exchanged "
      "forward{}",
      partition_->ranks, matrices, 100.0 * split / all, whole.empty() ? "" : fmt::format(", {} whole in each", whole),
      sums.sums + sums.scatters,
      sums.scatters > 0 ? fmt::format(", {} of them dealt along tokens", sums.scatters) : "");
}

}  // namespace lumen::model::train
