// ranges: products of activations with weights become products of 8-bit integers whose results are 8 bits again, by a
// scale and a zero point for each sample that are known before the product runs: calibrated, or estimated from sums
// over the product's input (probabilistic dynamic quantization, arXiv 2505.10689); or, for comparison, computed from
// the true result. Proved by tests/apps/classify/ranges/ranges_test.cpp.
//
// May include: apps/weighted_product, base, graph/ir, graph/match, graph/pass.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The source of a result's range: constants from calibration, the true result for this input (which is then stored in
// memory as 32-bit sums), or the estimate.
enum class RangeSource : uint8_t { fixed, dynamic, estimate };
// One pair of scale and zero point for a sample, or one for each of its channels. A result that other products read is
// requantized to one pair immediately.
enum class RangePer : uint8_t { tensor, channel };

// A product that can be rewritten, and its properties.
struct RangedProduct {
  std::string name;      // of its weight; with a suffix "#2" for the second product of the same weight
  int64_t channels = 0;  // of the result: groups x outputs
  int64_t columns = 0;   // the number of terms of one sum: a group's
  int64_t groups = 1;
  int64_t positions = 1;      // results of one channel and sample
  bool is_by_sample = false;  // results of samples are distinguished
  bool is_depthwise = false;  // each group has one channel
  bool follows_norm = false;  // its input is normalized over its columns: S1 and S2 carry no information there
};
// Products of a graph with numeric dims whose one operand is a parameter; in graph order. `samples`: the extent of the
// first axis of values with samples.
std::vector<RangedProduct> ranged_products(Graph g, int64_t samples);

// The weights of these products multiplied by the factors of the channels that follow them (normalizations with running
// statistics), f32 [channels, columns], and the terms, f32 [channels]: results NAME.weight and NAME.shift of a graph
// that reads only parameters.
Graph folded_weights(Graph g, int64_t samples);

struct RangeOptions {
  int64_t samples = 1;
  RangeSource source = RangeSource::estimate;
  RangePer per = RangePer::tensor;
  int64_t gamma = 1;                              // every gamma-th position in each direction is sampled
  std::map<std::string, RangeSource> other = {};  // of single products, by name
  std::vector<std::string> floats = {};           // products that are not rewritten
  bool depthwise_fixed = false;                   // depthwise products take calibrated ranges
  bool norms_fixed = false;                       // and those that follow a normalization
  bool calibrates = false;                        // adds results with observed ranges (below); the source is dynamic
  bool counts_clipped = false;                    // adds results NAME.clipped, f32 [samples]: numbers outside the range
};

// Parameters that the new graph reads in addition to the old one's inputs, for each product NAME:
//   NAME.codes      i8 [channels, columns]    weights, symmetric
//   NAME.scale      f32 [channels]            of the codes
//   NAME.total      i32 [channels]            sums of the codes of each channel
//   NAME.shift      f32 [channels]            the bias, in real numbers
//   NAME.mean, NAME.deviation               of the codes of each channel, f32 [channels]
//   NAME.below, NAME.above                  range ends in deviations, f32 [channels]
//   NAME.low, NAME.high                     calibrated ranges in real numbers, f32 [channels]
// Per tensor these are f32 [1] and called NAME.below_all and so on; mean_all and deviation_all are of scale * code over
// all, and shift_all is the mean of the shift. A depthwise product has the moments per channel even then. Each other
// value V that is encoded has V.low and V.high, f32 [1]. Only inputs that are needed exist.
//
// Calibration adds results per sample, f32 [samples] or [samples, channels]: NAME.low, NAME.high (the true minimum and
// maximum, in real numbers), NAME.below, NAME.above (their distance from the mean in deviations), V.low, V.high.
Graph with_ranges(Graph g, const RangeOptions& options);

}  // namespace lumen::graph
