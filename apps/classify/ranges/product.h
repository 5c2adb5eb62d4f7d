// The 8-bit form of one product: 32-bit sums, their range, and requantization to 8 bits in the product's epilogue.
#pragma once

#include "apps/classify/ranges/coded.h"
#include "apps/classify/ranges/sites.h"

namespace lumen::graph {

class WholeProduct {
 public:
  // Appends to the builder's graph; `input` has one pair for each of the site's samples.
  WholeProduct(Builder& b, const Graph& from, const RangedSite& site, const Coded& input, const RangeOptions& options);

  // The result, shaped as the product is in the old graph: rows, groups, outputs. Further results by name.
  Coded run(RangeSource source);
  const std::map<std::string, ValueId>& reports() const { return reports_; }

 private:
  struct Moments {  // f32 [samples, groups]: means over the positions of S1, S2, and the variance of S1
    ValueId first = -1, second = -1, spread = -1;
  };
  struct Predicted {  // f32, [samples] or [samples, channels]
    ValueId mean = -1, deviation = -1;
  };

  ValueId parameter(const std::string& what, Shape shape, Scalar scalar = Scalar::f32);
  ValueId row(ValueId v) { return b_.reshape(v, {Dim(1), Dim(channels_)}); }
  ValueId column(ValueId v) { return b_.reshape(v, {Dim(samples_), Dim(1)}); }
  bool is_by_channel() const { return options_.per == RangePer::channel; }
  std::string all_suffix() const { return is_by_channel() ? "" : "_all"; }
  int64_t pairs() const { return is_by_channel() ? channels_ : 0; }

  void make_operands();
  ValueId aligned(ValueId v, const std::string& letters, const std::string& to);
  ValueId sums();
  ValueId whole_bias();
  ValueId bias_of_codes();
  ValueId thinned(ValueId v);
  ValueId window_sums(bool squares);
  ValueId summed(ValueId v, bool squares, const std::vector<int>& axes);
  Moments moments();
  Predicted predict();
  Predicted predict_channels(const Moments& m);
  Predicted predict_tensor(const Moments& m);
  Predicted merged(const Predicted& channels);
  ValueId in_units(ValueId real);
  ValueId in_real(ValueId units);
  Ends true_ends(ValueId total);
  Ends estimated_ends(const Predicted& p);
  void report_seen(const Ends& seen, const Predicted& p);
  ValueId multiplier(ValueId scale);
  ValueId quantized(ValueId sums, ValueId bias, ValueId multiplier, ValueId zero);
  void report_clipped(ValueId sums, ValueId bias, ValueId multiplier, ValueId zero);

  Builder& b_;
  Coder coder_;
  const Graph& from_;
  const RangedSite& site_;
  const Coded& input_;
  const RangeOptions& options_;
  const int64_t samples_, channels_;
  std::string of_x_;  // letters of x
  bool is_centred_ = false;
  ValueId below_windows_ = -1;  // the operand of the last windows, if they are the last view
  ValueId x_ = -1;              // codes, or codes minus zeros, as x is read
  ValueId scale_ = -1, bias_ = -1;
  std::map<std::string, ValueId> reports_;
};

}  // namespace lumen::graph
