// A line of quantization_config, then any bytes as a safetensors file: a module's packed weight read as a format. An
// Error is an answer; a crash, a hang or an allocation out of proportion is a find.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/packed/packed.h"
#include "model/file/safetensors.h"
#include "number/codec/codec.h"
#include "tests/fuzz/mutators/binary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  static const FormatLibrary formats = FormatLibrary::builtin();
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = all.find('\n');
  if (end == std::string_view::npos) return 0;
  try {
    nlohmann::json config;
    config["quantization_config"] = parse_json(std::string(all.substr(0, end)), "config.json");
    const auto packed = model::arch::PackedCheckpoint::of(config, "fuzz");
    if (!packed) return 0;
    const std::string_view rest = all.substr(end + 1);
    const model::file::SafetensorsFile file({reinterpret_cast<const std::byte*>(rest.data()), rest.size()},
                                            "fuzz.safetensors", formats);
    // What the seeds hold, and a shape that fits none of them.
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{32, 128}, {3, 40}}) {
      if (!packed->holds(file, "m.weight")) continue;
      std::set<std::string> used;
      const model::arch::Weight w =
          packed->read(file, "m.weight", {graph::Dim(rows), graph::Dim(columns)}, formats, used);
      LUMEN_CHECK(w.rows() == rows && w.columns() == columns);
      decode(*w.type.element.format, w.bytes, rows, columns);
    }
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
