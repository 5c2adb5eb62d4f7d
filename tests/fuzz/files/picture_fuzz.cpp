// Any bytes as a picture's file. An Error is an answer; a crash, a hang or an allocation out of proportion is a find.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/image/image.h"
#include "tests/fuzz/mutators/binary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  try {
    const model::image::Limits limits{.pixels = 1 << 20, .side = 1 << 12};
    const model::image::Image image =
        model::image::read_image({reinterpret_cast<const char*>(data), size}, "fuzz", limits);
    LUMEN_CHECK(image.width > 0 && image.height > 0 && std::ssize(image.rgb) == image.width * image.height * 3);
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
