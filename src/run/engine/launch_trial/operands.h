// Random operands of one group's kernels, valid for what they are: indices that pick rows that are there, places that
// fit, squares that are not negative. Large ones are few numbers again and again, in an order that no tile has, so that
// they are made at the pace of memory and any element of them is known without the rest. Proved by
// tests/run/engine/launch_trial/sampled_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "graph/fuse/plan.h"
#include "run/device/device.h"

namespace lumen::run {

// Why kernels cannot be tried. No mistake of theirs.
struct CannotTry {
  std::string why;
};

class Operand {
 public:
  virtual ~Operand() = default;
  virtual double number(int64_t element) const = 0;  // what it decodes to
  // Its bytes from `at` on, which is a multiple of piece().
  virtual void write(int64_t at, int64_t bytes, uint8_t* to) const = 0;
  virtual int64_t piece() const = 0;  // bytes
};

class Operands {
 public:
  // For values in memory that the group reads. `positive`: numbers that roots and logarithms take. Throws CannotTry.
  Operands(const graph::Graph& g, const graph::Group& group, bool positive);
  const Operand& operator[](graph::ValueId v) const { return *operands_.at(v); }
  bool contains(graph::ValueId v) const { return operands_.contains(v); }

 private:
  std::map<graph::ValueId, std::unique_ptr<Operand>> operands_;
};

// On the device, piece after piece.
void upload(Device& device, const Operand& operand, int64_t bytes, void* to);

}  // namespace lumen::run
