// Activation recomputation as a recipe asks for it: `none`, `maps` (elementwise work alone), `layers`, `auto` (what the
// device has no room for), or an amount of memory that the values of a step may take ("4GiB"). The bits of a step do
// not depend on it. tests/graph/recompute_test.cpp.
#pragma once

#include <string>

#include "model/train/method/method.h"

namespace lumen::model::train {

// `auto` is the device's free memory less `others`: bytes that will be allocated in addition to the step's values. The
// result is written to `work`.
void recompute(Method::Work* work, const std::string& text, const run::Device& device, int64_t others);

// Bytes that training takes in addition to weights and the values of a step.
int64_t beside_values(run::Engine& engine, const Method& method, const recipe::Recipe& recipe);

}  // namespace lumen::model::train
