// A training step that has one layer's parameters on the device at a time, or a few: forward layer by layer, of which
// what each hands to the next is kept, then backward with each layer computed again, whose gradients leave as soon as
// they are there; then come updates. Where all that is meanwhile says its lodging. What backward graphs read of the
// forward pass, what was handed on or all of it, may lie outside of the device, too: it is written while the next layer
// is computed, and read while the one before is (layer_plan.h). Proved by
// tests/model/train/offload/layer_step_test.cpp and tests/model/train/ranks/rank_lodging_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/train/offload/layer_plan.h"
#include "model/train/offload/lodging.h"
#include "run/engine/engine.h"

namespace lumen::model {

// kClip, of the norm of all gradients.
float clip_of(float norm, double max_norm);

class LayerStep {
 public:
  using TensorOf = std::function<run::DeviceTensorRef(const std::string& name, const graph::Type& type)>;
  // `tensor`: what stays on the device. `kept`: the visits of LayerPlan::kept; null: that stays as well.
  LayerStep(run::Engine& engine, const Method& method, LayerPlan plan, std::shared_ptr<Lodging> lodging,
            TensorOf tensor, std::unique_ptr<Visits> kept = nullptr);
  void compile();
  void compile_evaluation();  // otherwise done when losses are first asked for

  // One batch, whose data are there; `first`: of the step. Returns its loss. `failure`: gets what has failed here and
  // kept nobody waiting, for a lodging that goes to the end; null: it is thrown.
  double run(bool first, std::optional<Error>* failure = nullptr);
  // After the last batch: of all gradients, in f32 and in the order of parameters. Not where gradients are summed by
  // the lodging (StepPart::alone).
  float norm() const;
  float square(const std::string& parameter) const { return squares_.at(parameter); }
  // The losses of all positions of the data that are there; good until anything else runs.
  run::DeviceTensorRef losses();

  const Lodging& lodging() const { return *lodging_; }
  std::shared_ptr<run::Program> lender() const { return lender_; }
  int64_t own_bytes() const;      // of programs
  int64_t between_bytes() const;  // of what layers hand on, and of what is kept and visits the device
  std::string explain() const;
  void finish();  // parameters stay; no step or evaluation comes any more

 private:
  struct Programs {
    std::shared_ptr<run::Program> forward, backward, more;
  };
  void compile_all(const std::vector<std::pair<const graph::Graph*, std::shared_ptr<run::Program>*>>& work,
                   const run::CompileOptions& options);
  enum class Pass : uint8_t { forward, backward, evaluation };
  void bind(const LayerPlan::Part& at, size_t part, run::Program& program, Pass pass);
  std::string known_as(const LayerPlan::Part& at, const std::string& input) const;
  void make_tensors(const LayerPlan::Part& at, size_t part, const run::Program& program);
  run::DeviceTensorRef handed(int carried, Pass pass);
  run::DeviceTensorRef between(const std::string& name, int carried);
  bool visits(size_t part) const { return kept_ && plan_.kept.at(part).bytes > 0; }
  void forward(const LayerPlan::Part& at, size_t part, run::Program& program, Pass pass);
  void backward(size_t part, run::Program& program, bool first);
  void attempt(const std::function<void()>& work);
  void end_pass(std::optional<Error>* failure = nullptr);

  run::Engine& engine_;
  const Method& method_;
  LayerPlan plan_;
  TensorOf tensor_;
  std::shared_ptr<Lodging> lodging_;
  std::unique_ptr<Visits> kept_;
  std::vector<Programs> programs_, evaluated_;                    // by part
  std::map<std::string, std::shared_ptr<run::Program>> by_text_;  // by options and graphs' texts
  std::shared_ptr<run::Program> lender_;
  std::map<std::string, run::DeviceTensorRef> between_;
  std::map<std::string, float> squares_;
  std::optional<Error> failure_;  // of a pass that goes to its end
};

}  // namespace lumen::model
