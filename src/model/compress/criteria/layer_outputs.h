// A layer with one of its weights replaced, beside the layer as it is: how far what it hands on goes, and how far its
// attentions look elsewhere. Attentions are found by their structure; masks and positions are those of the model.
// Proved by tests/model/compress/criteria/layer_outputs_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "run/engine/engine.h"

namespace lumen::model {

struct OutputLoss {
  double outputs = 0;    // |Y - Y'|^2 / |Y|^2 of what is handed on
  double attention = 0;  // mean over heads and tokens of the KL divergence of what is looked at, nats
};

class LayerOutputs {
 public:
  // The first `windows` windows of the run; what the part reads of them is in `from`.
  LayerOutputs(run::Engine& engine, const LayerRun& run, size_t part, const LayerRun::WeightOf& weight,
               CarriedValues* from, int64_t windows);
  // With these numbers in place of the parameter's.
  OutputLoss with(const std::string& parameter, std::span<const float> values);

 private:
  const graph::LayerPart& part_;
  const LayerRun::WeightOf weight_;
  std::shared_ptr<run::Program> true_, other_;  // the layer as it is; and what is lost beside its results
  std::map<std::string, run::DeviceTensorRef> weights_;
};

}  // namespace lumen::model
