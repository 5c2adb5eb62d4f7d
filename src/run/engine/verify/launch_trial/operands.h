// Random operands for one group's kernels, valid for their use: indices in range, positions that fit, non-negative
// squares. Large ones repeat a few numbers, with a period that no tile has, so that they are generated at memory speed
// and any element is known without the others. Proved by tests/run/engine/verify/launch_trial/sampled_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "graph/fuse/plan.h"
#include "run/device/device.h"

namespace lumen::run {

// The reason why kernels cannot be tried; not an error of the kernels.
struct CannotTry {
  std::string why;
};

class Operand {
 public:
  virtual ~Operand() = default;
  virtual double number(int64_t element) const = 0;  // the decoded value
  // Its bytes from `at` on, a multiple of piece().
  virtual void write(int64_t at, int64_t bytes, uint8_t* to) const = 0;
  virtual int64_t piece() const = 0;  // bytes
};

class Operands {
 public:
  // For the values in memory that the group reads. `positive`: numbers valid for roots and logarithms. Throws
  // CannotTry.
  Operands(const graph::Graph& g, const graph::Group& group, bool positive);
  const Operand& operator[](graph::ValueId v) const { return *operands_.at(v); }
  bool contains(graph::ValueId v) const { return operands_.contains(v); }

 private:
  std::map<graph::ValueId, std::unique_ptr<Operand>> operands_;
};

// Copies it to the device, piece by piece.
void upload(Device& device, const Operand& operand, int64_t bytes, void* to);

}  // namespace lumen::run
