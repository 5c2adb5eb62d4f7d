// Weights as the tensors that a scheme of models/checkpoints.toml keeps them in, bit for bit: the way back of packed.h.
// Proved by tests/model/arch/pack_test.cpp and pack_reference.py.
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

namespace lumen::model {

class Packing {
 public:
  // The names schemes are written by, in the table's order.
  static std::vector<std::string> outputs();

  // A weight under its name in plain folders.
  struct Announced {
    std::string name;
    graph::Type type;
    std::optional<HeldFormat> input = {};  // what its products hold in few bits of what they read
  };
  // `output`: one of them. All weights of a folder are packed by one scheme of that name. `left`: names of those that
  // stay as they are. Error that names a weight whose format no such scheme can say, or two that none can say both.
  // The same where no such scheme can say in what inputs are held. `cache`: of keys and values, which have scales.
  Packing(const std::string& output, const FormatLibrary& formats, const std::vector<Announced>& packed,
          std::vector<std::string> left, const std::optional<HeldFormat>& cache = {});

  // Error when folders of this kind have no word for inputs that are held so. The scale's size does not matter; `what`:
  // they are called so.
  static void require_input(const std::string& output, const FormatLibrary& formats, const std::string& what,
                            const HeldFormat& held);
  // The same of keys and values under calibrated scales.
  static void require_cache(const std::string& output, const FormatLibrary& formats, const HeldFormat& cache);

  // Whether some scheme of this name holds the format's numbers as they are.
  static bool takes(const std::string& output, const FormatLibrary& formats, const FormatRef& f);
  // Whether weights of stacked matrices alone are packed.
  static bool is_stacked(const std::string& output);
  // Whether experts that lie in tensors of their own stay floats.
  static bool has_float_experts(const std::string& output);
  // Whether matrices are [out, in] also where plain folders have [in, out].
  static bool is_unturned(const std::string& output);

  // The tensors a weight becomes, and their bytes.
  const std::vector<TensorSpec>& specs(const std::string& weight) const;
  std::vector<Bytes> pack(const std::string& weight, const Weight& w) const;

  // What config.json has under quantization_config.
  nlohmann::json config() const;

  // What the cache's scales are called beside an attention; with a cache alone.
  const HeldRule& cache_rule() const { return *cache_; }

 private:
  struct Plan;
  using PlanRef = std::shared_ptr<const Plan>;

  void name_groups(nlohmann::json& config) const;

  static PlanRef plan_for(const Scheme& scheme, const FormatLibrary& formats, const graph::Type& type);
  // All by one scheme; empty where one of them is none of its.
  static std::map<std::string, PlanRef> plans_for(const Scheme& scheme, const FormatLibrary& formats,
                                                  const std::vector<Announced>& packed, std::string* config,
                                                  std::string* clash);

  std::string config_;
  const Scheme* scheme_ = nullptr;
  std::map<std::string, PlanRef> plans_;  // by weight
  std::map<std::string, std::vector<TensorSpec>> specs_;
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

}  // namespace lumen::model
