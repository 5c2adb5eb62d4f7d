// A family whose functions are run, and trained, on batches of named inputs: what applications beside language models
// stand on. Knows a family by its text alone. Weights and the optimizer's states live on the device; a function is
// compiled once for each set of extents. Proved by tests/apps/network/network_test.cpp.
//
// May include: apps/draws, base, base/structured, graph/pass, model/arch, model/arch/family, model/device_tensors,
// model/file, model/recipe/optimizer, run/engine.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "graph/pass/pass.h"
#include "model/arch/family/family.h"
#include "model/device_tensors/device_tensors.h"
#include "model/recipe/optimizer/optimizer_rule.h"
#include "run/engine/engine.h"

namespace lumen::apps {

struct NetworkSettings {
  std::string family, size;  // a named size of the family; "": its defaults
  graph::Config config;      // over those
  uint32_t seed = 1;         // of fresh weights, and of what losses draw
  model::recipe::OptimizerSettings optimizer;
};

// As JSON, as checkpoints hold it; `where` is what errors say.
std::string network_settings_text(const NetworkSettings& settings);
NetworkSettings parse_network_settings(const std::string& text, const std::string& where);

// Inputs by name, and the extents that they have. What a function does not read is left aside.
struct NetworkInputs {
  std::map<std::string, std::vector<float>> numbers;
  std::map<std::string, std::vector<int32_t>> integers;
  graph::Bindings symbols;
};

// A change to a function's graph before it is compiled, or its gradient taken: operands in formats, for example. Inputs
// that it adds are kept on the device (Network::keep) or come with every batch.
using GraphChange = std::function<graph::Graph(graph::Graph)>;

class Network {
 public:
  // Fresh weights. Error (exit 2) when there is no such family or size.
  Network(run::Engine& engine, const model::arch::Library& library, NetworkSettings settings);
  // The newest checkpoint in `folder`. Error when there is none, or it is of something else.
  static std::unique_ptr<Network> load(run::Engine& engine, const model::arch::Library& library,
                                       const std::filesystem::path& folder);

  const NetworkSettings& settings() const { return settings_; }
  int64_t config(const std::string& key) const;  // a whole number. Error when the family has no such key
  int64_t steps() const { return steps_; }
  int64_t trained_numbers() const;
  const std::vector<model::arch::Parameter>& parameters() const { return parameters_; }
  const model::arch::Family& family() const { return *family_; }
  bool has(const std::string& function) const { return family_->has_function(function); }

  bool has_config(const std::string& key) const { return config_.contains(key); }

  // Weights by name; with `averaged` their mean over the steps, where the optimizer keeps one. Error when there is none
  // of that name.
  std::vector<float> read(const std::string& name, bool averaged = false) const;
  void write(const std::string& name, std::span<const float> numbers);

  // What functions are called with this change; "" is without one, and cannot be defined. Programs of an older change
  // of that name are forgotten.
  void define(const std::string& change, GraphChange made);
  // An input that a change added: its bytes stay on the device, in no checkpoint. Of another type than before: programs
  // that are compiled already go on with what they have.
  void keep(const std::string& name, const graph::Type& type, std::span<const std::byte> bytes);

  // One step of the optimizer on a loss, whose input "seed" is drawn for the step; the loss. Error (exit 4) when it is
  // not finite: the step is then undone by none, the last checkpoint is what is left.
  double step(const std::string& loss, const NetworkInputs& inputs, double rate, const std::string& change = "");
  // What a function gives; with `averaged` by the mean of the weights over the steps, where the optimizer keeps one.
  std::vector<float> run(const std::string& function, const NetworkInputs& inputs, bool averaged = false,
                         const std::string& change = "");
  // The same with what the change gives beside it, by name.
  std::map<std::string, std::vector<float>> results(const std::string& function, const NetworkInputs& inputs,
                                                    bool averaged, const std::string& change);

  // The program of a function with a change, for what it costs: its memory, its time by the inputs it last had.
  run::Program& program(const std::string& function, const graph::Bindings& symbols, const std::string& change);

  // The graph of a function with a change, and what an input of it holds that is a weight or kept: to run them
  // elsewhere.
  graph::Graph graph_of(const std::string& function, const graph::Bindings& symbols, const std::string& change) const;
  std::vector<uint8_t> bytes_of(const std::string& input) const;

  // A checkpoint, from which training goes on to the same bits; the newest `keep` stay.
  std::filesystem::path save(const std::filesystem::path& folder, int keep = 2) const;

 private:
  model::device_tensors::BoundProgram compile(const graph::Graph& g, const graph::Bindings& symbols, bool averaged);
  model::device_tensors::BoundProgram& compiled(const std::string& function, const graph::Bindings& symbols,
                                                bool is_loss, bool averaged, const std::string& change);
  model::device_tensors::BoundProgram& ran(const std::string& function, const NetworkInputs& inputs, bool averaged,
                                           const std::string& change);
  bool is_parameter(const std::string& name) const;
  void restore(const std::filesystem::path& folder);

  run::Engine& engine_;
  const model::arch::Library& library_;
  NetworkSettings settings_;
  model::arch::FamilyRef family_;
  graph::Config config_;
  std::vector<model::arch::Parameter> parameters_, trained_;
  std::shared_ptr<model::recipe::Optimizer> optimizer_;
  model::device_tensors::DeviceTensors tensors_;  // weights and states, by name
  std::map<std::string, GraphChange> changes_;
  model::device_tensors::DeviceTensors kept_;  // inputs of changes
  std::map<std::string, std::map<std::string, model::device_tensors::BoundProgram>>
      programs_;  // by change, then by function and extents
  int64_t steps_ = 0;
};

}  // namespace lumen::apps
