// Image corruptions, as by bad cameras and weather, to test ranges that were calibrated on clean images. Proved
// by tests/apps/classify/classify_test.cpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "apps/images/images.h"

namespace lumen::classify {

// `several` is up to three of the others, one after another, each a degree milder.
enum class Corruption : uint8_t { noise, blur, pixels, levels, shift, brightness, contrast, several };
inline constexpr int kCorruptions = 8;
std::string_view corruption_name(Corruption c);

// Corrupts image number `which` with severity 1 to 5; deterministic by seed and number. Pixels stay within 0 .. 255.
void corrupt(apps::Images& images, int64_t which, Corruption how, int severity, uint64_t seed);
// Corrupts each image in a random way with a random severity of 3 to 5.
apps::Images corrupted(apps::Images images, uint64_t seed);

}  // namespace lumen::classify
