// Any bytes as a safetensors file. An Error is an answer; a crash, a hang or an allocation out of proportion is a find.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "model/file/safetensors.h"
#include "tests/fuzz/mutators/binary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const FormatLibrary formats = FormatLibrary::builtin();
  try {
    const model::file::SafetensorsFile file({reinterpret_cast<const std::byte*>(data), size}, "fuzz.safetensors",
                                            formats);
    for (const model::file::StoredTensor& t : file.tensors()) {
      LUMEN_CHECK(t.blob_bytes() <= static_cast<int64_t>(size) + 64 * kLevels);
      t.blob();
    }
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
