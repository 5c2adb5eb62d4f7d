// Removes unusable input sums: not finite, or all zeros. They are dropped before errors are weighted by them, so that
// one broken tensor does not spoil the others. Proved by tests/model/calibrate/sound_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"

namespace lumen::model::calibrate {

// Marks taps (for stacked weights, matrices) whose sums are not finite, or all 0, as reached by no row. Returns for
// each tap a printable reason; "" where it is sound. Matrices of a stack with only zero inputs give no reason:
// strategies report them as unreached.
std::vector<std::string> drop_unsound(std::span<TapSums> taps);

// Column importance for a format's fit: zeros are raised a little, so that a block of only zeros keeps its values.
// Where none is above 0, all columns have equal weight.
void raise_zeros(std::span<float> importance);

}  // namespace lumen::model::calibrate
