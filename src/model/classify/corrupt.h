// Images as bad cameras and weather leave them: what ranges that were calibrated on good ones are tried with. Proved
// by tests/model/classify/classify_test.cpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/images/images.h"

namespace lumen::model {

// `several` is up to three of the others, one after another, each a degree milder.
enum class Corruption : uint8_t { noise, blur, pixels, levels, shift, brightness, contrast, several };
inline constexpr int kCorruptions = 8;
std::string_view corruption_name(Corruption c);

// Image number `which`, of severity 1 to 5, the same for the same seed and number. Pixels stay within 0 .. 255.
void corrupt(Images& images, int64_t which, Corruption how, int severity, uint64_t seed);
// Each image by a random one of all and a random severity of 3 to 5.
Images corrupted(Images images, uint64_t seed);

}  // namespace lumen::model
