// The scalar algebra in LLVM IR, at any lane count. No fast-math flag is ever set: add and mul are never contracted,
// fma is fused.
#pragma once

#include <vector>

#include "emit/lower/types.h"

namespace lumen::emit {

// `from` is the type of operand 0 (of operand 1 for select), `to` the type of the result. Transcendental operations are
// expanded to these (transcendental.h). Integer division by zero gives 0 on every machine.
llvm::Value* lower_scalar(Ir& b, ScalarOp op, loop::VType from, loop::VType to, const std::vector<llvm::Value*>& x);

}  // namespace lumen::emit
