// Any bytes as a plan, as messages and as an ask; what is accepted packs to the same bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "apps/recommend/channels.h"
#include "apps/recommend/wire.h"
#include "base/check.h"
#include "base/error.h"
#include "tests/fuzz/mutators/binary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    LUMEN_CHECK(recommend::pack_plan(recommend::unpack_plan(bytes, "fuzz.plan")) == bytes);
  } catch (const Error&) {
  }
  try {
    LUMEN_CHECK(recommend::pack_ask(recommend::unpack_ask(bytes)) == bytes);
  } catch (const Error&) {
  }
  try {
    std::string left = bytes;
    while (const auto message = recommend::take_message(left, 4096)) LUMEN_CHECK(message->content.size() <= 4096);
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
