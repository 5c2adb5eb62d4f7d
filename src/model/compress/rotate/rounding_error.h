// What rotations cost by the weights' own rounding errors, without the model's gradients: the mean over weights of
// sum r^2 h / sum of what the weight computes, squared, where r are errors of rounding to nearest and h the second
// moments of what their columns read (1 where nothing is known). Errors grow with the ranges of groups that share a
// scale, so that gradients go to the numbers at the ends of these ranges, as those of learned step sizes do (Esser et
// al. 2019, arXiv 1902.08153), and through the moments, which the rotations change, too. Proved by
// tests/model/compress/rotate/rounding_error_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/recover/clip.h"
#include "model/compress/rotate/learn_rotations.h"

namespace lumen::model {

class RoundingError : public RotationObjective {
 public:
  // `formats`: by parameter. `text`: whose layers are run to see what weights read, with the model as it is before the
  // rotations; null: errors of all columns count alike. All outlive this, but the text.
  RoundingError(run::Engine& engine, RotatedWeights& weights, const std::map<std::string, FormatRef>& formats,
                LayerRun* text);
  ~RoundingError() override;

  double value() override { return cost(false); }
  double add_gradients() override { return cost(true); }

 private:
  struct Reads;
  struct Item;
  struct Fit;
  void read(LayerRun& text);
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

}  // namespace lumen::model
