// Writes models. GGUF: other programs can load it when every weight's format has a GGUF type; HF folders hold f32 or
// formats with a safetensors dtype. Both are atomic. Proved by tests/model/arch/arch_test.cpp.
#pragma once

#include <filesystem>
#include <functional>

#include "model/arch/model.h"

namespace lumen::model::arch {

// Whether an optional parameter has the values that it would get by default with the config `back`, which a reader of
// the file will get: it is then not written.
bool is_omitted(const Model& model, const Parameter& p, const graph::Config& back);

// Creates weights of which a model has only the type, each when it is written, so that they are never in memory
// together.
using WeightSource = std::function<Weight(const Parameter&)>;

// A weight of the model, created where the model has only its type.
Weight fetched(const Model& model, const Parameter& p, const WeightSource& source);

// The path and format of a written model.
struct Destination {
  std::filesystem::path path;
  std::string form = kGguf;  // one of output_forms()
  int64_t part_bytes = 0;    // > 0: splits into shards of about this size
  int file_type = -1;        // of GGUF files: general.file_type; -1: that of the format of most weights, or 0

  static constexpr const char* kGguf = "gguf";
  static constexpr const char* kFolder = "hf";
  bool is_gguf() const { return form == kGguf; }
};

// "gguf" (a file; if split, PREFIX-00001-of-00003.gguf for PREFIX.gguf), "hf" (a Hugging Face folder; if split, shards
// model-00001-of-00003.safetensors and an index), and the names of packed folders in models/checkpoints.toml.
std::vector<std::string> output_forms();

// Whether such files pack only stacked matrices and store other weights as floats.
bool takes_stacked_alone(const std::string& form);

// Error when such files cannot hold a weight's format. Bytes of weights are not read.
void require_writable_as(const Model& model, const std::string& form);

// Writes weights in file order, each requested from `source` where the model has only its type, so that one at a time
// is in memory. Nothing exists at the path until everything is written.
void write_model(const Model& model, const Destination& to, const WeightSource& source = {});

void write_gguf(const Model& model, const std::filesystem::path& path, int file_type = -1, int64_t split_bytes = 0,
                const WeightSource& source = {});
void write_hf(const Model& model, const std::filesystem::path& folder, const WeightSource& source = {});

}  // namespace lumen::model::arch
