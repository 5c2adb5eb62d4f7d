// Sums of what weights read that mean nothing: not finite, or nothing but zeros. They are dropped before anybody weighs
// errors by them, so that one broken tensor does not spoil the others. Proved by tests/model/calibrate/sound_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"

namespace lumen::model {

// Makes a tap (of stacked weights one matrix of it) whose sums are not finite, or all 0, one that no row reached.
// Returns for each tap what was wrong with it, for people; "" where nothing was. Matrices of a stack that read nothing
// but zeros are as those that no row reached, of which strategies tell.
std::vector<std::string> drop_unsound(std::span<TapSums> taps);

// Importance of columns for the fit of a format: those of 0 count a little, so that a block of nothing else keeps its
// values. Where none is above 0 all count alike.
void raise_zeros(std::span<float> importance);

}  // namespace lumen::model
