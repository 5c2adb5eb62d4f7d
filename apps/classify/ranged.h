// A network with 8-bit integer products with weights, by apps/classify/ranges: weights folded and quantized, ranges
// calibrated on some inputs, and the function run with any source of ranges. Proved by
// tests/apps/classify/classify_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/classify/ranges/ranges.h"
#include "apps/network/network.h"
#include "run/engine/portable/portable.h"

namespace lumen::classify {

// How the results' ranges are found.
struct RangeWay {
  graph::RangeSource source = graph::RangeSource::estimate;
  graph::RangePer per = graph::RangePer::tensor;
  int64_t gamma = 1;
  bool whole_alpha = false;      // deviations as in the published code: one whole number per layer
  bool depthwise_fixed = false;  // depthwise products use calibrated ranges
  bool norms_fixed = false;      // so do products that follow a normalization
  std::string name() const;      // "estimate per channel, gamma 2"
};
// "static", "dynamic", "estimate"; "tensor", "channel". Error (exit 2) that lists all names.
graph::RangeSource range_source(const std::string& name);
graph::RangePer range_per(const std::string& name);

// Ranges observed on the calibration's inputs, per channel or for all channels.
struct SeenRanges {
  std::vector<float> low, high;  // minima and maxima
  // Distances from the estimate's mean to the ends, in deviations: the mean over samples of the maximum over channels;
  // raised until at most a thousandth of the observed values is outside.
  std::vector<float> below, above;
  float whole_below = 0, whole_above = 0;  // the same by the published code's rule
};
struct ProductCalibration {
  SeenRanges tensor, channel;
};
struct Calibration {
  std::map<std::string, ProductCalibration> products;
  std::map<std::string, std::pair<float, float>> values;  // ranges of other encoded values
};
nlohmann::json to_json(const Calibration& c);
Calibration calibration_of(const nlohmann::json& json, const std::string& where);  // error that names a missing member

class RangedNetwork {
 public:
  // Folds and quantizes the weights of a function for `symbols` (its "B" samples). `floats`: products that stay float,
  // by the names of their weights.
  RangedNetwork(apps::Network& network, std::string function, graph::Bindings symbols,
                std::vector<std::string> floats = {});

  const std::vector<graph::RangedProduct>& products() const { return products_; }
  int64_t weight_bytes() const;  // codes, their sums, scales and shifts

  // On batches of B samples each, in this order.
  void calibrate(const std::vector<apps::NetworkInputs>& batches);
  const Calibration& calibration() const { return calibration_; }
  void set_calibration(const Calibration& c);

  // The function's output, and how many results were beyond their range (only with counts_clipped).
  struct Result {
    std::vector<float> numbers;
    double clipped = 0, counted = 0;
  };
  Result run(const apps::NetworkInputs& inputs, const RangeWay& way, bool counts_clipped = false);

  struct Cost {
    int64_t arena_bytes = 0;
    double seconds = 0;
  };
  // Compiles for another processor, without an engine. Error for unknown machines.
  run::PortableProgram exported(const RangeWay& way, const std::string& machine);
  Cost cost(const apps::NetworkInputs& inputs, const RangeWay& way);

 private:
  void quantize();
  void keep(const std::string& name, const std::vector<float>& numbers);
  void raise_alpha(bool by_channel, const std::vector<apps::NetworkInputs>& batches);
  void add_seen(bool by_channel, const std::vector<apps::NetworkInputs>& batches);
  void keep_ways(bool whole_alpha);
  std::string defined(const RangeWay& way, bool counts_clipped);
  graph::RangeOptions options_of(const RangeWay& way) const;

  apps::Network& network_;
  std::string function_;
  graph::Bindings symbols_;
  std::vector<std::string> floats_;
  int64_t samples_ = 1;
  std::vector<graph::RangedProduct> products_;
  Calibration calibration_;
  std::set<std::string> defined_;
  int kept_alpha_ = -1;
};

}  // namespace lumen::classify
