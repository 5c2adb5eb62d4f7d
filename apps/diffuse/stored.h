// Quantized networks in files: a checkpoint with codes, scales and remaining f32 weights, and their arrangement next to
// the network's settings. Files are hostile: every number is checked before use. Proved by
// tests/apps/diffuse/stored_test.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/diffuse/quantize.h"

namespace lumen::diffuse {

inline constexpr const char* kQuantizedChange = "quantized";

// Saves averaged weights. Written to a temporary folder, synced and renamed; returns the checkpoint's path.
std::filesystem::path save_quantized(const std::filesystem::path& folder, const apps::Network& network,
                                     const QuantizedWeights& weights, const std::string& method);

// A network for sampling, quantized or not, and the change with which to call its functions.
struct DrawingNetwork {
  std::unique_ptr<apps::Network> network;
  std::string change;  // empty: none
  std::string method;  // of quantization; empty: not quantized
};
// The newest checkpoint in a folder: of `lumen diffuse train`, or of save_quantized. Error for others.
DrawingNetwork load_drawing(run::Engine& engine, const model::arch::Library& library,
                            const std::filesystem::path& folder);

}  // namespace lumen::diffuse
