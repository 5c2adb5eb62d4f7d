// The names of loop IR that all of synthesis is written in, said once for its rooms: a kernel's formulas read as
// formulas there (expr.h), not as calls of another namespace.
#pragma once

#include "kernel/loop/build.h"

namespace lumen::synth {

using loop::BufferId;
using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using loop::VType;

}  // namespace lumen::synth
