// Where the parameters and gradients of a step by layers are kept: on the device, outside of it
// (offloaded_parameters.h), or sharded over ranks (train/ranks/sharded_parameters.h, replicated_parameters.h). Parts
// are numbered as in the plan (layer_plan.h) and run in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "run/engine/engine.h"

namespace lumen::model::train {

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // Begins to load the part's parameters, if there is room.
  virtual void prefetch(size_t part) = 0;
  // They are on the device from acquire() to release().
  virtual void acquire(size_t part) = 0;
  virtual void release(size_t part) = 0;
  // The part's gradients have memory between these; `first`: of the batches of a step.
  virtual void open_gradients(size_t part, bool first) = 0;
  virtual void close_gradients(size_t part) = 0;
  // A parameter or gradient that this store pages; null: it always stays on the device.
  virtual run::DeviceTensorRef tensor(size_t part, const std::string& name) = 0;

  // After the last part of a pass; returns an error of the background work.
  virtual std::optional<Error> end_pass() { return std::nullopt; }
  // Other ranks wait for this process's exchanges, so a pass must run to its end even after an error.
  virtual bool must_finish() const { return false; }
  virtual int64_t parameter_bytes() const = 0;  // of device memory
  virtual int64_t gradient_bytes() const = 0;
};

// All parameters and gradients stay on the device.
class ResidentParameters : public ParameterStore {
 public:
  void prefetch(size_t) override {}
  void acquire(size_t) override {}
  void release(size_t) override {}
  void open_gradients(size_t, bool) override {}
  void close_gradients(size_t) override {}
  run::DeviceTensorRef tensor(size_t, const std::string&) override { return nullptr; }
  int64_t parameter_bytes() const override { return 0; }
  int64_t gradient_bytes() const override { return 0; }
};

}  // namespace lumen::model::train
