// The strategies there are, each in a file of its own.
#pragma once

#include "model/compress/strategy/strategy.h"

namespace lumen::model {

const Strategy& nearest_strategy();     // nearest.cpp
const Strategy& importance_strategy();  // nearest.cpp

}  // namespace lumen::model
