// Options of commands that generate text: sampling, and when generation ends.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/infer/invariance.h"
#include "cli/names.h"
#include "model/infer/generate/generate.h"

namespace lumen::cli {

struct SamplingFlags {
  model::infer::SamplerOptions sampling;
  model::infer::GenerateOptions generate;
  model::infer::SessionOptions session;
  CacheTypes cache;
  InvarianceFlag invariance;  // to choose when there is an engine
  int64_t seed = -1;
  std::vector<std::string> bias, dry_breakers = {"\n", ":", "\"", "*"};
  std::string grammar_file, schema, schema_file;

  void add_flags(CLI::App& app);
  // Completes the options with values that depend on the model (which has a tokenizer) and on files. Draws a random
  // seed where none was given.
  void finish(const model::arch::Model& model, const model::arch::Library& library);
};

// Prints a note when the model scales positions by the context length, because another context then gives other output.
void note_length(const model::infer::LoadedModel& loaded, const model::infer::SessionOptions& session);

}  // namespace lumen::cli
