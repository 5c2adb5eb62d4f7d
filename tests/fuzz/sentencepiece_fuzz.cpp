// Any bytes as a SentencePiece file; what is accepted encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "model/text/tokenizer/tokenizer.h"
#include "tests/fuzz/mutators/binary.h"
#include "tests/fuzz/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  try {
    const auto t =
        model::text::Tokenizer::from_sentencepiece({reinterpret_cast<const char*>(data), size}, "fuzz.model");
    t.decode(t.encode("Hello wörld 안녕  \xff end ▁▁", {.add_special = true, .parse_special = true}));
    model::text::Tokenizer::from_json(t.to_json(), "again.json");
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
