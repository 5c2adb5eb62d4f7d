// Any bytes as a tokenizer.json; what is accepted must survive being written and read again, and encode a text as
// before.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "model/text/tokenizer/tokenizer.h"
#include "tests/fuzz/mutators/json.h"
#include "tests/fuzz/table.h"

namespace {

std::optional<std::vector<lumen::model::text::TokenId>> ids(const lumen::model::text::Tokenizer& t) {
  try {
    return t.encode("Hello wörld 123\n\n  it's <s> \xff end", {.add_special = true, .parse_special = true});
  } catch (const lumen::Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  try {
    const auto t = model::text::Tokenizer::from_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    const auto before = ids(t);
    if (before) t.decode(*before);
    std::string written;
    try {
      written = t.to_json();
      LUMEN_CHECK(ids(model::text::Tokenizer::from_json(written, "again.json")) == before,
                  "another tokenizer came back");
    } catch (const Error& e) {
      LUMEN_CHECK(false, "what was written is refused: {}", e.what());
    }
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_json, 0)
