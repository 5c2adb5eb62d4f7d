// The forward and backward pass of a text through a model, layer by layer, for all uses of the text loss's gradients.
// Forward values are kept until their part's backward pass. Proved by
// tests/model/compress/score/weight_scores_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"

namespace lumen::model::calibrate {

class ThereAndBack {
 public:
  using Numbers = std::function<std::vector<float>(const std::string&)>;  // of a parameter
  // `run` must outlive this. `folder`: of values between layers, removed at the end; empty: memory.
  ThereAndBack(LayerRun& run, Numbers numbers, const std::filesystem::path& folder);

  // Forward; then back(), from the last part to the first. Both callbacks receive the part number.
  void there(const std::function<void(size_t)>& before = {});
  void back(const std::function<void(size_t)>& visit);

  // A parameter of the current part, cached until the next part.
  std::span<const float> weight(const std::string& name);
  LayerRun::WeightOf weights() {
    return [this](const std::string& name) { return weight(name); };
  }
  // The parts' inputs, and their gradients (LayerRun::back).
  CarriedValues values, slopes;

 private:
  LayerRun& run_;
  const Numbers numbers_;
  std::map<std::string, std::vector<float>> held_;
};

}  // namespace lumen::model::calibrate
