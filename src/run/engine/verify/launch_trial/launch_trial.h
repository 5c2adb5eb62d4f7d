// Trials of a compiled program's kernels: each is launched once, as the program will launch it, on random operands, and
// some elements of its results are compared with the graph's values, computed one by one in double precision. They
// include the first and the last element, ends of axes and positions between.
//
// May include: base, graph/fuse, graph/ir, graph/match, number/codec, number/format, number/formula, run/device,
// run/engine/compile, run/engine/verify/trial.
// Offers: held_operand.h.
#pragma once

#include <string>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/judge.h"

namespace lumen::run {

struct LaunchTrial {
  bool tried = false;  // false: `text` has the reason
  bool right = true;
  std::string text = {};  // the comparison; or the kernel, its shape, the worst element, its expected and actual value
  int64_t compared = 0;   // elements
};

// Error if the device fails to launch it.
LaunchTrial try_launch(const CompileContext& context, const LoadedForm& form);

}  // namespace lumen::run
