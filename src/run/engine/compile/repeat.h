// Layers of a model repeat: groups that mean the same get the same kernels, so each is synthesized once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/fuse/layer_view.h"
#include "kernel/synth/synth.h"

namespace lumen::run {

// What has no kernel of its own: ranks hand values to each other; a graph's kernels run step after step (scan.h).
bool is_exchange(const graph::Graph& g, const graph::Group& group);
bool is_scan(const graph::Graph& g, const graph::Group& group);

constexpr int kValueAlignment = 64;  // bytes: of what kernels are given, where nothing else is said

// What kernels may know of a plan's values beside the graph, by value. Of a graph that is run as it is: values_of.
struct ValueFacts {
  std::vector<bool> unwritten;  // graph/match/access.h; kernels may copy such memory before others have ended
  std::vector<int> alignment;   // bytes
};
ValueFacts values_of(const graph::Graph& g);

// A group without its place in the graph. Equal meanings, equal kernels; values[i] of one stands for values[i] of
// another.
struct GroupForm {
  std::string meaning;
  std::vector<graph::ValueId> values;  // inputs, then nodes
  std::vector<bool> unwritten;         // by value
  std::vector<int> alignment;          // likewise
  std::vector<int64_t> offsets;        // likewise: bytes from where the value begins to where its kernels are to begin
  std::map<graph::ValueId, graph::Node> seen;  // nodes that they take for others (layer_view)
};
GroupForm form_of(const graph::Graph& g, const graph::Group& group, const ValueFacts& facts,
                  graph::LayerView view = {});

// The kernels of one group; value arguments are positions in GroupForm::values, and begin at GroupForm::offsets.
synth::Synthesis synthesize_form(const graph::Plan& plan, const graph::Group& group, const GroupForm& form,
                                 const machine::Machine& machine, const synth::Options& options);

// The kernels of a plan: every distinct form synthesized once.
struct DistinctKernels {
  std::vector<synth::Synthesis> distinct;
  std::vector<size_t> first;     // by distinct form: the first group that has it
  std::vector<GroupForm> forms;  // that group's
  std::vector<int> instances;    // by distinct form: its groups come so many at a time (Group::beside)
  struct Use {
    size_t which;  // of `distinct`
    std::vector<graph::ValueId> values;
    std::vector<int64_t> offsets;  // bytes, by value
  };
  std::vector<Use> groups;  // by group of the plan
};
// `at_once`: a launch may run kernels of several groups (loop::Kernel::instances).
DistinctKernels synthesize_distinct(const graph::Plan& plan, const machine::Machine& machine,
                                    const synth::Options& options, const ValueFacts& facts, int threads,
                                    bool at_once = false);
DistinctKernels synthesize_distinct(const graph::Plan& plan, const machine::Machine& machine,
                                    const synth::Options& options);  // values_of the plan's graph, on one thread

}  // namespace lumen::run
