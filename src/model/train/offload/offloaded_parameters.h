// Parameters and gradients of layers, or a rank's shards of them, that are paged to the device (tensor_pager.h).
// Parameters that belong to no layer stay on the device. Proved by tests/model/train/offload/layer_step_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/train/offload/layer_plan.h"
#include "model/train/offload/parameter_store.h"
#include "model/train/offload/tensor_pager.h"

namespace lumen::model::train {

class OffloadedParameters : public ParameterStore {
 public:
  // All are zeros at first. A parameter outside of the plan's page groups stays on the device.
  OffloadedParameters(run::Engine& engine, const recipe::Recipe& recipe, const LayerPlan& plan);

  void prefetch(size_t part) override;
  void acquire(size_t part) override;
  void release(size_t part) override;
  void open_gradients(size_t part, bool first) override;
  void close_gradients(size_t part) override;
  run::DeviceTensorRef tensor(size_t part, const std::string& name) override { return tensor(name); }
  int64_t parameter_bytes() const override { return parameters_ ? parameters_->slot_bytes() : 0; }
  int64_t gradient_bytes() const override { return gradients_ ? gradients_->slot_bytes() : 0; }

  // Begins to load the part's gradients.
  void prefetch_gradients(size_t part);

  // Tensors that a layer's updates use are resident between turn(.., layer) and turn(layer, ..). -1: no layer.
  void turn(int from, int to);
  bool has(const std::string& name) const { return has(parameters_, name) || has(gradients_, name); }
  run::DeviceTensorRef tensor(const std::string& name);
  // Null where none are offloaded.
  TensorPager* parameters() const { return parameters_.get(); }
  TensorPager* gradients() const { return gradients_.get(); }
  void clear_gradients();  // none may be resident

 private:
  static bool has(const std::unique_ptr<TensorPager>& pager, const std::string& name) {
    return pager && pager->find(name);
  }
  bool moves(const std::unique_ptr<TensorPager>& pager, size_t part) const {
    return has_bytes(pager, layers_.at(part));
  }
  bool has_bytes(const std::unique_ptr<TensorPager>& pager, int layer) const;
  size_t group(size_t part) const { return group_of_.at(layers_.at(part)); }

  std::vector<int> layers_;  // of parts; -1: none
  std::map<int, size_t> group_of_;
  bool updates_clear_ = false;  // gradients
  std::unique_ptr<TensorPager> parameters_, gradients_;
};

}  // namespace lumen::model::train
