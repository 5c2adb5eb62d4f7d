// Flags of commands that generate text with a model: what is drawn, and where it ends.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/names.h"
#include "model/infer/generate/generate.h"

namespace lumen::cli {

struct SamplingFlags {
  model::SamplerOptions sampling;
  model::GenerateOptions generate;
  model::SessionOptions session;
  CacheTypes cache;
  int64_t seed = -1;
  std::vector<std::string> bias, dry_breakers = {"\n", ":", "\"", "*"};
  std::string grammar_file, schema, schema_file;

  void add_flags(CLI::App& app);
  // Fills the options with what depends on the model (which has a tokenizer) and on files. Draws a seed where none was
  // given.
  void finish(const model::Model& model, const model::Library& library);
};

// Says so when positions are scaled by the length that the context allows, so that another context gives another text.
void note_length(const model::LoadedModel& loaded, const model::SessionOptions& session);

}  // namespace lumen::cli
