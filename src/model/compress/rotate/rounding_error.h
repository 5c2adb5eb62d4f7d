// The cost of rotations by the weights' own rounding errors, without the model's gradients: the mean over weights of
// sum r^2 h / sum of squared outputs, where r are errors of rounding to nearest and h the second moments of the
// columns' inputs (1 where not known). Errors grow with the ranges of groups that share a scale, so gradients go to the
// numbers at the ends of these ranges, as those of learned step sizes do (Esser et al. 2019, arXiv 1902.08153), and
// through the moments, which the rotations change, too. Proved by tests/model/compress/rotate/rounding_error_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/reconstruction/clip.h"
#include "model/compress/rotate/learn_rotations.h"

namespace lumen::model::compress {

class RoundingError : public RotationObjective {
 public:
  // `formats`: by parameter. `text`: run through the unrotated model's layers to collect the weights' input moments;
  // null: all columns have equal weight. All arguments except the text outlive this.
  RoundingError(run::Engine& engine, RotatedWeights& weights, const std::map<std::string, FormatRef>& formats,
                calibrate::LayerRun* text);
  ~RoundingError() override;

  double value() override { return cost(false); }
  double add_gradients() override { return cost(true); }

 private:
  struct Reads;
  struct Item;
  struct Fit;
  void read(calibrate::LayerRun& text);
  void add_items();
  double cost(bool gradients);
  double cost_of(const Item& item, std::span<const float> h, bool gradients, std::vector<double>* by_column);
  Fit& fit(const Item& item);

  run::Engine& engine_;
  RotatedWeights& weights_;
  const std::map<std::string, FormatRef>& formats_;
  std::vector<Reads> reads_;
  std::vector<Item> items_;
  std::map<std::string, std::unique_ptr<Fit>> fits_;  // by format and shape
};

}  // namespace lumen::model::compress
