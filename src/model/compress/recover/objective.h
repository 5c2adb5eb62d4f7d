// How far a layer with other weights is from the layer as it was: the squared difference of what it hands on, relative
// to the squares of what it should, and the gradient of that with respect to the weights. What the layer reads is what
// the rounded layers before it give; what it should hand on is what the true layer gives of true inputs. Proved by
// tests/model/compress/recover/objective_test.cpp.
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

namespace lumen::model {

// The objective as a graph: the part's inputs; "true.I" like each carried result I of floats; "scale.I", a number that
// its mean squared difference is multiplied with. First result "loss", then, where asked for, "gradient.NAME" of each
// of `learned` (as the graph calls them).
graph::Graph objective_graph(const graph::LayerPart& part, const graph::Bindings& symbols,
                             const std::vector<std::string>& learned, bool gradients);

// Whether a part hands on something that an objective could compare.
bool hands_on(const graph::LayerPart& part);

class BlockObjective {
 public:
  // `learned`: parameters of the part by the model's names; the others have the numbers that `weight` gives. `rounded`:
  // what the part reads; `truth`: what it should hand on. All outlive this.
  BlockObjective(run::Engine& engine, const LayerRun& run, size_t part, std::vector<std::string> learned,
                 const LayerRun::WeightOf& weight, CarriedValues* rounded, CarriedValues* truth);
  ~BlockObjective();

  int64_t windows() const { return run_.windows(); }
  size_t learned() const { return learned_.size(); }
  // What learned weight i is from now on.
  void set(size_t i, std::span<const float> values);
  // Over these windows, in their order.
  double loss(std::span<const int64_t> windows);
  // The same with the gradient of each learned weight.
  double gradients(std::span<const int64_t> windows, std::vector<std::vector<float>>* to);
  // Over all windows, so many at once.
  double loss_of_all(int64_t at_once);

 private:
  struct Step;
  Step& step(int64_t windows, bool gradients);
  double run(Step& s, std::span<const int64_t> windows);
  void find_scales();

  run::Engine& engine_;
  const LayerRun& run_;
  const size_t part_;
  const std::vector<std::string> learned_;
  std::vector<std::string> names_;  // as the graph calls them
  CarriedValues* const rounded_;
  CarriedValues* const truth_;
  std::map<std::string, run::DeviceTensorRef> weights_;  // shared by all steps
  std::vector<float> scales_;                            // by result
  std::deque<Step> steps_;
};

}  // namespace lumen::model
