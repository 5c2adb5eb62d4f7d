// What a client does in a round: it trains the server's weights on its own data, in float, quantized once before the
// round (P) or in every step (Q), and sends what changed in a format, keeping what rounding left for the next time.
//
//   P  weights (rows: what one output reads) are encoded once, and again every `refresh` steps or once in each further
//      epoch; ranges of what products read are the largest of the first batches, and stay. Products read decoded codes
//      in both passes, so gradients pass straight through, whatever was clipped; the float master takes them.
//   Q  weights are encoded in every step, ranges follow by a moving mean of the largest, and what a range clipped has
//   no
//      gradient.
//
// Proved by tests/model/federate/local_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/federate/federate.h"

namespace lumen::model {

// Formats by role; null: float. `activations` has one scale for the whole tensor and nothing else beside its codes.
struct OperandChoice {
  FormatRef weights, activations;
  FormatRef gradients;  // P: of outputs, where they are multiplied by weights; fitted in each step
  FormatRef upload;
};

struct LocalSettings {
  OperandChoice formats;
  int64_t epochs = 1, batch = 32;
  double rate = 0.05;
  int64_t refresh = 2;        // P: steps between encodings of the weights; 0: once for each epoch
  double range_keeps = 0.99;  // Q: how much of a range a step keeps
};

struct LocalResult {
  Weights weights;
  double first_loss = 0, last_loss = 0;  // of the first batch, and the mean over the last epoch
  double off = 0;                        // |w - Q(w)|^2 / |w|^2: w at the end, Q(w) as products last read it
  double set_up = 0, seconds = 0;        // of which the first are for ranges and codes before the first step
  int64_t steps = 0;
};

class LocalTrainer {
 public:
  // Error (usage) when activations' format has no single scale; compiles when first asked to train.
  LocalTrainer(run::Engine& engine, Network& network, LocalSettings settings);
  const LocalSettings& settings() const { return settings_; }

  // The order of batches follows from the seed. Error (exit 4) when a loss is not finite.
  LocalResult train(const Weights& global, const Examples& data, std::span<const int64_t> which,
                    ClientStrategy strategy, uint64_t seed);
  // Examples a second: steps of `strategy` on the first batch, for about so long.
  double rate(const Weights& global, const Examples& data, ClientStrategy strategy, double seconds);
  // Loss and gradients of one batch, as a step of `strategy` takes them whose ranges this batch decides.
  struct Gradients {
    double loss = 0;
    Weights gradients;
  };
  Gradients gradients(const Weights& at, const Examples& data, std::span<const int64_t> batch, ClientStrategy strategy);

 private:
  struct Site {
    std::string weight;
    int range = 0;  // of what the product reads
  };
  void define_changes();
  void calibrate(const Examples& data, const std::vector<std::vector<int64_t>>& batches);
  void hold(const Weights& master);
  void keep_ranges();
  Gradients step(const Weights& at, const Examples& data, std::span<const int64_t> batch, ClientStrategy strategy);
  void write(const Weights& weights);
  double off_by(const Weights& master, ClientStrategy strategy);

  run::Engine& engine_;
  Network& network_;
  LocalSettings settings_;
  std::vector<std::string> quantized_;  // weights that products read
  std::vector<float> ranges_;
  float largest_ = 1;  // that activations have under the scale 1
  Weights held_;       // as products read them
};

// A matrix in a format, rows as its first axis has them: columns are filled up with zeros to whole blocks.
std::vector<uint8_t> encoded_rows(run::Engine& engine, const FormatRef& format, std::span<const float> numbers,
                                  int64_t rows);
std::vector<float> decoded_rows(run::Engine& engine, const FormatRef& format, std::span<const uint8_t> blob,
                                int64_t rows, int64_t columns);
// Bytes of that.
int64_t encoded_bytes(const Format& format, int64_t rows, int64_t columns);

// What changed, tensor by tensor in the order of names: matrices in the format, vectors in f32.
struct ClientChange {
  std::vector<std::pair<std::string, std::vector<uint8_t>>> tensors;
  int64_t bytes() const;
};
// `residual` (nothing: zeros) is added before anything is rounded, and becomes what rounding left over. Null format:
// f32.
ClientChange encoded_change(run::Engine& engine, const Network& network, const FormatRef& format, const Weights& from,
                            const Weights& to, Weights* residual);
// Error when the tensors are not those of the network, or a number is not finite.
Weights decoded_change(run::Engine& engine, const Network& network, const FormatRef& format,
                       const ClientChange& change);
// Bytes that a change has in the format.
int64_t change_bytes(const Network& network, const FormatRef& format);

Weights weights_of(const Network& network);

// Share of the examples whose class has the largest logit; weights as they are given. At most `most` examples.
double accuracy_of(Network& network, const Weights& weights, const Examples& test, int64_t most);
// Weights as products would read them from codes.
Weights through_format(run::Engine& engine, const Network& network, const FormatRef& format, const Weights& weights);

}  // namespace lumen::model
