// A text through all parts of a model and back, layer by layer: the way of whatever looks at what the text's loss gains
// by numbers of the model. What goes forward is kept until its part has gone back. Proved by
// tests/model/compress/score/weight_scores_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"

namespace lumen::model {

class ThereAndBack {
 public:
  using Numbers = std::function<std::vector<float>(const std::string&)>;  // of a parameter
  // `run` lives as long. `folder`: of values between layers, which goes with this; empty: memory.
  ThereAndBack(LayerRun& run, Numbers numbers, const std::filesystem::path& folder);

  // Forward; then back(), from the last part to the first. Both get the number of the part.
  void there(const std::function<void(size_t)>& before = {});
  void back(const std::function<void(size_t)>& visit);

  // A parameter of the part at hand; they are held until the next part.
  std::span<const float> weight(const std::string& name);
  LayerRun::WeightOf weights() {
    return [this](const std::string& name) { return weight(name); };
  }
  // What parts read, and what the loss gains by it (LayerRun::back).
  CarriedValues values, slopes;

 private:
  LayerRun& run_;
  const Numbers numbers_;
  std::map<std::string, std::vector<float>> held_;
};

}  // namespace lumen::model
