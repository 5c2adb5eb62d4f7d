// Quantized networks in files: a checkpoint whose weights are codes, scales and what stayed f32, with their arrangement
// beside the network's settings. Files are hostile: every number is checked before it is used. Proved by
// tests/model/diffuse/stored_test.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "model/diffuse/quantize.h"

namespace lumen::model {

inline constexpr const char* kQuantizedChange = "quantized";

// Weights by their mean over the steps. Written beside, synced and renamed; the checkpoint's path.
std::filesystem::path save_quantized(const std::filesystem::path& folder, const Network& network,
                                     const QuantizedWeights& weights, const std::string& method);

// A network to draw images from, however it is held: with what change its functions are to be called.
struct DrawingNetwork {
  std::unique_ptr<Network> network;
  std::string change;  // empty: none
  std::string method;  // by which it was quantized; empty: not
};
// The newest checkpoint in a folder: of `lumen diffuse train`, or of save_quantized. Error for others.
DrawingNetwork load_drawing(run::Engine& engine, const Library& library, const std::filesystem::path& folder);

}  // namespace lumen::model
