// What lanes that run a routine side by side have in common: which variables are equal in all of them, so that they are
// held once and what they index is loaded and stored whole; and which are known only where some lanes run, so that
// setting them there needs no mask. Proved by tests/kernel/synth/lane_facts_test.cpp.
#pragma once

#include <vector>

#include "number/format/routine.h"

namespace lumen::synth {

struct LaneFacts {
  std::vector<bool> uniform;  // by slot
  // By slot: of the branches around a statement that lanes take differently, how many are around all that knows the
  // variable. Lanes outside of those never see what it is set to.
  std::vector<int> depth;
};

// `given`: parameters and locals that are set from outside to what is equal in all lanes; others that nothing in the
// routine assigns are not uniform. `kept`: locals that are set or read from outside.
LaneFacts lane_facts(const Routine& r, const std::vector<int>& given, const std::vector<int>& kept);

// Whether an expression is equal in all lanes. Of fields and values lanes have their own.
bool is_uniform(const RoutineExpr& e, const std::vector<bool>& uniform);

}  // namespace lumen::synth
