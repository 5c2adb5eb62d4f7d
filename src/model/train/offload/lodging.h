// Where parameters of the parts of a step by layers, and their gradients, are while no part runs: outside of the device
// (outside_lodging.h), or in pieces with other ranks (train/ranks/rank_lodging.h, summed_lodging.h). Parts are known by
// their numbers in the plan (layer_plan.h), one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "run/engine/engine.h"

namespace lumen::model {

class Lodging {
 public:
  virtual ~Lodging() = default;

  // The part's parameters will be wanted: they begin to come, if there is room.
  virtual void call(size_t part) = 0;
  // They are here from come() to leave().
  virtual void come(size_t part) = 0;
  virtual void leave(size_t part) = 0;
  // There is room for the part's gradients between these; `first`: of the batches of a step.
  virtual void open_gradients(size_t part, bool first) = 0;
  virtual void close_gradients(size_t part) = 0;
  // What lodges here, a parameter or a gradient of the part; null: it stays on the device.
  virtual run::DeviceTensorRef tensor(size_t part, const std::string& name) = 0;

  // The last part of a pass through all is done; what has failed before.
  virtual std::optional<Error> end_pass() { return std::nullopt; }
  // Others wait for what this process does, whether its own work fails or not: the pass goes to its end.
  virtual bool goes_to_the_end() const { return false; }
  virtual int64_t parameter_bytes() const = 0;  // of the device's memory
  virtual int64_t gradient_bytes() const = 0;
};

// All of them stay on the device.
class StayingLodging : public Lodging {
 public:
  void call(size_t) override {}
  void come(size_t) override {}
  void leave(size_t) override {}
  void open_gradients(size_t, bool) override {}
  void close_gradients(size_t) override {}
  run::DeviceTensorRef tensor(size_t, const std::string&) override { return nullptr; }
  int64_t parameter_bytes() const override { return 0; }
  int64_t gradient_bytes() const override { return 0; }
};

}  // namespace lumen::model
