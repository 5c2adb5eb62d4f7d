// A model of some shape and format with random weights, made in a moment and without a download: benchmarks need a
// model's sizes, not its wisdom. Matrices repeat a few rows that the format's own encoder has rounded, so every number
// is finite and every byte costs what a real one does. Proved by tests/model/infer/infer_test.cpp.
#pragma once

#include <string>

#include "model/arch/model.h"

namespace lumen::model {

// `size` is a named size of a family, `type` a format or a mixture. Error with the known names.
Model synthetic_model(const LibraryRef& library, const std::string& size, const std::string& type);

// A vocabulary learnt from the embedded text and filled up to the model's, so that other programs load the file.
void add_synthetic_tokenizer(Model& model);

}  // namespace lumen::model
