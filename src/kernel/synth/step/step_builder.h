// A kernel being written for a group: one buffer parameter for every value in memory it touches. Values are described
// by their content, never by their number in the graph, so equal work gives equal kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/fuse/plan.h"
#include "kernel/loop/names.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// A kernel to which the code that writes it adds parameters.
class KernelParams {
 public:
  virtual ~KernelParams() = default;
  virtual Builder& builder() = 0;
  // The parameter of a value in memory, declared at first use. An update without copies shares its state's storage,
  // hence its parameter. All parameters come before the first alloc.
  virtual BufferId value(graph::ValueId v, bool written) = 0;
  virtual BufferId scratch(int number, int64_t bytes, bool written) = 0;
};

class StepBuilder : public KernelParams {
 public:
  explicit StepBuilder(const graph::Graph& g);
  Builder b;

  Builder& builder() override { return b; }
  BufferId value(graph::ValueId v, bool written) override;
  BufferId scratch(int number, int64_t bytes, bool written) override;
  // Declares the inputs, then the results of a group, in their order.
  void declare(const graph::Group& group);

  const graph::Graph& graph() const { return graph_; }
  // Names the kernel after its plan and finishes it.
  Step finish(const std::string& plan, double flops, double bytes);

 private:
  BufferId declare(int64_t key, Argument argument, int64_t bytes, bool written);

  const graph::Graph& graph_;
  std::vector<Argument> arguments_;
  std::map<int64_t, BufferId> params_;  // by value of the storage, or -1 - scratch number
};

std::string symbol_text(const std::string& plan);  // letters, digits and _ only

}  // namespace lumen::synth
