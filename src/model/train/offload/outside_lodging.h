// Layers' parameters and gradients that lie outside of the device, and visit it (visits.h). Those outside of layers
// stay there. Proved by tests/model/train/offload/layer_step_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/train/offload/layer_plan.h"
#include "model/train/offload/lodging.h"
#include "model/train/offload/visits.h"

namespace lumen::model {

class OutsideLodging : public Lodging {
 public:
  // All zeros to begin with.
  OutsideLodging(run::Engine& engine, const Recipe& recipe, const LayerPlan& plan);

  void call(size_t part) override;
  void come(size_t part) override;
  void leave(size_t part) override;
  void open_gradients(size_t part, bool first) override;
  void close_gradients(size_t part) override;
  run::DeviceTensorRef tensor(size_t part, const std::string& name) override { return tensor(name); }
  int64_t parameter_bytes() const override { return parameters_->seat_bytes(); }
  int64_t gradient_bytes() const override { return gradients_->seat_bytes(); }

  // What updates of a layer read and write is here between turn(.., layer) and turn(layer, ..). -1: none.
  void turn(int from, int to);
  bool has(const std::string& name) const { return parameters_->find(name) || gradients_->find(name); }
  run::DeviceTensorRef tensor(const std::string& name);
  Visits& parameters() { return *parameters_; }

 private:
  bool is_layer(size_t part) const { return layers_.at(part) >= 0; }
  size_t group(size_t part) const { return group_of_.at(layers_.at(part)); }

  std::vector<int> layers_;  // of parts; -1: none
  std::map<int, size_t> group_of_;
  std::unique_ptr<Visits> parameters_, gradients_;
};

}  // namespace lumen::model
