// Predicted cost of holding a share of a weight's columns in a format of more bits: losses as in score/weight_scores.h,
// and pair terms: the loss of two weights of a layer beyond the sum of theirs, by the projection of errors on gradients
// (Fisher matrix of windows, high-impact parameter ratio, Pham et al. 2025, section 2). Proved by
// tests/model/compress/split/split_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/compress/choose/choose.h"
#include "model/compress/split/columns.h"
#include "model/compress/strategy/strategy.h"

namespace lumen::model::compress {

// A candidate for a weight: whole in `low`, or its columns of highest impact in `high`.
struct RatioCandidate {
  FormatRef high, low;  // high: null where nothing is cut
  int64_t high_columns = 0;
  int64_t bytes = 0;
  double score = 0, error = 0;  // nats per token; |e| / |w|
  std::string name() const;     // "HIGH in 32 columns, LOW"
};

struct RatioScore {
  std::string name;  // of the parameter
  int64_t weights = 0;
  std::vector<RatioCandidate> candidates;  // distinct in columns and formats
};

struct RatioScores {
  std::vector<RatioScore> weights;
  // By indices of two weights, a < b: [candidates of a, candidates of b]. Weights of one layer.
  std::map<std::pair<size_t, size_t>, std::vector<double>> pairs;
};

struct RatioOptions {
  calibrate::LayerRunOptions run;
  std::vector<FormatRef> high, low;
  std::vector<double> ratios;  // shares of columns; 0 is always included
  const Strategy* strategy = nullptr;
  StrategyOptions numbers;
  bool pairs = true;
  std::filesystem::path folder;  // of values between layers; empty: memory
};

// Candidates without scores; weights in no group are whole. Error when none fits a weight.
RatioScores unscored_ratios(const arch::Model& model, const std::vector<std::string>& names,
                            std::span<const ColumnGroup> groups, const RatioOptions& options);
// With scores. Two forward passes and one backward over the text, window by window. All rows of a weight are rounded
// for each candidate, and errors of one layer's weights are in memory together.
RatioScores score_ratios(run::Engine& engine, const arch::Model& model, const std::vector<std::string>& names,
                         std::span<const ColumnGroup> groups, std::span<const text::TokenId> text,
                         const RatioOptions& options,
                         const std::function<void(const std::string&, double)>& progress = {});

// As a problem: a block for each layer with pairs, made semidefinite, and for each other weight. `where`: index of the
// weight, by block and item.
ChoiceProblem ratio_problem(const RatioScores& scores, double scale, std::vector<std::vector<size_t>>* where);

}  // namespace lumen::model::compress
