// Formats in a model file's metadata that are used at run time: for activations that products with its weights read,
// and for the KV cache. The metadata includes the formats' definitions; programs that do not know the keys compute with
// floats. Hostile files cause Errors. Proved by tests/model/arch/held_formats_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/transform/encode_inputs.h"
#include "model/arch/model.h"

namespace lumen::model::arch {

// Three arrays of equal length: GGUF names of weights, names of formats, and calibrated scales: one number for the
// whole activation, 0 where the format's fields are fitted at run time.
inline constexpr const char* kActivationWeights = "lumen.activations.weights";
inline constexpr const char* kActivationFormats = "lumen.activations.formats";
inline constexpr const char* kActivationScales = "lumen.activations.scales";
// Names of formats for the KV cache, unless the user chooses others.
inline constexpr const char* kCacheKeys = "lumen.cache.keys";
inline constexpr const char* kCacheValues = "lumen.cache.values";
// Calibrated scales, one per layer: keys and values pass through the format first, and the cache is then stored in the
// type that the user chooses.
inline constexpr const char* kCacheKeyScales = "lumen.cache.key_scales";
inline constexpr const char* kCacheValueScales = "lumen.cache.value_scales";
// The source of a format's definition; its name follows.
inline constexpr const char* kDefinition = "lumen.definition.";

// By parameter name. Error when the arrays differ in length, or name something that is no weight, a weight twice, an
// unknown format, or one that cannot hold the weight's input, and for scales that are not positive numbers.
std::vector<graph::EncodedInput> encoded_inputs(const Model& model);
// Replaces the metadata's entries; an empty list removes them.
void set_encoded_inputs(Model& model, const std::vector<graph::EncodedInput>& inputs);

// For kCacheKeys or kCacheValues; null where the file has no format, or has scales, so that nothing is fitted.
FormatRef held_cache(const Model& model, const char* key);
// A null format removes the key.
void set_held_cache(Model& model, const char* key, const FormatRef& format);

// Keys and values with calibrated scales; empty where the file has none. Error when there is not one scale per layer,
// the format has no scale for the whole tensor, or a scale is not a positive number.
std::vector<graph::EncodedState> encoded_states(const Model& model);
// For kCacheKeys or kCacheValues, replaces the metadata's entries.
void set_encoded_state(Model& model, const char* key, const FormatRef& format, const std::vector<double>& scales);

// Removes all of these keys.
void forget_held_formats(Model& model);

// Whether the metadata has any of these keys.
bool has_held_formats(const Model& model);

}  // namespace lumen::model::arch
