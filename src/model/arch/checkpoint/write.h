// Models to files. GGUF: loadable by other programs when every weight's format has a GGUF type; HF folders hold f32 or
// formats with a safetensors dtype. Both are atomic. Proved by tests/model/arch/arch_test.cpp.
#pragma once

#include <filesystem>
#include <functional>

#include "model/arch/model.h"

namespace lumen::model {

// An optional parameter with the values it would get anyway by the config `back`, the one a reader of the file will
// see: it is not written.
bool is_omitted(const Model& model, const Parameter& p, const graph::Config& back);

// Makes the weights of which a model has the type alone, each when its turn to be written comes, so that they are never
// held together.
using WeightSource = std::function<Weight(const Parameter&)>;

// A weight of the model, made where the model has its type alone.
Weight fetched(const Model& model, const Parameter& p, const WeightSource& source);

// Where a model is written to, and as what.
struct Destination {
  std::filesystem::path path;
  std::string form = kGguf;  // one of output_forms()
  int64_t part_bytes = 0;    // > 0: several files of about that size each
  int file_type = -1;  // of GGUF files general.file_type, a label; -1: that of the format most weights are in, or 0

  static constexpr const char* kGguf = "gguf";
  static constexpr const char* kFolder = "hf";
  bool is_gguf() const { return form == kGguf; }
};

// "gguf" (a file; in parts PREFIX-00001-of-00003.gguf for PREFIX.gguf), "hf" (a Hugging Face folder with weights as
// they are named there; in parts model-00001-of-00003.safetensors and an index), and the names by which
// models/checkpoints.toml writes folders of packed weights.
std::vector<std::string> output_forms();

// Whether such files have rounded weights of stacked matrices alone, the others in floats.
bool takes_stacked_alone(const std::string& form);

// Error when a weight is held in what such files have no place for. Bytes of weights are not looked at.
void require_writable_as(const Model& model, const std::string& form);

// Writes weights in the file's order, each asked from `source` where the model has its type alone, so that one at a
// time is held. Nothing appears at the path before all is written.
void write_model(const Model& model, const Destination& to, const WeightSource& source = {});

void write_gguf(const Model& model, const std::filesystem::path& path, int file_type = -1, int64_t split_bytes = 0,
                const WeightSource& source = {});
void write_hf(const Model& model, const std::filesystem::path& folder, const WeightSource& source = {});

}  // namespace lumen::model
