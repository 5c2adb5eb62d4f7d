// Any bytes as a TOML text (a recipe, a table of pre-tokenizers): every key asked for in every way, every place looked
// up.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/structured/toml.h"
#include "model/text/stages/pretokenizers.h"
#include "tests/fuzz/mutators/words.h"

namespace {

using lumen::Toml;

template <typename F>
void attempt(const F& deed) {
  try {
    deed();
  } catch (const lumen::Error&) {
  }
}

void walk(const Toml& t, int depth) {
  for (const std::string& key : t.keys()) {
    attempt([&] { t.text(key); });
    attempt([&] { t.integer(key); });
    attempt([&] { t.number(key); });
    attempt([&] { t.boolean(key); });
    attempt([&] { t.texts(key); });
    attempt([&] { t.numbers(key); });
    attempt([&] { t.integers(key); });
    lumen::render_diagnostic(t.place(key), "here", "");
    if (depth > 300) continue;
    attempt([&] {
      if (const auto below = t.table(key)) walk(*below, depth + 1);
    });
    attempt([&] {
      for (const Toml& below : t.tables(key)) walk(below, depth + 1);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const Toml t = Toml::parse(text, "fuzz.toml");
    attempt([&] { t.refuse_unknown(); });
    walk(t, 0);
    attempt([&] { t.refuse_unknown(); });
  });
  attempt([&] { lumen::model::text::read_pretokenizers(text, "fuzz.toml"); });
  return 0;
}

FUZZ_MUTATOR(mutators::change_settings, 0)
