// What a recipe says of the adapter that is trained. Proved by tests/model/train/adapter/lora_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
// Error (usage) when a name is not known or a number contradicts another.
void check_adapter(const AdapterSettings& settings);

}  // namespace lumen::model
