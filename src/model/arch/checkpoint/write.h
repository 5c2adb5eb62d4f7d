// Models to files. GGUF: loadable by other programs when every weight's format has a GGUF type; HF folders hold f32 or
// formats with a safetensors dtype. Both are atomic. Proved by tests/model/arch/arch_test.cpp.
#pragma once

#include <filesystem>
#include <functional>

#include "model/arch/model.h"

namespace lumen::model {

// An optional parameter with the values it would get anyway by the config `back`, the one a reader of the file will
// see: it is not written.
bool is_omitted(const Model& model, const Parameter& p, const graph::Config& back);

// Makes the weights of which a model has the type alone, each when its turn to be written comes, so that they are never
// held together.
using WeightSource = std::function<Weight(const Parameter&)>;

// `file_type` is general.file_type, a label; -1: the one of the format most weights are in, or 0.
// split_bytes > 0: several files of about that size each, PREFIX-00001-of-00003.gguf for PREFIX.gguf.
void write_gguf(const Model& model, const std::filesystem::path& path, int file_type = -1, int64_t split_bytes = 0,
                const WeightSource& source = {});
void write_hf(const Model& model, const std::filesystem::path& folder, const WeightSource& source = {});

}  // namespace lumen::model
