// A format on autotuner: its codec's properties, its kernels against the codec on every machine that runs here, and its
// error on typical data. What `lumen format check` and `lumen doctor` run. Proved by tests/cli.
#pragma once

#include <string>
#include <vector>

#include "run/engine/engine.h"
#include "run/engine/trial/trial.h"

namespace lumen::run {

// Relative Euclidean error of rounding, by kind of data.
struct FormatError {
  double gaussian = 0, heavy = 0;  // standard normal; Student t with 3 degrees of freedom
};
FormatError format_error(const Format& f);

// Properties that follow from the definition alone: decode(encode(x)) is near x, encoding what was decoded changes
// nothing, zeros stay zeros, sizes add up.
std::vector<CheckLine> check_codec(const Format& f);

// Compiled kernels against codec and graph oracle: encode, decode, y = x w^T, dX = dY w, the gradient of w through the
// rounding. `engine` decides the machine.
std::vector<CheckLine> check_kernels(Engine& engine, const FormatRef& f);

}  // namespace lumen::run
