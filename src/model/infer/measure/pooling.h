// How the vectors of a text's tokens become one, and how vectors are scaled and compared. Proved by
// tests/model/infer/measure.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model {

enum class Pooling { none, mean, first, last };

// What a model says about itself: the key {a}.pooling_type of a GGUF file, or 1_Pooling/config.json of a folder.
// Nothing where it says nothing; Error where it says what is not known here.
std::optional<Pooling> pooling_of(const Model& model, const std::filesystem::path& path);

// `rows`: a vector of `width` numbers for each token. One vector, or one for each token (none).
std::vector<std::vector<float>> pooled(std::span<const float> rows, size_t width, Pooling pooling);

// Divided by its norm: p = 2 the length, 1 the sum of magnitudes, any other above 0 likewise; 0: the largest magnitude
// becomes 32760; negative: as it is. A vector of zeros stays.
void normalise(std::vector<float>& vector, int p);
double cosine(std::span<const float> a, std::span<const float> b);  // 0 when one is zero

}  // namespace lumen::model
