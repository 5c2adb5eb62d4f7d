// Facts about lanes that run a routine in parallel: which variables are uniform, so that they are stored once and what
// they index is loaded and stored as vectors; and which are used only in divergent branches, so that setting them there
// needs no mask. Proved by tests/kernel/synth/lane_facts_test.cpp.
#pragma once

#include <vector>

#include "number/format/routine.h"

namespace lumen::synth {

struct LaneFacts {
  std::vector<bool> uniform;  // by slot
  // By slot: how many of the divergent branches around a statement contain all uses of the variable. Lanes outside of
  // those never read what it is set to.
  std::vector<int> depth;
};

// `given`: parameters and locals that are set from outside to uniform values; others that nothing in the routine
// assigns are not uniform. `kept`: locals that are set or read from outside.
LaneFacts lane_facts(const Routine& r, const std::vector<int>& given, const std::vector<int>& kept);

// Whether an expression is equal in all lanes. Fields and values differ between lanes.
bool is_uniform(const RoutineExpr& e, const std::vector<bool>& uniform);

}  // namespace lumen::synth
