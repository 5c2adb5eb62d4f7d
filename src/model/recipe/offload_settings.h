// Which state of a training run is offloaded from device memory, in the syntax of --offload: "moments", "moments=host",
// "moments=/nvme,layers=host", "activations". Proved by tests/model/train/offload/settings_test.cpp.
#pragma once

#include <optional>
#include <string>

namespace lumen::model::recipe {

struct OffloadPlace {
  bool host = false;   // host memory; else a file
  std::string folder;  // of the file; "": the run's folder
  friend bool operator==(const OffloadPlace&, const OffloadPlace&) = default;
};

struct OffloadSettings {
  std::optional<OffloadPlace> moments;  // optimizer states
  // Parameters of layers, and their gradients; implies offloaded moments, in the same place unless another is given.
  std::optional<OffloadPlace> layers;
  // Activations saved for the backward pass; the step then runs layer by layer, wherever parameters are.
  std::optional<OffloadPlace> activations;
  bool any() const { return moments || activations; }
};

// Error (usage) when the text names an unknown kind of state, or one twice.
OffloadSettings offload_settings(const std::string& text);

}  // namespace lumen::model::recipe
