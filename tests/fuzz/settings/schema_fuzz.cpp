// Any bytes as a JSON schema: it becomes a grammar that takes texts in bounded time, or is refused.
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "model/infer/grammar/grammar_states.h"
#include "model/infer/schema/schema.h"
#include "tests/fuzz/mutators/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  try {
    const auto schema = parse_ordered_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    const std::string text = model::infer::schema_grammar(schema);
    model::infer::GrammarMatcher m(std::make_shared<const model::infer::Grammar>(model::infer::Grammar::parse(text)));
    for (const char c : std::string_view(R"({"a": [1, "x"], "b": {"c": null}, "d": -1.5e3})"))
      if (!m.accept(std::string_view(&c, 1))) m.may_end();
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_json, 0)
