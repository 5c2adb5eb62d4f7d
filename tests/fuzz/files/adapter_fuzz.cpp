// Adapters: a GGUF file, or a line of adapter_config.json and then any bytes as adapter_model.safetensors. An Error is
// an answer; a crash, a hang or an allocation out of proportion is a find.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/adapter/adapter.h"
#include "tests/fuzz/mutators/binary.h"
#include "tests/fuzz/mutators/json.h"

namespace {

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The configuration's line, or the tensors behind it.
void change_adapter(std::string& text, mutators::Chance& chance) {
  const size_t end = std::min(text.find('\n'), text.size());
  if (text.starts_with("GGUF") || chance() % 2 == 0) return mutators::change_binary(text, chance);
  std::string line = text.substr(0, end);
  mutators::change_json(line, chance);
  text.replace(0, end, line);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const model::arch::Model base = [] {
    const auto family = model::arch::Library::builtin()->family("llama");
    return model::arch::initialise(family,
                                   family->config("", {{"vocab", 61},
                                                       {"hidden", 32},
                                                       {"layers", 2},
                                                       {"heads", 4},
                                                       {"kv_heads", 2},
                                                       {"ffn", 44},
                                                       {"context", 64}}),
                                   1);
  }();
  static const std::filesystem::path folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-fuzz-XXXXXX").string();
    LUMEN_CHECK(mkdtemp(name.data()));
    return std::filesystem::path(name);
  }();
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const bool is_gguf = all.starts_with("GGUF");
  const size_t end = all.find('\n');
  if (!is_gguf && end == std::string_view::npos) return 0;
  if (is_gguf) {
    write(folder / "a.gguf", all);
  } else {
    write(folder / "adapter_config.json", all.substr(0, end));
    write(folder / "adapter_model.safetensors", all.substr(end + 1));
  }
  try {
    const model::arch::Adapter adapter = model::arch::read_adapter(base, is_gguf ? folder / "a.gguf" : folder);
    for (const auto& [name, part] : adapter.parts) {
      const model::arch::Parameter* p = base.find(name);
      LUMEN_CHECK(p && part.a.columns() + part.b.rows() > 0 && part.rank() > 0);
    }
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(change_adapter, 0)
