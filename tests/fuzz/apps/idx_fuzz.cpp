// Any bytes as two IDX files, parted by the first byte; what is accepted is written back as it was.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/images/images.h"
#include "base/check.h"
#include "base/error.h"
#include "tests/fuzz/mutators/binary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view labels = all.substr(all.size() - std::min<size_t>(all.size(), data[0]));
  const std::string_view images = all.substr(0, all.size() - labels.size());
  try {
    const apps::Images read = apps::parse_idx(images, labels, "fuzz");
    LUMEN_CHECK(read.count == std::ssize(read.labels) &&
                read.count * read.height * read.width * read.channels == std::ssize(read.pixels));
    const auto [a, b] = apps::idx_bytes(read);
    LUMEN_CHECK(b == labels && a.size() <= images.size());
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
