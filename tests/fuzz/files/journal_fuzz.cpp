// Any bytes as the journal of a work folder, under a seal that is right, beside one part that is there: what is told of
// parts and values is read within its bounds, or computed again.
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/sealed/sealed.h"
#include "model/compress/layers/journal.h"
#include "tests/fuzz/mutators/json.h"
#include "tests/fuzz/rows/read_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const std::filesystem::path folder = [] {
    std::filesystem::path made = fuzz::folder() / "work";
    const model::compress::Journal journal(made, "k", false);
    return made;
  }();
  static SealedFolder& files = *new SealedFolder(folder, {.quiet = true});
  if (size == 0) return 0;
  // A journal that is no journal takes it along.
  if (!std::filesystem::exists(files.path() / "work" / "part-00000"))
    files.write("work", "part-00000", std::string(64, '\0'));
  files.write("work", "journal", {reinterpret_cast<const char*>(data), size});
  try {
    const model::compress::Journal journal(folder, "k", false);
    for (size_t part = 0; part < journal.end(); ++part) {
      if (!journal.has(part)) continue;
      for (const auto& [name, shape] : journal.weights(part)) {
        const auto weight = journal.weight(name, nullptr, part + 1);
        LUMEN_CHECK(weight && weight->bytes.size() <= 64);
        // Only zeros are there.
        for (size_t i = 0; i < weight->bytes.size(); ++i) LUMEN_CHECK(weight->bytes.data()[i] == 0);
      }
      journal.values(part);
    }
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_json, 0)
