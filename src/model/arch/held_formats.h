// What a file says of the formats that numbers are held in while the model runs: activations that products with its
// weights read, and the cache of keys and values. Metadata, beside the definitions of these formats; other programs
// that do not know the keys compute with floats. Hostile files give Errors. Proved by
// tests/model/arch/held_formats_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/transform/encode_inputs.h"
#include "model/arch/model.h"

namespace lumen::model {

// Three arrays of one length: GGUF names of weights, names of formats, and scales that a calibration found: one number
// for the whole activation, 0 where the format's fields are fitted while the model runs.
inline constexpr const char* kActivationWeights = "lumen.activations.weights";
inline constexpr const char* kActivationFormats = "lumen.activations.formats";
inline constexpr const char* kActivationScales = "lumen.activations.scales";
// Names of formats for the cache, where nobody asks for others.
inline constexpr const char* kCacheKeys = "lumen.cache.keys";
inline constexpr const char* kCacheValues = "lumen.cache.values";
// Scales that a calibration found, one for each layer: what goes into the cache passes through the format first, and
// the cache itself is stored as whoever runs the model asks.
inline constexpr const char* kCacheKeyScales = "lumen.cache.key_scales";
inline constexpr const char* kCacheValueScales = "lumen.cache.value_scales";
// The text of a format's definition; its name follows.
inline constexpr const char* kDefinition = "lumen.definition.";

// By the names of parameters. Error when the arrays are of several lengths, or name what is no weight, one twice, no
// format, or one that cannot hold what the weight reads, and for scales that are no positive numbers.
std::vector<graph::EncodedInput> encoded_inputs(const Model& model);
// In place of what the metadata says; none: nothing is encoded.
void set_encoded_inputs(Model& model, const std::vector<graph::EncodedInput>& inputs);

// Under kCacheKeys or kCacheValues; null where the file says nothing, or has scales, so that nothing is to be fitted.
FormatRef held_cache(const Model& model, const char* key);
// Null: the file says nothing.
void set_held_cache(Model& model, const char* key, const FormatRef& format);

// Keys and values with scales; none where the file has no scales. Error where it has as many as there are no layers, or
// the format has no number for the whole, and for scales that are no positive numbers.
std::vector<graph::EncodedState> encoded_states(const Model& model);
// Under kCacheKeys or kCacheValues, in place of what the metadata says.
void set_encoded_state(Model& model, const char* key, const FormatRef& format, const std::vector<double>& scales);

// Nothing is said any more.
void forget_held_formats(Model& model);

// Whether the metadata says anything of these.
bool has_held_formats(const Model& model);

}  // namespace lumen::model
