// The structure of a reduce group, by node. Proved by tests/kernel/synth/synth_reduce_test.cpp.
#pragma once

#include <map>
#include <vector>

#include "graph/group/access.h"

namespace lumen::graph {

struct ReduceFacts {
  ReduceFacts(const Plan& plan, const Group& group);

  std::vector<int64_t> full, kept;  // F, and F with the reduced axes set to 1
  std::vector<bool> is_reduced;     // per axis of F; axes of extent 1 follow their neighbour
  std::vector<ValueId> reduces;
  std::vector<ValueId> full_maps, kept_maps;  // compute nodes by shape, in order
  std::vector<ValueId> full_results, kept_results;
  std::map<ValueId, int> level;  // the number of successive reduces a compute node depends on
  bool is_dependent = false;     // a value of shape F uses the result of a reduce
  bool is_trivial = false;       // every reduced axis has extent 1
  int passes = 1;                // over a row

  std::vector<bool> barrier() const;  // between reduced and kept axes
};

}  // namespace lumen::graph
