// A model as a value: a family, its config, its weights in host memory and its tokenizer. Weights are f32 or blobs of a
// format. Reading and writing: read.h, write.h. Proved by tests/model/arch/arch_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/pass/pass.h"
#include "model/arch/bytes.h"
#include "model/arch/family/family.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::arch {

struct Weight {
  graph::Type type;  // numeric dims; element f32 or a format
  Bytes bytes;       // byte_size(type)

  bool is_f32() const { return !type.element.format; }
  int64_t rows() const;  // all dims but the last; 1 for vectors
  int64_t columns() const;
  double bits_per_weight() const;
  std::span<const float> f32() const;  // LUMEN_CHECKs is_f32()
};
Weight f32_weight(const graph::Shape& shape, std::span<const float> values);

struct Model {
  std::string name;
  FamilyRef family;
  graph::Config config;
  std::vector<Parameter> parameters;      // those that this model has, in the family's order
  std::map<std::string, Weight> weights;  // by parameter name, exactly `parameters`
  std::optional<text::Tokenizer> tokenizer;
  file::GgufMetadata metadata;  // of the source file, preserved when the model is written
  // Small files of the source HF folder, by name (config.json, chat_template.jinja, ..), preserved likewise.
  std::map<std::string, std::string> files;

  int64_t integer(const std::string& key) const;  // config value; LUMEN_CHECK when missing
  int64_t weight_count() const;  // without low-rank branches, whose bytes count as those of their weights
  int64_t weight_bytes() const;
  const Parameter* find(const std::string& parameter) const;
};

// Fresh weights: normal(init_scale), ones, zeros; matrices that write into the residual stream (init "residual") are
// divided by sqrt(2 * layers). Counter-based random numbers: a function of (seed, parameter number, element) only.
Weight initial_weight(const Family& family, const graph::Config& config, const Parameter& p, uint32_t seed,
                      uint32_t salt);
Model initialise(FamilyRef family, const graph::Config& config, uint32_t seed);
// The same model without weights: only parameters.
Model outline(FamilyRef family, const graph::Config& config);

// Assignments that give each graph input the element type of its weight.
std::vector<graph::FormatAssignment> stored_formats(const Model& model);
// The same for a graph that does not use all weights.
std::vector<graph::FormatAssignment> stored_formats(const Model& model, const graph::Graph& used);

// The format whose one field is exactly this scalar type, or null: f16 and bf16 tensors use such formats.
FormatRef format_of_scalar(const FormatLibrary& formats, Scalar scalar);
// Whether a format's values are stored as plain f32.
bool is_plain(const Format& format, Scalar scalar);

}  // namespace lumen::model::arch
