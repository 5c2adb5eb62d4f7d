// The document of a compressed model's page. Unknown values are left out. It is read from users' files: every number
// must be finite and in range, texts and lists are bounded, and an unknown member is an Error that names its position.
// Proved by tests/model/report/compression/compression_report_test.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model::report {

// Quality of a whole model. Errors are standard errors.
struct MeasuredQuality {
  std::optional<double> ppl, ppl_error;
  std::optional<double> kl, kl_error, kl_p99, kl_most;      // nats per token, from the base
  std::optional<double> same_top;                           // share of tokens with the same most likely next token
  std::optional<double> cosine;                             // mean, of hidden vectors
  std::optional<double> tokens_per_s, prompt_tokens_per_s;  // generation, and prompts
};

struct CompressionReport {
  static constexpr int64_t kVersion = 1;

  // The base, or the result.
  struct Whole {
    std::string name;  // a file, a format
    int64_t bytes = 0;
    double bits = 0;  // per weight
    MeasuredQuality quality;
  };
  // A tried model, on the chart of size against quality.
  struct Point {
    std::string label, strategy;
    int64_t bytes = 0;
    double bits = 0;
    MeasuredQuality quality;
    bool chosen = false;
  };
  // A point of the predicted front (ChoiceFront).
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
  // The ratio of the largest number that a projection reads or holds to the others.
  struct Spike {
    std::string name;
    double ratio = 0;
    bool kept = false;  // in a high precision
  };
  // An expert of a mixture, by its router index.
  struct Expert {
    int64_t layer = 0, expert = 0;
    std::string format;
    double bits = 0;
    double share = 0, spread = 0;  // J and V: of its share in the layer's significance, mean and deviation over texts
    double margin = 0;             // its membership in its class minus the next
    int64_t rows = 0;              // tokens routed to it
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

  std::string model, created, text, budget, device;  // created: a date; text: of the measurements; device: their device
  Whole base;
  std::optional<Whole> result;
  std::optional<double> predicted, bound;  // rise of the loss, nats: of the choice, and the lower bound of any choice
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

// The relevant error: weighted where known.
std::optional<double> error_of(const CompressionReport::Tensor& tensor);

// Counts over the range of `before` without its outermost thousandths; numbers outside count in the first and the last
// bin. Equal sizes, all finite (LUMEN_CHECK).
CompressionReport::Histogram histogram_of(std::span<const float> before, std::span<const float> after);

nlohmann::ordered_json to_json(const CompressionReport& report);
// Pretty-printed, with a final newline. Invalid UTF-8 is replaced.
std::string compression_json(const CompressionReport& report);

// Error (user) with `name` and the position of the fault.
CompressionReport parse_compression_report(std::string_view text, const std::string& name);

}  // namespace lumen::model::report
