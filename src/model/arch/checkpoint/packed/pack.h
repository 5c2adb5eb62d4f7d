// Packs weights into the tensors of a scheme of models/checkpoints.toml, bit by bit: the inverse of packed.h. Proved by
// tests/model/arch/pack_test.cpp and pack_reference.py.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/held.h"
#include "model/arch/checkpoint/packed/scheme.h"
#include "model/arch/model.h"
#include "model/file/tensors.h"

namespace lumen::model::arch {

class Packing {
 public:
  // The output names of schemes, in the table's order.
  static std::vector<std::string> outputs();

  // A weight under its name in plain folders.
  struct Announced {
    std::string name;
    graph::Type type;
    std::optional<HeldFormat> input = {};  // format of its products' quantized input
  };
  // `output`: one of outputs(). All weights of a folder are packed by one scheme of that name. `left`: names of weights
  // that are not packed. Error that names a weight whose format no such scheme supports, or two that no single scheme
  // supports, and likewise for input formats. `cache`: format of keys and values, with scales.
  Packing(const std::string& output, const FormatLibrary& formats, const std::vector<Announced>& packed,
          std::vector<std::string> left, const std::optional<HeldFormat>& cache = {});

  // Error when folders of this kind cannot describe such inputs. The scale's value does not matter; `what` names them
  // in the message.
  static void require_input(const std::string& output, const FormatLibrary& formats, const std::string& what,
                            const HeldFormat& held);
  // The same for keys and values with calibrated scales.
  static void require_cache(const std::string& output, const FormatLibrary& formats, const HeldFormat& cache);

  // Whether a scheme of this name stores the format's numbers exactly.
  static bool takes(const std::string& output, const FormatLibrary& formats, const FormatRef& f);
  // Whether only weights of stacked matrices are packed.
  static bool is_stacked(const std::string& output);
  // Whether experts with separate tensors stay floats.
  static bool has_float_experts(const std::string& output);
  // Whether matrices are [out, in] also where plain folders have [in, out].
  static bool is_unturned(const std::string& output);

  // The tensors of a packed weight, and their bytes.
  const std::vector<file::TensorSpec>& specs(const std::string& weight) const;
  std::vector<Bytes> pack(const std::string& weight, const Weight& w) const;

  // The quantization_config of config.json.
  nlohmann::json config() const;

  // The names of the cache's scale tensors; only with a cache.
  const HeldRule& cache_rule() const { return *cache_; }

 private:
  struct Plan;
  using PlanRef = std::shared_ptr<const Plan>;

  void name_groups(nlohmann::json& config) const;

  static PlanRef plan_for(const Scheme& scheme, const FormatLibrary& formats, const graph::Type& type);
  // All by one scheme; empty where it does not support one of them.
  static std::map<std::string, PlanRef> plans_for(const Scheme& scheme, const FormatLibrary& formats,
                                                  const std::vector<Announced>& packed, std::string* config,
                                                  std::string* clash);

  std::string config_;
  const Scheme* scheme_ = nullptr;
  std::map<std::string, PlanRef> plans_;  // by weight
  std::map<std::string, std::vector<file::TensorSpec>> specs_;
  std::vector<std::string> left_;
  // By weight; null: floats.
  struct Input {
    const HeldRule* rule = nullptr;
    nlohmann::json config;
    float scale = 0;
  };
  std::map<std::string, Input> inputs_;
  const HeldRule* cache_ = nullptr;
  nlohmann::json cache_config_;
};

}  // namespace lumen::model::arch
