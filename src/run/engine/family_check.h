// Kernels of every family on trial: small graphs on a device against the graph's evaluator. With format_check.h what
// `lumen doctor` runs on every device. Proved by tests/run/engine/self_test_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "run/engine/engine.h"

namespace lumen::run {

struct CheckLine {
  std::string what;     // "codec: encode is idempotent", "backward dX", "attend"
  std::string machine;  // "" for the codec alone
  bool ok = false;
  std::string detail;  // first difference, or a figure
  bool ran = true;     // no: it could not be compiled or launched, and `detail` says why
};

// Runs a graph on the engine and by the evaluator; both see the same inputs (f32, i32, or held in a format). The result
// must differ by at most `tolerance` of its largest element.
CheckLine compare_with_oracle(Engine& engine, const std::string& what, const graph::Graph& g,
                              const std::map<std::string, graph::Tensor>& inputs, size_t result_index,
                              double tolerance);

// One line per family: map, reduce, dot, attend, its gradient, move. A family that cannot be compiled or launched is a
// line that failed.
std::vector<CheckLine> check_families(Engine& engine);

}  // namespace lumen::run
