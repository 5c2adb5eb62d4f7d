// Small models and folders of packed weights for tests of what a folder says beside them.
#pragma once

#include <functional>
#include <string>

#include "base/file/file.h"
#include "base/structured/json.h"
#include "graph/transform/layers.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "number/codec/codec.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {

inline const FormatLibrary& known_formats() {
  return test_library()->formats();
}

// Two layers whose rows divide into blocks of 128.
inline Model packable_llama(bool tied = false) {
  const FamilyRef family = test_library()->family("llama");
  return initialise(family,
                    family->config("", {{"vocab", 32},
                                        {"hidden", 128},
                                        {"layers", 2},
                                        {"heads", 4},
                                        {"kv_heads", 2},
                                        {"ffn", 256},
                                        {"context", 16},
                                        {"tied", tied ? 1 : 0}}),
                    1);
}

inline Model rounded_to(const Model& m, const std::string& type, bool stacked = false) {
  compress::QuantizeOptions o;
  o.target = type;
  o.pure = true;
  o.linear_layers = true;
  o.stacked = stacked;
  o.fallbacks = {"bf16"};
  return quantize(engine(), m, o, nullptr);
}

inline nlohmann::json quantization_of(const std::filesystem::path& folder) {
  return parse_json(read_file(folder / "config.json"), "config.json").at("quantization_config");
}

// Changes what a folder's config.json says of its packed weights.
inline void change_quantization(const std::filesystem::path& folder,
                                const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json config = parse_json(read_file(folder / "config.json"), "config.json");
  change(config.at("quantization_config"));
  write_file_atomic(folder / "config.json", config.dump());
}

// What reading the folder says is wrong; empty when nothing is.
inline std::string refusal_of(const std::filesystem::path& folder) {
  try {
    (void)read_hf(test_library(), folder);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

}  // namespace lumen::model::arch
