#include "kernel/synth/step/step_builder.h"

#include "graph/match/uses.h"

namespace lumen::synth {

std::string shape_text(const std::vector<int64_t>& extents) {
  std::string out;
  for (const int64_t e : extents) out += fmt::format("{}{}", out.empty() ? "" : "x", e);
  return out.empty() ? "1" : out;
}

std::string symbol_text(const std::string& plan) {
  std::string out;
  for (const char c : plan) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain) {
      out += c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

StepBuilder::StepBuilder(const graph::Graph& g) : b("kernel"), graph_(g) {}

BufferId StepBuilder::declare(int64_t key, Argument argument, int64_t bytes, bool written) {
  if (const auto found = params_.find(key); found != params_.end()) {
    if (written) b.kernel.params[found->second].written = true;
    return found->second;
  }
  const BufferId buffer = b.param(fmt::format("p{}", arguments_.size()), bytes, written);
  arguments_.push_back(argument);
  params_.emplace(key, buffer);
  return buffer;
}

BufferId StepBuilder::value(graph::ValueId v, bool written) {
  return declare(storage_of(graph_, v), {Argument::From::value, v}, graph::byte_size(graph_[v].type), written);
}

BufferId StepBuilder::scratch(int number, int64_t bytes, bool written) {
  return declare(-1 - int64_t{number}, {Argument::From::scratch, number}, bytes, written);
}

void StepBuilder::declare(const graph::Group& group) {
  for (const graph::ValueId v : group.inputs) value(v, false);
  for (const graph::ValueId v : group.results) value(v, true);
}

Step StepBuilder::finish(const std::string& plan, double flops, double bytes) {
  Step step;
  b.kernel.name = symbol_text(plan);
  step.kernel = b.finish();
  step.arguments = std::move(arguments_);
  step.plan = plan;
  step.flops = flops;
  step.bytes = bytes;
  return step;
}

}  // namespace lumen::synth
