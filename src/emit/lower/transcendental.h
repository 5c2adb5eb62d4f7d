// exp, log, sin, cos, tanh and pow from their formulas (kernel/loop/expand.h): inlined if a kernel has few of them, as
// functions of the module if it has many, so that unrolled epilogues stay small.
#pragma once

#include <llvm/IR/Module.h>

#include <map>

#include "emit/lower/types.h"

namespace lumen::emit {

class Transcendentals {
 public:
  // Counts the sites of each operation in `k`; without `calls` all are inlined.
  Transcendentals(const loop::Kernel& k, llvm::Module& module, bool calls);
  llvm::Value* lower(Ir& b, ScalarOp op, loop::VType type, const std::vector<llvm::Value*>& x);

 private:
  using Site = std::pair<ScalarOp, std::pair<Scalar, int>>;
  void count(const loop::Region& r, int64_t times);
  llvm::Function* function(ScalarOp op, loop::VType type);

  llvm::Module& module_;
  bool calls_;
  std::map<loop::ValueId, int64_t> constants_;
  std::map<Site, int64_t> sites_;
};

}  // namespace lumen::emit
