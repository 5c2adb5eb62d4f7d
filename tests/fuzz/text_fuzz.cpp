// Any bytes as a text: every byte comes back through encode and decode, and a stream gives the same text, repaired. A
// vocabulary may lack bytes that no valid UTF-8 has: then the text is refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/text/unicode/unicode.h"
#include "tests/fuzz/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::model::text;
  // Elsewhere than the source tree's where the program was packed (pack_fuzz.sh).
  const char* packed = std::getenv("LUMEN_FUZZ_FIXTURES");
  static const std::string folder =
      std::string(packed != nullptr ? packed : LUMEN_SOURCE_DIR "/tests/model/fixtures") + "/tokenizers/";
  static const Tokenizer tokenizers[] = {Tokenizer::load(folder + "gpt-2.gguf"),
                                         Tokenizer::load(folder + "deepseek-llm.gguf"),
                                         Tokenizer::load(folder + "ax-3.1-light.json")};
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const Tokenizer& t : tokenizers) {
    std::vector<TokenId> ids;
    try {
      ids = t.encode(text);
    } catch (const lumen::Error&) {
      LUMEN_CHECK(utf8_repair(text) != text, "a valid text is refused");
      continue;
    }
    LUMEN_CHECK(t.decode(ids) == text, "the text does not come back");
    TokenStream stream(t);
    std::string out;
    for (const TokenId id : ids) out += stream.push(id);
    LUMEN_CHECK(out + stream.finish() == utf8_repair(text), "the stream gives another text");
  }
  return 0;
}
