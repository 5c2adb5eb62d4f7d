// The document behind a page on a compressed model. What is not known is left out. Read from files of users: every
// number is finite and in range, texts and lists have bounds, and what the form does not have is an Error that names
// its place. Proved by tests/model/report/compression/compression_report_test.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model {

// A model as a whole. Errors are standard errors.
struct MeasuredQuality {
  std::optional<double> ppl, ppl_error;
  std::optional<double> kl, kl_error, kl_p99, kl_most;      // nats per token, from the base
  std::optional<double> same_top;                           // part of the tokens with the same likeliest next one
  std::optional<double> cosine;                             // mean, of hidden vectors
  std::optional<double> tokens_per_s, prompt_tokens_per_s;  // generation, and prompts
};

struct CompressionReport {
  static constexpr int64_t kVersion = 1;

  // Base, or result.
  struct Whole {
    std::string name;  // a file, a format
    int64_t bytes = 0;
    double bits = 0;  // per weight
    MeasuredQuality quality;
  };
  // A model that was tried, on the chart of size against quality.
  struct Point {
    std::string label, strategy;
    int64_t bytes = 0;
    double bits = 0;
    MeasuredQuality quality;
    bool chosen = false;
  };
  // What can be had by prediction (ChoiceFront).
  struct Predicted {
    int64_t bytes = 0;
    double bits = 0, score = 0;  // nats
  };
  struct Candidate {
    std::string format;
    int64_t bytes = 0;
    double score = 0;  // predicted rise of the loss, nats
  };
  struct Histogram {
    std::vector<double> edges, before, after;
  };
  struct Tensor {
    std::string name, role, format, strategy, reason;
    int64_t layer = -1;  // -1: of no layer
    int64_t bytes = 0;
    double bits = 0;
    std::optional<double> error, weighted_error;  // relative, Euclidean; weighted by importance
    std::vector<Candidate> candidates;
    std::optional<Histogram> histogram;
  };
  // How far the largest number a projection reads or holds stands out of the others.
  struct Spike {
    std::string name;
    double ratio = 0;
    bool kept = false;  // at a high precision
  };
  // An expert of a mixture, by the number that its router had for it.
  struct Expert {
    int64_t layer = 0, expert = 0;
    std::string format;
    double bits = 0;
    double share = 0, spread = 0;  // J and V: of the layer's significance, mean and deviation over texts
    double margin = 0;             // its membership in its class less the next
    int64_t rows = 0;              // tokens that picked it
    std::vector<double> shares;    // by text
  };
  struct Stage {
    std::string name;
    double seconds = 0;
  };
  struct TaskFigure {
    std::string model, task, figure;
    double value = 0;
    std::optional<double> error;
  };

  std::string model, created, text, budget, device;  // created: a date; text: what was measured on; device: where
  Whole base;
  std::optional<Whole> result;
  std::optional<double> predicted, bound;  // rise of the loss, nats: of the choice, and what none goes below
  std::optional<bool> proved;
  std::vector<Point> points;
  std::vector<Predicted> front;
  bool front_exact = false;
  std::vector<Tensor> tensors;
  std::vector<Spike> spikes;
  std::vector<Expert> experts;
  std::vector<TaskFigure> tasks;
  std::vector<Stage> stages;
  std::vector<std::string> notes;
};

// The error that counts: weighted where it is known.
std::optional<double> error_of(const CompressionReport::Tensor& tensor);

// Counts over the range that `before` takes up but for its outermost thousandths; what lies outside counts with the
// first and the last bin. As many numbers in each, all finite (LUMEN_CHECK).
CompressionReport::Histogram histogram_of(std::span<const float> before, std::span<const float> after);

nlohmann::ordered_json to_json(const CompressionReport& report);
// Pretty-printed, with a line end. Texts that are no UTF-8 are mended.
std::string compression_json(const CompressionReport& report);

// Error (user) with `name` and the place of what is wrong.
CompressionReport parse_compression_report(std::string_view text, const std::string& name);

}  // namespace lumen::model
