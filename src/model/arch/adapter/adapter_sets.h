// Adapters that differ between the sequences of a batch: the combined update of each weight for one set of adapters,
// and the stacked updates of several sets, as graph/transform/by_text needs them. Proved by
// tests/model/arch/adapter/adapter_sets_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "run/engine/engine.h"

namespace lumen::model::arch {

// All updates of a weight in one: y = gain * W x + B A x.
struct WeightChange {
  Weight a, b;                 // as in AdapterPart; b includes scales and gains of the updates
  std::vector<float> gain;     // of the weight's rows, with magnitudes; empty: 1
  std::vector<int32_t> slots;  // of stacked updates: index of each set's update, or -1
  int64_t rank() const { return b.columns(); }
};

// Ranks add up. Gains g multiply the weight's output by 1 + sum (g - 1), as in programs that apply several adapters
// separately. By parameter; full weights are excluded (with_whole_weights).
std::map<std::string, WeightChange> combined_changes(run::Engine& engine, const Model& model,
                                                     std::span<const ScaledAdapter> adapters);

using AdapterSet = std::vector<ScaledAdapter>;

// The updates of all sets: those of one weight stacked, lower ranks zero-padded.
std::map<std::string, WeightChange> stacked_changes(run::Engine& engine, const Model& model,
                                                    std::span<const AdapterSet> sets);

// A hash of all updates and their strengths.
std::string identity_of(std::span<const ScaledAdapter> adapters);

// Whether adapters can differ between sequences: full weights exist only once.
bool can_differ(std::span<const ScaledAdapter> adapters);

}  // namespace lumen::model::arch
