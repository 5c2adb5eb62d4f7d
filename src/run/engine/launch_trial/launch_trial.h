// Kernels of a compiled program on trial: each is launched once, as the program will launch it, on random data of its
// own operands, and some elements of what it gives are compared with what the graph says they are, computed one by one
// in double precision. The first and the last element, ends of axes and places between are among them.
//
// May include: base, graph/fuse, graph/ir, graph/match, number/codec, number/format, number/formula, run/device,
// run/engine/compile, run/engine/trial.
// Offers: held_operand.h, policy.h, trial_results.h.
#pragma once

#include <string>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/judge.h"

namespace lumen::run {

struct LaunchTrial {
  bool tried = false;  // no: `text` says why
  bool right = true;
  std::string text = {};  // what was compared, or the kernel, its shape, the worst element, what was expected, and got
  int64_t compared = 0;   // elements
};

// Error where the device fails to launch it.
LaunchTrial try_launch(const CompileContext& context, const LoadedForm& form);

}  // namespace lumen::run
