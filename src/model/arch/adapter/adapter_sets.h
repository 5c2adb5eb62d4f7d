// Adapters of which each text may have others: what the adapters of one set make of each weight taken together, and the
// changes of several sets, stacked as graph/transform/by_text has them. Proved by
// tests/model/arch/adapter/adapter_sets_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "run/engine/engine.h"

namespace lumen::model {

// All changes of a weight as one: y = gain * W x + B A x.
struct WeightChange {
  Weight a, b;                 // as AdapterPart has them; scales and gains of the changes are in b
  std::vector<float> gain;     // of the weight's own rows, where magnitudes take part; empty: 1
  std::vector<int32_t> slots;  // of stacked ones: the place of each set's change, or -1
  int64_t rank() const { return b.columns(); }
};

// Ranks add up. Gains g multiply what the weight gives by 1 + sum (g - 1), as programs that keep several adapters apart
// have it. By parameter; whole weights are left out (with_whole_weights).
std::map<std::string, WeightChange> combined_changes(run::Engine& engine, const Model& model,
                                                     std::span<const ScaledAdapter> adapters);

using AdapterSet = std::vector<ScaledAdapter>;

// The changes of all sets: those of one weight behind each other, narrower ones filled up with zeros.
std::map<std::string, WeightChange> stacked_changes(run::Engine& engine, const Model& model,
                                                    std::span<const AdapterSet> sets);

// A hash of all that they change, and how much.
std::string identity_of(std::span<const ScaledAdapter> adapters);

// Whether texts may have these adapters each for itself: whole weights are there once for all.
bool can_differ(std::span<const ScaledAdapter> adapters);

}  // namespace lumen::model
