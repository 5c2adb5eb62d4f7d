// What of a training run lies outside of its device's memory, as --offload says it: "moments", "moments=host",
// "moments=/nvme,layers=host", "activations". Proved by tests/model/train/offload/settings_test.cpp.
#pragma once

#include <optional>
#include <string>

namespace lumen::model {

struct OffloadPlace {
  bool host = false;   // memory of the host; else a file
  std::string folder;  // of the file; "": the run's own
  friend bool operator==(const OffloadPlace&, const OffloadPlace&) = default;
};

struct OffloadSettings {
  std::optional<OffloadPlace> moments;  // states of the optimizer
  // Parameters of layers, and their gradients; then moments, too, in the same place or another.
  std::optional<OffloadPlace> layers;
  // What the forward pass keeps for the backward pass; the step goes by layers then, wherever parameters are.
  std::optional<OffloadPlace> activations;
  bool any() const { return moments || activations; }
};

// Error (usage) when the text names nothing that can be offloaded, or something twice.
OffloadSettings offload_settings(const std::string& text);

}  // namespace lumen::model
