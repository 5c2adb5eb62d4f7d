// What a recipe says of recomputation: `none`, `maps` (elementwise work alone), `layers`, `auto` (what the device has
// no room for), or an amount of memory that the values of a step may take ("4GiB"). The bits of a step do not depend on
// it. tests/graph/recompute_test.cpp.
#pragma once

#include <string>

#include "model/train/method/method.h"

namespace lumen::model {

// `auto` is as much as the device has when `others`, bytes of what is not there yet beside the step's values, are
// taken. `work` gets it.
void recompute(Method::Work* work, const std::string& text, const run::Device& device, int64_t others);

// Bytes that training takes beside weights and the values of a step.
int64_t beside_values(run::Engine& engine, const Method& method, const Recipe& recipe);

}  // namespace lumen::model
