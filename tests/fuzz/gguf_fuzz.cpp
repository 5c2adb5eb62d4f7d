// Any bytes as a GGUF file: read, every tensor joined, the tokenizer in it made. An Error is an answer; a crash, a hang
// or an allocation out of proportion is a find.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"
#include "tests/fuzz/mutators/binary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const FormatLibrary formats = FormatLibrary::builtin();
  try {
    const model::file::GgufFile file({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf", formats);
    for (const auto& [key, value] : file.metadata().entries()) model::file::gguf_print(value);
    for (const model::file::StoredTensor& t : file.tensors()) {
      // Sections are padded to 64 bytes in memory; beyond that a blob is no larger than what the file holds of it.
      LUMEN_CHECK(t.blob_bytes() <= static_cast<int64_t>(size) + 64 * kLevels);
      t.blob();
    }
    const model::text::Tokenizer tokenizer = model::text::Tokenizer::from_gguf(file.metadata());
    tokenizer.decode(tokenizer.encode("Any 1 text."));
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
