// What a sample of the groups says about how tokens are distributed over logits: about where the best k of them end, or
// a share of the weight. Only a guess, which passes over all logits prove. Proved by
// tests/model/infer/sample/kept_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/token_set.h"
#include "model/infer/sample/weights.h"

namespace lumen::model::infer {

class Outline {
 public:
  // `known`: the tokens with the best ranks, which have much of the weight; logits below `least` do not count.
  Outline(std::span<const float> logits, std::span<const float> peaks, const TokenSet& hidden,
          std::span<const Candidate> known, float least);

  double step() const { return step_; }               // of logits; what is nearer to each other is not distinguished
  double tokens_for_each() const { return stride_; }  // that is in the sample

  // The mean logit by weight at temperature 1.
  double mean() const;

  // How much there is within distances, in ascending order.
  class Curve {
   public:
    // Within the distance `to` there is this amount, or all, and less within `from`.
    struct Place {
      double from, to;
    };
    Place at(double amount) const;
    double all() const { return all_; }
    // Standard deviation of the share of all that is within the distance where the sample has `share`.
    double error(double share) const;

   private:
    friend Outline;
    void add(double distance, double amount, double variance) {
      steps_.push_back({distance, all_ += amount, variance_ += variance});
    }
    struct Step {
      double distance, within, variance;
    };
    std::vector<Step> steps_;
    double all_ = 0, variance_ = 0, step_ = 0;  // all of it, its variance, distance of a step
  };
  Curve weights_from_best() const;
  Curve weights_from(double middle) const;  // by distance from this logit, in both directions
  Curve tokens_from_best() const;

 private:
  std::vector<double> tokens_;  // estimated number by steps down from the best logit
  std::vector<double> masses_;  // and their weights, whose sum has this variance
  std::vector<double> variances_;
  double best_, step_ = 1, stride_;
};

}  // namespace lumen::model::infer
