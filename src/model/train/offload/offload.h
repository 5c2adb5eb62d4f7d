// Training with less device memory than it needs. Optimizer states are kept in a file or in the host's memory and are
// paged to the device group by group while updates are computed (updates.cpp). Parameters of layers, their gradients
// and the activations that the backward pass reads are paged where the step goes layer by layer (layer_step.h). The
// bits are those of a step that holds everything. Proved by tests/model/train/offload/updates_test.cpp and
// layer_step_test.cpp.
//
// May include: base, graph/grad, graph/ir, graph/keep, graph/pipeline, graph/transform, model/recipe,
// model/train/method, run/device, run/device/outside, run/engine.
// Offers: layer_plan.h, layer_step.h, offloaded_parameters.h, parameter_store.h.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/train/method/method.h"
#include "model/train/offload/tensor_pager.h"
#include "run/engine/engine.h"

namespace lumen::model::train {

// Indices of trained parameters whose updates are computed together.
struct UpdateGroup {
  std::vector<size_t> members;
  size_t draws = 0, first_draw = 0;  // parameters with stochastic rounding: here, and in earlier groups
};
// Neighbours within one layer, limited in bytes of states, so that equal layers get equal groups.
std::vector<UpdateGroup> update_groups(const std::vector<arch::Parameter>& trained, const recipe::Optimizer& optimizer);
// The states of each group; means of weights over the steps are not paged.
std::vector<PageGroup> paged_states(const std::vector<arch::Parameter>& trained, const std::vector<UpdateGroup>& groups,
                                    const recipe::Optimizer& optimizer);
constexpr size_t kUpdateSlots = 3;  // one is loaded, one used, one stored
// The folder of files for which --offload names none.
std::filesystem::path run_folder(const recipe::Recipe& recipe);
// Whether the recipe offloads parameters of layers, and that saves memory on this device.
bool offloads_layers(const run::Device& device, const recipe::Recipe& recipe);
// The same of activations that the backward pass reads.
bool offloads_activations(const run::Device& device, const recipe::Recipe& recipe);
// Either: steps of a single process go by layers.
inline bool goes_by_layers(const run::Device& device, const recipe::Recipe& recipe) {
  return offloads_layers(device, recipe) || offloads_activations(device, recipe);
}
// The pager of kept activations in a step by layers; null where the recipe does not offload them. Prints a line.
std::unique_ptr<TensorPager> open_kept(run::Engine& engine, const recipe::Recipe& recipe, std::vector<PageGroup> kept);
// Whether updates of a single process clear gradients. By layers they do not: the first batch of a step overwrites
// them.
bool updates_clear(const run::Device& device, const recipe::Recipe& recipe);
// The distinct update graphs of the groups.
std::vector<graph::Graph> different_updates(const Method& method, const std::vector<arch::Parameter>& trained,
                                            const std::vector<UpdateGroup>& groups, bool clears);
// Device memory of the slots, and of the tensors themselves without offloading.
int64_t bytes_of_slots(const std::vector<PageGroup>& groups, size_t slots);
int64_t bytes_held(const std::vector<PageGroup>& groups);
// Whether the recipe offloads optimizer states, and that saves memory on this device.
bool offloads_states(const run::Device& device, const recipe::Recipe& recipe, const std::vector<PageGroup>& states);
// The pager of optimizer states; null where offloads_states is false. Prints a line either way.
std::unique_ptr<TensorPager> open_states(run::Engine& engine, const recipe::Recipe& recipe,
                                         std::vector<PageGroup> states);

// Cost of offloading: device memory of slots, bytes outside, and the graphs of updates. Empty where states stay on the
// device.
struct OffloadForecast {
  int64_t states = 0, slots = 0, outside = 0;  // states: without offloading
  bool in_file = false;
  std::vector<graph::Graph> updates;
  // Updates run separately from the gradients of a step.
  bool any() const { return outside > 0 || layers.any(); }
  // By layers: the same for parameters, gradients and kept activations; activations between layers; and the graphs of a
  // step's and an evaluation's parts.
  struct Layers {
    int64_t parameters = 0, parameter_slots = 0, gradients = 0, gradient_slots = 0, between = 0, outside = 0;
    int64_t kept = 0, kept_slots = 0;
    bool computes_again = false;  // recomputes every layer wholly
    std::vector<graph::Graph> step, evaluation;
    bool any() const { return !step.empty(); }
  } layers;
};
OffloadForecast forecast_offload(const run::Device& device, const arch::Model& model, const Method& method,
                                 const recipe::Recipe& recipe);
// beside_values() of an offloaded run.
int64_t beside_offloaded(run::Engine& engine, const arch::Model& model, const Method& method,
                         const recipe::Recipe& recipe);

// The updates of all parameters, group by group.
class GroupedUpdates {
 public:
  // Parameters, gradients and scalars of the step, held by the trainer.
  using TensorOf = std::function<run::DeviceTensorRef(const std::string& name, const graph::Type& type)>;
  // `trained` may be parts of parameters; `clears`: updates set gradients to 0. `states` null: the trainer holds them.
  GroupedUpdates(run::Engine& engine, const Method& method, std::vector<arch::Parameter> trained, bool clears,
                 std::unique_ptr<TensorPager> states, std::shared_ptr<run::Program> lender, TensorOf tensor);

  // kClip and the step's scalars must be set. `seed`: for stochastic rounding. `turn`: called between layers, with the
  // layers of the previous and the next parameters; -1: none.
  void run(uint32_t seed, const std::function<void(int from, int to)>& turn = {});
  TensorPager* states() const { return states_.get(); }  // null: none are paged
  int64_t own_bytes() const;                             // of programs
  std::string explain() const;

 private:
  struct Work {
    std::shared_ptr<run::Program> program;
    std::vector<std::pair<std::string, std::string>> inputs;  // names in the program, and the trainer's
    std::vector<std::pair<std::string, size_t>> tensors;      // names in the program, and index in the group
    std::vector<run::DeviceTensorRef> seeds;
  };
  Work work_of(const UpdateGroup& group, const graph::Graph& update, size_t number);
  std::shared_ptr<run::Program> program_of(const graph::Graph& graph);

  run::Engine& engine_;
  const Method& method_;
  std::vector<arch::Parameter> trained_;
  std::unique_ptr<TensorPager> states_;
  std::shared_ptr<run::Program> lender_;
  TensorOf tensor_;
  std::map<std::string, std::shared_ptr<run::Program>> programs_;  // by their graphs' texts
  std::vector<UpdateGroup> groups_;
  std::vector<Work> work_;
};

}  // namespace lumen::model::train
