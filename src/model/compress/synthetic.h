// A model of some shape and format with random weights, made quickly and without a download: benchmarks need a model's
// sizes, not its quality. Matrices repeat a few rows that the format's own encoder has rounded, so every number is
// finite and every byte is processed like a real one. Proved by tests/model/infer/infer_test.cpp.
#pragma once

#include <string>

#include "model/arch/model.h"

namespace lumen::model::compress {

// `size` is a named size of a family, `type` a format or a mixture. Error with the known names.
arch::Model synthetic_model(const arch::LibraryRef& library, const std::string& size, const std::string& type);

// A vocabulary learned from the embedded text and padded to the model's size, so that other programs load the file.
void add_synthetic_tokenizer(arch::Model& model);

}  // namespace lumen::model::compress
