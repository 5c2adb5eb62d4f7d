// What a reduce group computes, by node. Proved by tests/kernel/synth/synth_reduce_test.cpp.
#pragma once

#include <map>
#include <vector>

#include "graph/group/access.h"

namespace lumen::graph {

struct ReduceFacts {
  ReduceFacts(const Plan& plan, const Group& group);

  std::vector<int64_t> full, kept;  // F, and F with the reduced axes set to 1
  std::vector<bool> is_reduced;     // per axis of F; axes of extent 1 go with their neighbour
  std::vector<ValueId> reduces;
  std::vector<ValueId> full_maps, kept_maps;  // compute nodes by shape, in order
  std::vector<ValueId> full_results, kept_results;
  std::map<ValueId, int> level;  // how many reduces one after another a compute node waits for
  bool is_dependent = false;     // a value of shape F uses the result of a reduce
  bool is_trivial = false;       // nothing is reduced: every reduced axis has extent 1
  int passes = 1;                // over a row

  std::vector<bool> barrier() const;  // between reduced and kept axes
};

}  // namespace lumen::graph
