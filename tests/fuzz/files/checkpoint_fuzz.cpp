// Any bytes as the state of a checkpoint, beside files that the saved corpus tells the truth about.
#include <string>

#include "base/check.h"
#include "model/file/checkpoint.h"
#include "number/library/library.h"
#include "tests/fuzz/mutators/json.h"
#include "tests/fuzz/rows/read_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const FormatLibrary formats = FormatLibrary::builtin();
  static const std::filesystem::path folder = [] {
    const std::filesystem::path out = fuzz::folder() / "out";
    model::file::CheckpointContent content;
    content.state.step = 3;
    content.state.config = "[run]\nseed = 1\n";
    content.weights = {{.name = "w", .shape = {2, 2}}};
    content.optimizer = {{.name = "m", .shape = {3}}};
    static const std::vector<uint8_t> zeros(64);
    content.fetch = [](const model::file::TensorSpec& spec) {
      return std::span<const uint8_t>(zeros).subspan(0, spec.name == "w" ? 16 : 12);
    };
    content.files["config.json"] = "{}";
    std::filesystem::create_directories(out);
    return model::file::save_checkpoint(out, content);
  }();
  if (size == 0) return 0;
  std::ofstream(folder / "trainer_state.json", std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const model::file::Checkpoint checkpoint = model::file::load_checkpoint(folder, formats);
    LUMEN_CHECK(checkpoint.state.step >= 0 && checkpoint.weights && checkpoint.optimizer);
  } catch (const Error&) {
  }
  model::file::list_checkpoints(folder.parent_path());
  return 0;
}

FUZZ_MUTATOR(mutators::change_json, 0)
