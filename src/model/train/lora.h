// Adapters that are trained: which weights get one, the parameters it has, and the numbers it begins with. The weights
// themselves stay as their file holds them. Knows settings, models and graphs, not engines. Proved by
// tests/model/lora_test.cpp and tests/model/lora_reference.py (peft).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/pass/low_rank.h"
#include "model/arch/adapter.h"
#include "model/arch/model.h"

namespace lumen::model {

// [adapter] of a recipe.
struct AdapterSettings {
  std::string method = "none";  // or lora, dora
  int64_t rank = 16;
  double alpha = 32;  // the change counts alpha / rank; with rs_lora alpha / sqrt(rank)
  double dropout = 0;
  bool rs_lora = false;
  double b_rate = 1;  // LoRA+: B learns so many times as fast as A
  // Names or ends of names, here, in GGUF files or in Hugging Face folders (* and ? match), roles, or "all-linear":
  // every matrix that is multiplied with, but outputs and routers.
  std::vector<std::string> targets = {"all-linear"};
  // What A and B begin with: default (adapter_parameters), or what changes the base (rewrite/rewrite.h).
  std::string init = "default";
  std::string base_type = "base";  // what a changed base is held in: each weight's own, a format or a mixture

  bool rewrites() const { return init != "default"; }

  bool trains() const { return method != "none"; }
  bool has_magnitudes() const { return method == "dora"; }
  double scale() const;
};

// What adapter.init says. Error (usage) when it is not known.
struct AdapterInit {
  enum class Kind { plain, pissa, loftq } kind = Kind::plain;
  int64_t iterations = 0;  // pissa: of a random subspace, 0: exactly where it is quick; loftq: turns
};
AdapterInit adapter_init(const AdapterSettings& settings);

inline constexpr const char* kAllLinear = "all-linear";
inline constexpr const char* kRoleA = "adapter_a";
inline constexpr const char* kRoleB = "adapter_b";
inline constexpr const char* kRoleMagnitude = "adapter_magnitude";

// Error (usage) when a name is not known or a number contradicts another.
void check_adapter(const AdapterSettings& settings);

// The changes of a model's weights, in the order of its parameters. `places`: how the family's loss uses them
// (graph::low_rank_places). Error when a target matches nothing, or a weight that has no use a change could be added
// to.
std::vector<graph::LowRank> adapter_changes(const Model& model,
                                            const std::map<std::string, graph::LowRankPlaces>& places,
                                            const AdapterSettings& settings);
// What of them counts in evaluation: nothing is dropped.
std::vector<graph::LowRank> without_dropout(std::vector<graph::LowRank> changes);

// A, B and magnitudes of each. Of A and B one begins drawn, the other zero, so that nothing changes at first: A
// uniformly from +-1 / sqrt(columns); where rows are read B normally, and A is zero. Magnitudes begin as the norms of
// the weight's rows.
std::vector<Parameter> adapter_parameters(const Model& model, const std::vector<graph::LowRank>& changes,
                                          const AdapterSettings& settings);

}  // namespace lumen::model
