// Compares a layer with one replaced weight to the original layer: the error of its outputs, and the divergence of its
// attention probabilities. Attentions are found by graph structure; masks and positions are the model's. Proved by
// tests/model/compress/criteria/layer_outputs_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "run/engine/engine.h"

namespace lumen::model::compress {

struct OutputLoss {
  double outputs = 0;    // |Y - Y'|^2 / |Y|^2 of the layer's outputs
  double attention = 0;  // mean over heads and tokens of the KL divergence of attention probabilities, nats
};

class LayerOutputs {
 public:
  // For the first `windows` windows of the run; the part's inputs are in `from`.
  LayerOutputs(run::Engine& engine, const calibrate::LayerRun& run, size_t part,
               const calibrate::LayerRun::WeightOf& weight, calibrate::CarriedValues* from, int64_t windows);
  // The loss with these numbers in place of the parameter's.
  OutputLoss with(const std::string& parameter, std::span<const float> values);

 private:
  const graph::LayerPart& part_;
  const calibrate::LayerRun::WeightOf weight_;
  std::shared_ptr<run::Program> true_, other_;  // the original layer; and the losses with a changed weight
  std::map<std::string, run::DeviceTensorRef> weights_;
};

}  // namespace lumen::model::compress
