// Layers' parameters and gradients that lie outside of the device, and visit it (visits.h), or a rank's parts of them.
// Those outside of layers stay there. Proved by tests/model/train/offload/layer_step_test.cpp.
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
  // All zeros to begin with. What a plan has no records of stays.
  OutsideLodging(run::Engine& engine, const Recipe& recipe, const LayerPlan& plan);

  void call(size_t part) override;
  void come(size_t part) override;
  void leave(size_t part) override;
  void open_gradients(size_t part, bool first) override;
  void close_gradients(size_t part) override;
  run::DeviceTensorRef tensor(size_t part, const std::string& name) override { return tensor(name); }
  int64_t parameter_bytes() const override { return parameters_ ? parameters_->seat_bytes() : 0; }
  int64_t gradient_bytes() const override { return gradients_ ? gradients_->seat_bytes() : 0; }

  // The part's gradients will be wanted.
  void call_gradients(size_t part);

  // What updates of a layer read and write is here between turn(.., layer) and turn(layer, ..). -1: none.
  void turn(int from, int to);
  bool has(const std::string& name) const { return has(parameters_, name) || has(gradients_, name); }
  run::DeviceTensorRef tensor(const std::string& name);
  // Null where none lie outside.
  Visits* parameters() const { return parameters_.get(); }
  Visits* gradients() const { return gradients_.get(); }
  void clear_gradients();  // none is here

 private:
  static bool has(const std::unique_ptr<Visits>& visits, const std::string& name) {
    return visits && visits->find(name);
  }
  bool moves(const std::unique_ptr<Visits>& visits, size_t part) const { return has_bytes(visits, layers_.at(part)); }
  bool has_bytes(const std::unique_ptr<Visits>& visits, int layer) const;
  size_t group(size_t part) const { return group_of_.at(layers_.at(part)); }

  std::vector<int> layers_;  // of parts; -1: none
  std::map<int, size_t> group_of_;
  bool updates_clear_ = false;  // gradients
  std::unique_ptr<Visits> parameters_, gradients_;
};

}  // namespace lumen::model
