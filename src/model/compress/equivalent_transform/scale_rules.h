// Channel scales: SmoothQuant's and AWQ's rules as functions of statistics. Channels that share a scale share their
// statistics. Sources: arXiv 2211.10438, arXiv 2306.00978. Proved by
// tests/model/compress/equivalent_transform/rules_test.cpp.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/equivalence/scale_sites.h"
#include "model/arch/model.h"

namespace lumen::model::compress {

// s = max|x|^alpha / max|w|^(1 - alpha), at least 1e-5; 1 where either is 0.
std::vector<double> smooth_scales(std::span<const double> activation_maxima, std::span<const double> weight_maxima,
                                  double alpha);

// Candidate k of `kAwqSteps`: s = max(mean|x|^(k / 20), 1e-4), then divided by sqrt(max s min s).
inline constexpr int kAwqSteps = 20;
std::vector<double> awq_scales(std::span<const double> activation_means, int k);

// The candidate with the least loss, the first of equals. `loss` computes the loss of the site's weights for given
// scales.
struct AwqChoice {
  std::vector<double> scales;
  int step = 0;
  double loss = 0;
  std::vector<double> losses;  // of all candidates
};
AwqChoice choose_awq(std::span<const double> activation_means,
                     const std::function<double(std::span<const double>)>& loss);

// Combines statistics by channel (columns of the site's first reader) into those of its free scales.
std::vector<double> largest_of_channels(const graph::ScaleSite& site, std::span<const double> by_channel);
std::vector<double> mean_of_channels(const graph::ScaleSite& site, std::span<const double> by_channel);
// max|w| over all rows of all readers, by free scale.
std::vector<double> weight_maxima(const arch::Model& model, const graph::ScaleSite& site);

}  // namespace lumen::model::compress
