// Steps of a graph made in the midst of a synthesis, behind the steps that are there. Proved by
// tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include <functional>
#include <utility>

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// The scratch of `made` becomes further scratch of `out`, and `place` says where a value of its graph is.
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
