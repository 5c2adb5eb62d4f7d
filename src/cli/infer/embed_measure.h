// Compares the embedding vectors of several models: their cosine similarity to the first model's vectors, and how well
// cosines of sentence pairs correlate with human similarity scores. Proved by tests/cli/embed_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "cli/adapters.h"
#include "cli/command.h"
#include "model/infer/measure/embed.h"

namespace lumen::cli {

// Options of `lumen embed`.
struct EmbedFlags {
  std::string model, file, pooling, prompt_name, form = "plain", out, pairs, fields = "sentence1,sentence2,score";
  std::vector<std::string> inputs, against;
  int norm = 2;
  bool cosine = false, truncate = false;
  model::infer::EmbedOptions options;
  AdapterFlags adapters;
};

// One vector per input, or one per token (pooling "none").
struct EmbeddedInputs {
  std::vector<model::infer::Embedder::Vectors> vectors;
  int64_t tokens = 0, cut = 0;  // totals over all inputs; `cut`: truncated inputs
  int64_t size = 0;             // components of a vector
  double seconds = 0;           // without compiling and loading
};
// Embeds the inputs with the model in flags.model or another one. Throws Exit::interrupted when stopped.
EmbeddedInputs embed_inputs(const Shared& shared, const EmbedFlags& flags, const model::arch::Model& model,
                            const std::string& path, const std::vector<std::string>& inputs);
// The pooling option; when it is empty, the model's own, or a default with a note where the model defines none.
model::infer::Pooling embed_pooling(const EmbedFlags& flags, const model::arch::Model& model, const std::string& path);

// A report that compares flags.against with flags.model on flags.pairs, or on `inputs` where there are no pairs.
std::string measure_embeddings(const Shared& shared, const EmbedFlags& flags, std::vector<std::string> inputs);

}  // namespace lumen::cli
