// The strategies there are, each in a file of its own.
#pragma once

#include "model/compress/strategy/strategy.h"

namespace lumen::model {

const Strategy& nearest_strategy();         // nearest.cpp
const Strategy& importance_strategy();      // nearest.cpp
const Strategy& feedback_strategy();        // feedback.cpp
const Strategy& answering_strategy();       // feedback.cpp
const Strategy& clipped_strategy();         // clipped.cpp
const Strategy& half_quadratic_strategy();  // half_quadratic.cpp

}  // namespace lumen::model
