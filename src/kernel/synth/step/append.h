// Appends steps of a graph that is made during a synthesis to its steps. Proved by
// tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include <functional>
#include <utility>

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// The scratch of `made` becomes further scratch of `out`; `place` maps values of its graph to arguments.
inline void append(Synthesis made, const std::function<Argument(graph::ValueId)>& place, Synthesis& out) {
  const int first = out.scratch.size();
  out.scratch.insert(out.scratch.end(), made.scratch.begin(), made.scratch.end());
  for (Step& s : made.steps) {
    for (Argument& a : s.arguments) {
      if (a.from == Argument::From::scratch)
        a.index += first;
      else
        a = place(a.index);
    }
    out.steps.push_back(std::move(s));
  }
}

}  // namespace lumen::synth
