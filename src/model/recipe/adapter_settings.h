// Settings of a recipe's adapter, and of the quantization in which it is shipped. Proved by
// tests/model/train/adapter/lora_test.cpp and ship_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lumen::model::recipe {

// [adapter] of a recipe.
struct AdapterSettings {
  std::string method = "none";  // or lora, dora
  int64_t rank = 16;
  double alpha = 32;  // the update is scaled by alpha / rank; with rs_lora by alpha / sqrt(rank)
  double dropout = 0;
  bool rs_lora = false;
  double b_rate = 1;  // LoRA+: factor on the learning rate of B
  // Names or ends of names, in this program, in GGUF files or in Hugging Face folders (* and ? match), roles, or
  // "all-linear": every matrix of a linear layer, except outputs and routers.
  std::vector<std::string> targets = {"all-linear"};
  // Initial values of A and B: default (adapter_parameters), or one that changes the base (train/adapter_init).
  std::string init = "default";
  std::string base_type = "base";  // type of a changed base: "base" (each weight's own type), a format or a mixture

  bool changes_base() const { return init != "default"; }

  bool trains() const { return method != "none"; }
  bool has_magnitudes() const { return method == "dora"; }
  double scale() const;
};

// Parses adapter.init. Error (usage) when it is unknown.
struct AdapterInit {
  enum class Kind { plain, pissa, loftq } kind = Kind::plain;
  int64_t iterations = 0;  // pissa: of the randomized SVD, 0: exact SVD where it is fast; loftq: alternations
};
AdapterInit adapter_init(const AdapterSettings& settings);

inline constexpr const char* kAllLinear = "all-linear";
// Error (usage) when two settings contradict each other.
void check_adapter(const AdapterSettings& settings);

// [ship] of a recipe.
struct ShipSettings {
  std::string type;               // of the merged model: "base" (each weight's own type), a format or a mixture
  std::string fields = "fitted";  // or "learned": scales and offsets are trained (LSQ, learned clipping)
  bool magnitudes = false;        // one for each group of the format
  std::vector<std::string> trains = {"adapter", "fields", "magnitudes"};  // trained in this phase
  double max_kl = 1e-3;  // limit of the KL divergence of the written file from the trained model, nats per token

  bool ships() const { return !type.empty(); }
  bool learns() const { return fields == "learned"; }
};
// Error (usage) when two settings contradict each other.
void check_ship(const ShipSettings& settings);

}  // namespace lumen::model::recipe
