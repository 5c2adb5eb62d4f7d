// ranges: products of activations with weights become products of 8-bit whole numbers whose results are 8 bits again,
// by a scale and a zero for each sample that are known before the product runs: calibrated, or estimated from sums of
// what it reads (probabilistic dynamic quantization, arXiv 2505.10689); or, to compare with, found in the true result.
// Proved by tests/graph/ranges/ranges_test.cpp.
//
// May include: base, graph/ir, graph/match, graph/pass.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Where the range of a result comes from: constants of a calibration, the true result of this input (which then lies in
// memory as 32-bit sums), or the estimate.
enum class RangeSource : uint8_t { fixed, dynamic, estimate };
// One pair of scale and zero for a sample, or one for each of its channels. Where other products read the result it is
// brought to one pair at once.
enum class RangePer : uint8_t { tensor, channel };

// A product that can be rewritten: what is known of it, and what its inputs will be.
struct RangedProduct {
  std::string name;      // of its weight; of later products with the same one with "#2" behind
  int64_t channels = 0;  // of the result: groups x outputs
  int64_t columns = 0;   // what one result sums: a group's
  int64_t groups = 1;
  int64_t positions = 1;      // results of one channel and sample
  bool is_by_sample = false;  // results of samples are told apart
  bool is_depthwise = false;  // a channel of its own for each group
  bool follows_norm = false;  // reads what a normalization over its columns gave: S1 and S2 say nothing there
};
// Products of a graph with numeric dims whose one operand is a parameter; in graph order. `samples`: the extent of the
// first axis of what carries samples.
std::vector<RangedProduct> ranged_products(Graph g, int64_t samples);

// The weights of these products with the factors of the channels behind them (normalizations by remembered statistics)
// multiplied in, f32 [channels, columns], and what is added, f32 [channels]: results NAME.weight and NAME.shift of a
// graph that reads parameters alone.
Graph folded_weights(Graph g, int64_t samples);

struct RangeOptions {
  int64_t samples = 1;
  RangeSource source = RangeSource::estimate;
  RangePer per = RangePer::tensor;
  int64_t gamma = 1;                              // every so many positions in each direction are looked at
  std::map<std::string, RangeSource> other = {};  // of single products, by name
  std::vector<std::string> floats = {};           // products that stay as they are
  bool depthwise_fixed = false;                   // depthwise products take calibrated ranges
  bool norms_fixed = false;                       // and those that follow a normalization
  bool calibrates = false;                        // further results say what was seen (below); the source is dynamic
  bool counts_clipped = false;  // further results NAME.clipped, f32 [samples]: numbers beyond the range
};

// What the new graph reads beside the old one's inputs, for each product NAME: parameters
//   NAME.codes      i8 [channels, columns]    weights, symmetric
//   NAME.scale      f32 [channels]            of the codes
//   NAME.total      i32 [channels]            sums of the codes of each channel
//   NAME.shift      f32 [channels]            what is added, in real numbers
//   NAME.mean, NAME.deviation               of the codes of each channel, f32 [channels]
//   NAME.below, NAME.above                  so many deviations, f32 [channels]
//   NAME.low, NAME.high                     calibrated ranges in real numbers, f32 [channels]
// Per tensor these are f32 [1] and called NAME.below_all and so on; mean_all and deviation_all are of scale * code over
// all, and shift_all is the mean of the shift. A depthwise product has the moments of its channels even then.
// For each other value V that is encoded there are V.low and V.high, f32 [1]. Only inputs that are needed are there.
//
// When it calibrates, results per sample, f32 [samples] or [samples, channels]: NAME.low, NAME.high (the true least and
// largest, in real numbers), NAME.below, NAME.above (how many deviations from the mean they are), V.low, V.high.
Graph with_ranges(Graph g, const RangeOptions& options);

}  // namespace lumen::graph
