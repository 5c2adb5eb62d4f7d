// Any bytes as a grammar, or as a JSON schema; what is accepted takes bytes in bounded time and memory.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/structured/json.h"
#include "model/infer/grammar/grammar_states.h"
#include "model/infer/schema/schema.h"
#include "tests/fuzz/mutators/words.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with('{')) {
      parse_json(text, "fuzz.json");
      text = model::infer::schema_grammar(nlohmann::ordered_json::parse(text));
    }
    model::infer::GrammarMatcher m(std::make_shared<const model::infer::Grammar>(model::infer::Grammar::parse(text)));
    for (const char c : std::string_view("{\"a\": [1, \"x\"]} aabb((hello 안녕"))
      if (!m.accept(std::string_view(&c, 1))) m.may_end();
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_grammar, 0)
