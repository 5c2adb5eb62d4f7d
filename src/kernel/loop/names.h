// The names of loop IR that all of synthesis uses, imported once: a kernel's formulas read as formulas there (expr.h),
// not as calls into another namespace.
#pragma once

#include "kernel/loop/build.h"

namespace lumen::synth {

using loop::BufferId;
using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using loop::VType;

}  // namespace lumen::synth
