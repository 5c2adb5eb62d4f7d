// Any bytes as a table of interactions; what is accepted is split and read back.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/recommend/interactions.h"
#include "base/check.h"
#include "base/error.h"
#include "tests/fuzz/mutators/words.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  try {
    const recommend::Interactions all =
        recommend::parse_interactions({reinterpret_cast<const char*>(data), size}, "fuzz.txt");
    for (const auto& user : all.users)
      for (const recommend::ItemId item : user) LUMEN_CHECK(item >= 1 && item <= all.items());
    const recommend::Split split(all);
    for (const int64_t user : split.tested) LUMEN_CHECK(split.answer(user, true) >= 1);
    (void)recommend::filtered(all, 2, 2);
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_table, 0)
