// Layers of a model repeat: groups with equal meaning share kernels, so each is synthesized once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/fuse/layer_view.h"
#include "kernel/synth/synth.h"

namespace lumen::run {

// Groups without a kernel: exchanges between ranks, and scans, which run the kernels of a graph step by step (scan.h).
bool is_exchange(const graph::Graph& g, const graph::Group& group);
bool is_scan(const graph::Graph& g, const graph::Group& group);

constexpr int kValueAlignment = 64;  // bytes: default alignment of kernel arguments

// Facts about a plan's values that kernels may use in addition to the graph, by value. For a graph run unchanged:
// values_of.
struct ValueFacts {
  std::vector<bool> unwritten;  // graph/match/access.h; kernels may copy such memory before earlier ones have ended
  std::vector<int> alignment;   // bytes
};
ValueFacts values_of(const graph::Graph& g);

// A group without its position in the graph. Equal meanings have equal kernels; values[i] of one corresponds to
// values[i] of the other.
struct GroupForm {
  std::string meaning;
  std::vector<graph::ValueId> values;  // inputs, then nodes
  std::vector<bool> unwritten;         // by value
  std::vector<int> alignment;          // by value
  std::vector<int64_t> offsets;        // by value: offset in bytes from the value to the start that its kernels use
  std::map<graph::ValueId, graph::Node> seen;  // nodes replaced by others for synthesis (layer_view)
};
GroupForm form_of(const graph::Graph& g, const graph::Group& group, const ValueFacts& facts,
                  graph::LayerView view = {});

// Kernels with their text, printed once: equal texts mean equal kernels.
struct Synthesized : synth::Synthesis {
  Synthesized() = default;
  explicit Synthesized(synth::Synthesis made);
  std::vector<std::string> texts;  // by step
  std::string hash;                // of all texts
};

// The kernels of one group; value arguments are positions in GroupForm::values, and start at GroupForm::offsets.
Synthesized synthesize_form(const graph::Plan& plan, const graph::Group& group, const GroupForm& form,
                            const machine::Machine& machine, const synth::Options& options);

// The kernels of a plan: every distinct form synthesized once.
struct DistinctKernels {
  std::vector<Synthesized> distinct;
  std::vector<size_t> first;     // by distinct form: its first group
  std::vector<GroupForm> forms;  // the form of that group
  std::vector<int> instances;    // by distinct form: number of groups per launch (Group::beside)
  struct Use {
    size_t which;  // of `distinct`
    std::vector<graph::ValueId> values;
    std::vector<int64_t> offsets;  // bytes, by value
  };
  std::vector<Use> groups;  // by group of the plan
};
// `at_once`: one launch may run kernels of several groups (loop::Kernel::instances).
DistinctKernels synthesize_distinct(const graph::Plan& plan, const machine::Machine& machine,
                                    const synth::Options& options, const ValueFacts& facts, int threads,
                                    bool at_once = false);
DistinctKernels synthesize_distinct(const graph::Plan& plan, const machine::Machine& machine,
                                    const synth::Options& options);  // values_of the plan's graph, on one thread

}  // namespace lumen::run
