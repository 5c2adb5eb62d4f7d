// Texts as vectors: what a model's last layer says about each token, pooled. Nothing here knows the family: it needs a
// function `hidden`. Proved by tests/model/infer/embed_test.cpp.
#pragma once

#include <filesystem>
#include <optional>

#include "model/infer/session/session.h"

namespace lumen::model {

enum class Pooling { none, mean, first, last };

// What a model says about itself: the key {a}.pooling_type of a GGUF file, or 1_Pooling/config.json of a folder.
// Nothing where it says nothing; Error where it says what is not known here.
std::optional<Pooling> pooling_of(const Model& model, const std::filesystem::path& path);

struct EmbedOptions {
  int64_t context = 0;  // tokens of a text at most; 0: the model's context
  bool exact = false;   // f32 activations throughout
};

class Embedder {
 public:
  explicit Embedder(const LoadedModel& loaded, EmbedOptions options = {});
  int64_t size() const { return size_; }  // numbers of a vector

  // One vector, or one for each token (none). Error when the text is empty or too long.
  std::vector<std::vector<float>> embed(std::span<const TokenId> tokens, Pooling pooling);

 private:
  struct Width {
    int64_t tokens;
    std::shared_ptr<run::Program> program;
    run::DeviceTensorRef in;
  };
  const Width& width_for(int64_t count);

  const LoadedModel& loaded_;
  EmbedOptions options_;
  graph::Graph graph_;
  int64_t size_ = 0;
  std::deque<Width> widths_;
};

// Divided by its norm: p = 2 the length, 1 the sum of magnitudes, any other above 0 likewise; 0: the largest magnitude
// becomes 32760; negative: as it is. A vector of zeros stays.
void normalise(std::vector<float>& vector, int p);
double cosine(std::span<const float> a, std::span<const float> b);  // 0 when one is zero

}  // namespace lumen::model
