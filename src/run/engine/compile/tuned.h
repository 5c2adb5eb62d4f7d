// Plans of kernels that were measured to be faster than the one the cost model chose, and trials of others while a
// program runs (program/tune.h). Proved by tests/run/engine/tune_test.cpp.
#pragma once

#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/compile/steps.h"

namespace lumen::run {

// Replaces plans by those that were measured to be faster; true by distinct form where a measurement exists, or where
// there is nothing to measure.
std::vector<bool> use_remembered_plans(const CompileContext& context, const graph::Plan& plan,
                                       const CompileOptions& options, DistinctKernels* kernels);

// The other plans of distinct form `i` are synthesized and compiled when its last step has run for a while; null where
// it has none.
std::shared_ptr<Autotuner> make_trial(const CompileContext& context,
                                      const std::shared_ptr<const graph::Pipeline>& pipeline,
                                      const DistinctKernels& kernels, size_t i, const std::vector<StepCode>& code,
                                      const CompileOptions& options);

}  // namespace lumen::run
