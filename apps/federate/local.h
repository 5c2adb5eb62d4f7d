// A client's work in a round: it trains the server's weights on its own data, in float, quantized once before the round
// (P) or in every step (Q), and sends the change in a format, keeping the rounding error for the next round (error
// feedback).
//
//   P  weights (rows: inputs of one output) are encoded once, and again every `refresh` steps or once in each further
//      epoch; ranges of operands are the maxima over the first batches, and stay. Products read decoded codes in both
//      passes, so gradients pass straight through, even where values were clipped; they update the float master.
//   Q  weights are encoded in every step, ranges follow a moving average of maxima, and clipped values have no
//      gradient.
//
// Proved by tests/apps/federate/local_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/federate/federate.h"

namespace lumen::federate {

// Formats by role; null: float. `activations` has one scale for the whole tensor, and no other field than its codes.
struct OperandChoice {
  FormatRef weights, activations;
  FormatRef gradients;  // P: of outputs, as operands of products with weights; fitted in each step
  FormatRef upload;
};

struct LocalSettings {
  OperandChoice formats;
  int64_t epochs = 1, batch = 32;
  double rate = 0.05;
  int64_t refresh = 2;        // P: steps between encodings of the weights; 0: once per epoch
  double range_keeps = 0.99;  // Q: moving average factor of a range
};

struct LocalResult {
  Weights weights;
  double first_loss = 0, last_loss = 0;  // of the first batch, and the mean over the last epoch
  double off = 0;                        // |w - Q(w)|^2 / |w|^2: w at the end, Q(w) as products last read it
  double set_up = 0, seconds = 0;        // set_up: ranges and codes before the first step; included in seconds
  int64_t steps = 0;
};

class LocalTrainer {
 public:
  // Error (usage) when activations' format has no single scale; compiles at the first training.
  LocalTrainer(run::Engine& engine, apps::Network& network, LocalSettings settings);
  const LocalSettings& settings() const { return settings_; }

  // The order of batches follows from the seed. Error (exit 4) when a loss is not finite.
  LocalResult train(const Weights& global, const Examples& data, std::span<const int64_t> which,
                    ClientStrategy strategy, uint64_t seed);
  // Examples per second: steps of `strategy` on the first batch, for about `seconds`.
  double rate(const Weights& global, const Examples& data, ClientStrategy strategy, double seconds);
  // Loss and gradients of one batch, as in a step of `strategy` with this batch's ranges.
  struct Gradients {
    double loss = 0;
    Weights gradients;
  };
  Gradients gradients(const Weights& at, const Examples& data, std::span<const int64_t> batch, ClientStrategy strategy);

 private:
  struct Site {
    std::string weight;
    int range = 0;  // index of the other operand's range
  };
  void define_changes();
  void calibrate(const Examples& data, const std::vector<std::vector<int64_t>>& batches);
  void hold(const Weights& master);
  void keep_ranges();
  Gradients step(const Weights& at, const Examples& data, std::span<const int64_t> batch, ClientStrategy strategy);
  void write(const Weights& weights);
  double off_by(const Weights& master, ClientStrategy strategy);

  run::Engine& engine_;
  apps::Network& network_;
  LocalSettings settings_;
  std::vector<std::string> quantized_;  // weights that products read
  std::vector<float> ranges_;
  float largest_ = 1;  // largest decoded activation with scale 1
  Weights held_;       // as products read them
};

// A matrix in a format, rows along its first axis: columns are padded with zeros to whole blocks.
std::vector<uint8_t> encoded_rows(run::Engine& engine, const FormatRef& format, std::span<const float> numbers,
                                  int64_t rows);
std::vector<float> decoded_rows(run::Engine& engine, const FormatRef& format, std::span<const uint8_t> blob,
                                int64_t rows, int64_t columns);
// Bytes of encoded_rows().
int64_t encoded_bytes(const Format& format, int64_t rows, int64_t columns);

// The change of the weights, in the order of tensor names: matrices in the format, vectors in f32.
struct ClientChange {
  std::vector<std::pair<std::string, std::vector<uint8_t>>> tensors;
  int64_t bytes() const;
};
// `residual` (empty: zeros) is added before rounding, and becomes the new rounding error. Null format: f32.
ClientChange encoded_change(run::Engine& engine, const apps::Network& network, const FormatRef& format,
                            const Weights& from, const Weights& to, Weights* residual);
// Error when the tensors do not match the network, or a number is not finite.
Weights decoded_change(run::Engine& engine, const apps::Network& network, const FormatRef& format,
                       const ClientChange& change);
// Bytes of an encoded change.
int64_t change_bytes(const apps::Network& network, const FormatRef& format);

Weights weights_of(const apps::Network& network);

// Share of the first `most` examples whose label has the largest logit; with the weights as given.
double accuracy_of(apps::Network& network, const Weights& weights, const Examples& test, int64_t most);
// Weights after encoding and decoding.
Weights through_format(run::Engine& engine, const apps::Network& network, const FormatRef& format,
                       const Weights& weights);

}  // namespace lumen::federate
