// Pictures of images side by side, as PNG files. Proved by tests/apps/images/images_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lumen::apps {

// Images [N, S, S, C] in -1 .. 1 in rows of `columns`, a line between them; C is 1 or 3. The file's bytes.
std::string picture_of(std::span<const float> images, int64_t size, int64_t channels, int64_t columns);

// The same as what `src` of an <img> may be: data:image/png;base64,..
std::string picture_uri(const std::string& png);

}  // namespace lumen::apps
