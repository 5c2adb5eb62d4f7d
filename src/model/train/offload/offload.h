// Training with less memory of the device than it needs. States of the optimizer lie in a file or in the host's memory
// and visit the device group by group while updates are computed, with the bits of a step that holds everything
// (updates.cpp); so do parameters of layers and their gradients, and what the forward pass keeps for the backward pass,
// where the whole step goes layer by layer (layer_step.h). Proved by tests/model/train/offload/updates_test.cpp and
// layer_step_test.cpp.
//
// May include: base, graph/grad, graph/ir, graph/keep, graph/pipeline, graph/transform, model/train/method,
// model/train/recipe, run/device, run/device/outside, run/engine.
// Offers: layer_plan.h, layer_step.h, lodging.h, outside_lodging.h.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/train/method/method.h"
#include "model/train/offload/visits.h"
#include "run/engine/engine.h"

namespace lumen::model {

// Parameters whose updates are computed together, by their numbers among those that are trained.
struct UpdateGroup {
  std::vector<size_t> members;
  size_t draws = 0, first_draw = 0;  // roundings at random: how many, and how many groups before have
};
// Neighbours of one layer, as many as keep a group's states small, so that layers have groups alike.
std::vector<UpdateGroup> update_groups(const std::vector<Parameter>& trained, const Optimizer& optimizer);
// The states of each, as they visit a device; means of weights over the steps do not.
std::vector<VisitorGroup> visiting_states(const std::vector<Parameter>& trained, const std::vector<UpdateGroup>& groups,
                                          const Optimizer& optimizer);
constexpr size_t kUpdateSeats = 3;  // one comes, one is here, one leaves
// The folder of files for which --offload names none.
std::filesystem::path run_folder(const Recipe& recipe);
// Whether the recipe has parameters of layers lie elsewhere, and that gains something on this device.
bool offloads_layers(const run::Device& device, const Recipe& recipe);
// The same of what the forward pass keeps for the backward pass.
bool offloads_activations(const run::Device& device, const Recipe& recipe);
// Either: steps of one process go by layers.
inline bool goes_by_layers(const run::Device& device, const Recipe& recipe) {
  return offloads_layers(device, recipe) || offloads_activations(device, recipe);
}
// What is kept between the passes of a step by layers: opened where the recipe wants that, which is said in a line.
std::unique_ptr<Visits> open_kept(run::Engine& engine, const Recipe& recipe, std::vector<VisitorGroup> kept);
// Whether updates of one process clear gradients: by layers, the first batch of a step writes over what the last step
// has left.
bool updates_clear(const run::Device& device, const Recipe& recipe);
// The groups' updates, each text once.
std::vector<graph::Graph> different_updates(const Method& method, const std::vector<Parameter>& trained,
                                            const std::vector<UpdateGroup>& groups, bool clears);
// What seats of the groups take of a device, and what is held where none lies elsewhere.
int64_t bytes_of_seats(const std::vector<VisitorGroup>& groups, size_t seats);
int64_t bytes_held(const std::vector<VisitorGroup>& groups);
// Whether the recipe has states lie elsewhere, and that gains something on this device.
bool offloads_states(const run::Device& device, const Recipe& recipe, const std::vector<VisitorGroup>& states);
// Opened where the recipe wants them, which is said in a line; null, said as well, where offloads_states is false.
std::unique_ptr<Visits> open_states(run::Engine& engine, const Recipe& recipe, std::vector<VisitorGroup> states);

// What that will take: bytes of seats on the device, bytes elsewhere, and the graphs of updates. Nothing where states
// stay.
struct OffloadForecast {
  int64_t states = 0, seats = 0, outside = 0;  // states: as they would be held
  bool in_file = false;
  std::vector<graph::Graph> updates;
  // Updates are computed apart from the gradients of a step.
  bool any() const { return outside > 0 || layers.any(); }
  // By layers: the same of parameters and gradients, and of what is kept between the passes; what layers hand to each
  // other, and the values of the largest part of a step and of an evaluation.
  struct Layers {
    int64_t parameters = 0, parameter_seats = 0, gradients = 0, gradient_seats = 0, between = 0, outside = 0;
    int64_t kept = 0, kept_seats = 0;
    bool computes_again = false;  // all of each layer
    std::vector<graph::Graph> step, evaluation;
    bool any() const { return !step.empty(); }
  } layers;
};
OffloadForecast forecast_offload(const run::Device& device, const Model& model, const Method& method,
                                 const Recipe& recipe);
// beside_values() of such a run.
int64_t beside_offloaded(run::Engine& engine, const Model& model, const Method& method, const Recipe& recipe);

// The updates of all parameters, group by group.
class GroupedUpdates {
 public:
  // Parameters, gradients and numbers of the step, which the trainer holds.
  using TensorOf = std::function<run::DeviceTensorRef(const std::string& name, const graph::Type& type)>;
  // `trained` may be parts of parameters; `clears`: gradients are 0 then. `states` null: they are the
  // trainer's, too.
  GroupedUpdates(run::Engine& engine, const Method& method, std::vector<Parameter> trained, bool clears,
                 std::unique_ptr<Visits> states, std::shared_ptr<run::Program> lender, TensorOf tensor);

  // kClip and the numbers of the step are set. `seed`: of its roundings. `turn`: called between layers, with those of
  // parameters before and behind; -1: none.
  void run(uint32_t seed, const std::function<void(int from, int to)>& turn = {});
  Visits* states() const { return states_.get(); }  // that visit; null: none
  int64_t own_bytes() const;                        // of programs
  std::string explain() const;

 private:
  struct Work {
    std::shared_ptr<run::Program> program;
    std::vector<std::pair<std::string, std::string>> inputs;  // of the program, and what the trainer calls them
    std::vector<std::pair<std::string, size_t>> visitors;     // of the program, and number in the group
    std::vector<run::DeviceTensorRef> seeds;
  };
  Work work_of(const UpdateGroup& group, const graph::Graph& update, size_t number);
  std::shared_ptr<run::Program> program_of(const graph::Graph& graph);

  run::Engine& engine_;
  const Method& method_;
  std::vector<Parameter> trained_;
  std::unique_ptr<Visits> states_;
  std::shared_ptr<run::Program> lender_;
  TensorOf tensor_;
  std::map<std::string, std::shared_ptr<run::Program>> programs_;  // by their graphs' texts
  std::vector<UpdateGroup> groups_;
  std::vector<Work> work_;
};

}  // namespace lumen::model
