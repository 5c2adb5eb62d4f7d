// Weights and the optimizer's states of a network on the device, by name: what its programs are bound to, and what its
// checkpoints hold. Proved by tests/apps/network/network_test.cpp.
//
// May include: base, model/file, model/recipe/optimizer, model/train/trainer, run/engine.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/file/checkpoint.h"
#include "run/engine/engine.h"

namespace lumen::model::device_tensors {

using DeviceTensors = std::map<std::string, run::DeviceTensorRef>;

// A program, and the inputs of it that are no part of the network.
struct BoundProgram {
  std::shared_ptr<run::Program> program;
  DeviceTensors data;
  std::vector<std::string> results;

  // Gives an input its bytes. What the program does not read is left aside.
  void put(const std::string& name, const void* from, int64_t bytes) const;
  // The result "loss" of a step that has run. Error (exit 4) when it is not finite.
  double finite_loss(int64_t step) const;
};

// A graph compiled and bound. `place` says where the tensor of an input is kept that is a part of the network; null for
// others. What is not there yet is zeros.
BoundProgram bound_program(run::Engine& engine, const graph::Graph& g, const graph::Bindings& symbols,
                           const std::function<run::DeviceTensorRef*(const std::string& input)>& place);

// Adds the tensors that `keeps` names to a checkpoint, weights and states apart; they are read while it is written.
void add_tensors(file::CheckpointContent& content, const DeviceTensors& tensors,
                 const std::function<bool(const std::string& name)>& keeps);
// The other way round. Error when the network has no such tensor, or one that is not finite.
void take_tensor(DeviceTensors& tensors, run::Engine& engine, const file::StoredTensor& stored,
                 const std::filesystem::path& folder);

}  // namespace lumen::model::device_tensors
