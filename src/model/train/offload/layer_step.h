// A training step with the parameters of one layer, or a few, on the device at a time. The forward pass keeps what each
// layer hands to the next; the backward pass recomputes each layer and releases its gradients; updates follow. A
// ParameterStore keeps parameters and gradients meanwhile. Activations that backward graphs read may be offloaded, too:
// they are stored while the next layer is computed and loaded while the previous one is (layer_plan.h). Proved by
// tests/model/train/offload/layer_step_test.cpp and tests/model/train/ranks/sharded_parameters_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/train/offload/layer_plan.h"
#include "model/train/offload/parameter_store.h"
#include "run/engine/engine.h"

namespace lumen::model::train {

// kClip for the norm of all gradients.
float clip_of(float norm, double max_norm);

class LayerStep {
 public:
  using TensorOf = std::function<run::DeviceTensorRef(const std::string& name, const graph::Type& type)>;
  // `tensor`: tensors that stay on the device. `kept`: the pager of LayerPlan::kept; null: those stay as well.
  LayerStep(run::Engine& engine, const Method& method, LayerPlan plan, std::shared_ptr<ParameterStore> store,
            TensorOf tensor, std::unique_ptr<TensorPager> kept = nullptr);
  void compile();
  void compile_evaluation();  // otherwise done at the first call of losses()

  // Runs one batch, whose data are bound; `first`: first of the step. Returns its loss. `failure`: receives this
  // process's error where the store must finish (ParameterStore::must_finish); null: it is thrown.
  double run(bool first, std::optional<Error>* failure = nullptr);
  // After the last batch: the norm of all gradients, in f32 and in the order of parameters. Not available where the
  // store sums gradients (StepPart::alone).
  float norm() const;
  float square(const std::string& parameter) const { return squares_.at(parameter); }
  // The losses of all positions of the current data; valid until the next run.
  run::DeviceTensorRef losses();

  const ParameterStore& store() const { return *store_; }
  std::shared_ptr<run::Program> lender() const { return lender_; }
  int64_t own_bytes() const;      // of programs
  int64_t between_bytes() const;  // of activations between layers, and of slots for kept ones
  std::string explain() const;
  void finish();  // frees programs, keeps parameters; no step or evaluation may follow

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
  bool is_paged(size_t part) const { return kept_ && plan_.kept.at(part).bytes > 0; }
  void forward(const LayerPlan::Part& at, size_t part, run::Program& program, Pass pass);
  void backward(size_t part, run::Program& program, bool first);
  void attempt(const std::function<void()>& work);
  void end_pass(std::optional<Error>* failure = nullptr);

  run::Engine& engine_;
  const Method& method_;
  LayerPlan plan_;
  TensorOf tensor_;
  std::shared_ptr<ParameterStore> store_;
  std::unique_ptr<TensorPager> kept_;
  std::vector<Programs> programs_, evaluated_;                    // by part
  std::map<std::string, std::shared_ptr<run::Program>> by_text_;  // by options and graphs' texts
  std::shared_ptr<run::Program> lender_;
  std::map<std::string, run::DeviceTensorRef> between_;
  std::map<std::string, float> squares_;
  std::optional<Error> failure_;  // of a pass that must finish
};

}  // namespace lumen::model::train
