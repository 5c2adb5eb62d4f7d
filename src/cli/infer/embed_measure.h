// Vectors of several models measured side by side: how close those of others are to those of the first, and how well
// cosines of pairs of texts follow scores that people gave. Proved by tests/cli/embed_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "cli/adapters.h"
#include "cli/command.h"
#include "model/infer/measure/embed.h"

namespace lumen::cli {

// What `lumen embed` computes vectors with.
struct EmbedFlags {
  std::string model, file, pooling, form = "plain", out, pairs, fields = "sentence1,sentence2,score";
  std::vector<std::string> inputs, against;
  int norm = 2;
  bool cosine = false, truncate = false;
  model::EmbedOptions options;
  AdapterFlags adapters;
};

// A vector of each input, or one of each token (none).
struct EmbeddedInputs {
  std::vector<model::Embedder::Vectors> vectors;
  int64_t tokens = 0, cut = 0;  // of all inputs; inputs whose end was left out
  int64_t size = 0;             // numbers of a vector
  double seconds = 0;           // without compiling and reading
};
// By the model in flags.model or another one. Throws Exit::interrupted when stopped.
EmbeddedInputs embed_inputs(const Shared& shared, const EmbedFlags& flags, const model::Model& model,
                            const std::string& path, const std::vector<std::string>& inputs);
// Empty: the model's own, told with a note where it says nothing.
model::Pooling embed_pooling(const EmbedFlags& flags, const model::Model& model, const std::string& path);

// A report on flags.model and flags.against over flags.pairs, or over `inputs` where there are no pairs.
std::string measure_embeddings(const Shared& shared, const EmbedFlags& flags, std::vector<std::string> inputs);

}  // namespace lumen::cli
