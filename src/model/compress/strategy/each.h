// The available strategies, each in its own file.
#pragma once

#include "model/compress/strategy/strategy.h"

namespace lumen::model::compress {

const Strategy& nearest_strategy();         // nearest.cpp
const Strategy& importance_strategy();      // nearest.cpp
const Strategy& feedback_strategy();        // feedback.cpp
const Strategy& answering_strategy();       // feedback.cpp
const Strategy& clipped_strategy();         // clipped.cpp
const Strategy& half_quadratic_strategy();  // half_quadratic.cpp
const Strategy& autoround_strategy();       // blocks.cpp, also those below
const Strategy& adaround_strategy();
const Strategy& omniquant_strategy();
const Strategy& block_ap_strategy();

}  // namespace lumen::model::compress
