// Uses kernel plans that were measured to be faster than the cost model's choice, and tries others while a program runs
// (program/tune.h). Proved by tests/run/engine/tune_test.cpp.
#pragma once

#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/compile/steps.h"

namespace lumen::run {

// Replaces plans by those measured to be faster. Returns, by distinct form, true if a measurement exists or there is no
// other plan.
std::vector<bool> use_remembered_plans(const CompileContext& context, const graph::Plan& plan,
                                       const CompileOptions& options, DistinctKernels* kernels);

// The other plans of distinct form `i` are synthesized and compiled after its last step has run for a while; null if
// there are none.
std::shared_ptr<Autotuner> make_trial(const CompileContext& context,
                                      const std::shared_ptr<const graph::Pipeline>& pipeline,
                                      const DistinctKernels& kernels, size_t i, const std::vector<StepCode>& code,
                                      const CompileOptions& options);

}  // namespace lumen::run
