// Layers of a model repeat: groups that mean the same get the same kernels, so each is synthesized once.
#pragma once

#include <string>
#include <vector>

#include "graph/fuse/plan.h"
#include "kernel/synth/synth.h"

namespace lumen::run {

// What has no kernel: ranks hand values to each other.
bool is_exchange(const graph::Graph& g, const graph::Group& group);

// A group without its place in the graph. Equal meanings, equal kernels; values[i] of one stands for values[i] of
// another.
struct GroupForm {
  std::string meaning;
  std::vector<graph::ValueId> values;  // inputs, then nodes
  std::vector<bool> unwritten;         // by value
};
// `unwritten`: of the graph (graph/match/access.h); kernels may copy such memory before others have ended.
GroupForm form_of(const graph::Graph& g, const graph::Group& group, const std::vector<bool>& unwritten);

// The kernels of one group; value arguments are positions in GroupForm::values.
synth::Synthesis synthesize_form(const graph::Plan& plan, const graph::Group& group, const GroupForm& form,
                                 const machine::Machine& machine, const synth::Options& options);

// The kernels of a plan: every distinct form synthesized once.
struct DistinctKernels {
  std::vector<synth::Synthesis> distinct;
  std::vector<size_t> first;     // by distinct form: the first group that has it
  std::vector<GroupForm> forms;  // that group's
  struct Use {
    size_t which;  // of `distinct`
    std::vector<graph::ValueId> values;
  };
  std::vector<Use> groups;  // by group of the plan
};
DistinctKernels synthesize_distinct(const graph::Plan& plan, const machine::Machine& machine,
                                    const synth::Options& options);

}  // namespace lumen::run
