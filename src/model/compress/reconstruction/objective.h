// The loss of a layer with changed weights: the squared error of its outputs, relative to the squares of the true
// outputs, and its gradient with respect to the weights. The layer's inputs are outputs of the earlier rounded layers;
// true outputs are those of the original layer on original inputs. Proved by
// tests/model/compress/reconstruction/objective_test.cpp.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/transform/layers.h"
#include "model/calibrate/layer_run.h"
#include "run/engine/engine.h"

namespace lumen::model::compress {

// The objective as a graph. Inputs: the part's; "true.I" with the shape of each carried float result I; "scale.I", the
// factor of its mean squared error. First result "loss", then, with `gradients`, "gradient.NAME" for each of `learned`
// (names in the graph).
graph::Graph objective_graph(const graph::LayerPart& part, const graph::Bindings& symbols,
                             const std::vector<std::string>& learned, bool gradients);

// Whether a part has an output that the objective can compare.
bool hands_on(const graph::LayerPart& part);

class BlockObjective {
 public:
  // `learned`: parameters of the part, by the model's names; the others have the values of `weight`. `rounded`: the
  // part's inputs; `truth`: its true outputs. All outlive this.
  BlockObjective(run::Engine& engine, const calibrate::LayerRun& run, size_t part, std::vector<std::string> learned,
                 const calibrate::LayerRun::WeightOf& weight, calibrate::CarriedValues* rounded,
                 calibrate::CarriedValues* truth);
  ~BlockObjective();

  int64_t windows() const { return run_.windows(); }
  size_t learned() const { return learned_.size(); }
  // Sets learned weight i.
  void set(size_t i, std::span<const float> values);
  // Over these windows, in their order.
  double loss(std::span<const int64_t> windows);
  // The same with the gradient of each learned weight.
  double gradients(std::span<const int64_t> windows, std::vector<std::vector<float>>* to);
  // Over all windows, `at_once` per run.
  double loss_of_all(int64_t at_once);

 private:
  struct Step;
  Step& step(int64_t windows, bool gradients);
  double run(Step& s, std::span<const int64_t> windows);
  void find_scales();

  run::Engine& engine_;
  const calibrate::LayerRun& run_;
  const size_t part_;
  const std::vector<std::string> learned_;
  std::vector<std::string> names_;  // names in the graph
  calibrate::CarriedValues* const rounded_;
  calibrate::CarriedValues* const truth_;
  std::map<std::string, run::DeviceTensorRef> weights_;  // shared by all steps
  std::vector<float> scales_;                            // by result
  std::deque<Step> steps_;
};

}  // namespace lumen::model::compress
