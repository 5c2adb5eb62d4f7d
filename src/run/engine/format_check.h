// Checks of a format: its codec's properties, its kernels against the codec on every machine that runs here, and its
// error on typical data. Used by `lumen format check` and `lumen doctor`. Proved by tests/cli.
#pragma once

#include <string>
#include <vector>

#include "run/engine/engine.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {

// Relative Euclidean error of rounding, by kind of data.
struct FormatError {
  double gaussian = 0, heavy = 0;  // standard normal; Student t with 3 degrees of freedom
};
FormatError format_error(const Format& f);

// Properties that follow from the definition alone: decode(encode(x)) is close to x, encoding decoded values changes
// nothing, zeros stay zeros, sizes add up.
std::vector<CheckLine> check_codec(const Format& f);

// Compiled kernels against codec and graph evaluator: encode, decode, y = x w^T, dX = dY w, the gradient of w through
// the rounding. The machine is that of `engine`.
std::vector<CheckLine> check_kernels(Engine& engine, const FormatRef& f);

}  // namespace lumen::run
