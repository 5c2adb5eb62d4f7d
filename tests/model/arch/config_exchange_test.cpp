// needs: a folder named by LUMEN_CONFIGS_DIR; run by config_reference.py, which lays out small models there and judges
// what is said of them here: how far our logits are from those expected, or why a folder is refused. Each is written
// as GGUF, and from there as a folder again.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

nlohmann::json judged(const fs::path& folder) {
  nlohmann::json out;
  try {
    const Model m = read_hf(test_library(), folder);
    const Expected e(folder.string());  // absolute
    const infer::LoadedModel loaded(engine(), m);
    const auto logits = forward(m, loaded, e, e.batch, e.length, e.file.find("encodes") ? "hidden" : "forward");
    double off = 0;
    for (int64_t r = 0; r < e.batch; ++r) off = std::max(off, e.off_text(logits, r, r));
    out["off"] = std::isfinite(off) ? off : 1e30;
    write_gguf(m, folder / "m.gguf");
    write_hf(read_gguf(test_library(), folder / "m.gguf"), folder / "back");
  } catch (const Error& e) {
    out["refused"] = e.what();
  }
  return out;
}

TEST(ConfigExchange, Folders) {
  const char* named = std::getenv("LUMEN_CONFIGS_DIR");
  if (!named) GTEST_SKIP() << "run tests/model/arch/config_reference.py THIS_PROGRAM";
  nlohmann::json all = nlohmann::json::object();
  for (const auto& entry : fs::directory_iterator(named))
    if (entry.is_directory()) all[entry.path().filename().string()] = judged(entry.path());
  write_file_atomic(fs::path(named) / "judged.json", all.dump(1));
}

}  // namespace
}  // namespace lumen::model::arch
