// Pools the vectors of a sequence's tokens into one, and normalizes and compares vectors. Proved by
// tests/model/infer/measure.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model::infer {

// largest: of each component. root: the sum divided by the root of the number of tokens. weighted: a mean in which
// token i (from 1) has the weight i.
enum class Pooling { none, mean, first, last, largest, root, weighted };

// Names in options, with none: "mean", "cls", ...
std::span<const std::pair<const char*, Pooling>> pooling_names();

// The pooling given by the model's files: the key {a}.pooling_type of a GGUF file, or the module for pooling of a
// folder (modules.json; without that file 1_Pooling). nullopt if there is none; Error if the type is not supported.
std::optional<Pooling> pooling_of(const arch::Model& model, const std::filesystem::path& path);

// `rows`: a vector of `width` numbers for each token. Returns one vector, or one for each token (none).
std::vector<std::vector<float>> pooled(std::span<const float> rows, size_t width, Pooling pooling);

// Divides a vector by its p-norm: p = 2 Euclidean, 1 the sum of magnitudes, any other p above 0 likewise. p = 0: scales
// the largest magnitude to 32760; negative p: unchanged. A zero vector stays zero.
void normalise(std::vector<float>& vector, int p);
double cosine(std::span<const float> a, std::span<const float> b);  // 0 if one vector is zero

}  // namespace lumen::model::infer
