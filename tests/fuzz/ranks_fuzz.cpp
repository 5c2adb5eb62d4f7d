// Any bytes as a file of ranks; what is accepted encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "model/text/tokenizer/file/ranks.h"
#include "model/text/tokenizer/tokenizer.h"
#include "tests/fuzz/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (!model::text::is_ranks(text)) return 0;
    const auto t =
        model::text::Tokenizer::from_json(model::text::ranks_as_json(text, "qwen.tiktoken", ""), "fuzz.tiktoken");
    t.decode(t.encode("Hello wörld 안녕  \xff end", {.add_special = true, .parse_special = true}));
    model::text::Tokenizer::from_json(t.to_json(), "again.json");
  } catch (const Error&) {
  }
  return 0;
}
