// The available preparations, each in its own file.
#pragma once

#include "model/compress/prepare/preparation.h"

namespace lumen::model::compress {

const Preparation& activation_aware();  // activation_aware.cpp
const Preparation& smoothing();         // smoothing.cpp
const Preparation& even_keys();         // even_keys.cpp

}  // namespace lumen::model::compress
