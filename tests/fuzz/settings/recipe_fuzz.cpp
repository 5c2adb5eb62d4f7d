// Any bytes as a recipe; what is accepted is printed, read again and is the same.
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "model/recipe/recipe.h"
#include "tests/fuzz/mutators/words.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  try {
    const model::recipe::Recipe recipe =
        model::recipe::parse_recipe({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    const std::string text = model::recipe::describe(recipe);
    try {
      LUMEN_CHECK(model::recipe::describe(model::recipe::parse_recipe(text, "again.toml")) == text,
                  "another recipe came back");
    } catch (const Error& e) {
      LUMEN_CHECK(false, "what was printed is refused: {}", e.what());
    }
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_settings, 0)
