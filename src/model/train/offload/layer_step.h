// A training step that has one layer's parameters on the device at a time, or a few: forward layer by layer, of which
// what each hands to the next is kept, then backward with each layer computed again, whose gradients leave as soon as
// they are there, then updates layer by layer. Parameters outside of layers, and their gradients, stay on the device.
// Proved by tests/model/train/offload/layer_step_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/train/offload/layer_plan.h"
#include "run/engine/engine.h"

namespace lumen::model {

class LayerStep {
 public:
  using TensorOf = std::function<run::DeviceTensorRef(const std::string& name, const graph::Type& type)>;
  // Opens what lies outside, zeros; null where that gains nothing. `tensor`: what stays on the device.
  static std::unique_ptr<LayerStep> open(run::Engine& engine, const Model& model, const Method& method,
                                         const Recipe& recipe, TensorOf tensor);
  void compile();

  // One batch, whose data are there; `first`: of the step. Returns its loss.
  double run(bool first);
  // After the last batch: of all gradients, in f32 and in the order of parameters.
  float norm() const;
  float clip(double max_norm) const;  // kClip of that
  float square(const std::string& parameter) const { return squares_.at(parameter); }
  // What updates of a layer read: they are here between turn(.., layer) and turn(layer, ..). -1: none.
  void turn(int from, int to);
  bool has(const std::string& name) const;
  run::DeviceTensorRef tensor(const std::string& name, const graph::Type& type);
  // The losses of all positions of the data that are there; good until anything else runs.
  run::DeviceTensorRef losses();

  Visits& parameters() { return *parameters_; }
  const Visits& parameters() const { return *parameters_; }
  const Visits& gradients() const { return *gradients_; }
  std::shared_ptr<run::Program> lender() const { return lender_; }
  int64_t own_bytes() const;      // of programs
  int64_t between_bytes() const;  // of what layers hand on
  std::string explain() const;
  void finish();  // parameters stay; no step or evaluation comes any more

 private:
  struct Programs {
    std::shared_ptr<run::Program> forward, backward, more;
  };
  LayerStep(run::Engine& engine, const Method& method, const Recipe& recipe, LayerPlan plan, TensorOf tensor);
  void compile_all(const std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>>& work,
                   const run::CompileOptions& options);
  void bind(const LayerPlan::Part& part, run::Program& program);
  run::DeviceTensorRef between(const std::string& name, int carried);
  void forward(const LayerPlan::Part& part, run::Program& program, int next);
  void backward(const LayerPlan::Part& part, run::Program& program, bool first, int next);
  void call(int layer);

  run::Engine& engine_;
  const Method& method_;
  LayerPlan plan_;
  TensorOf tensor_;
  std::unique_ptr<Visits> parameters_, gradients_;
  std::vector<Programs> programs_, evaluated_;                    // by part
  std::map<std::string, std::shared_ptr<run::Program>> by_text_;  // by options and graphs' texts
  std::shared_ptr<run::Program> lender_;
  std::map<std::string, run::DeviceTensorRef> between_;
  std::map<std::string, float> squares_;
};

}  // namespace lumen::model
