// The cost of a program's launches as a table: equal kernels are one line, the most expensive first, each with the
// machine's ceiling that limits it. Proved by tests/run/engine/explain_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernel/synth/step/step.h"
#include "run/engine/program/program.h"

namespace lumen::run {

// Sums lines of equal plans, most seconds first.
std::vector<KernelTime> join_equal(std::vector<KernelTime> times);

// Expected seconds of one run: the cost model's estimate, or the limiting ceiling if it is slower or there is no model.
double predicted(const KernelTime& t, const Ceilings& ceilings);

// `runs`: number of runs. Without ceilings the columns of predictions and fractions are omitted.
std::string times_table(const std::vector<KernelTime>& times, int64_t runs, const Ceilings* ceilings);

// A parameter's name and type, and the plan of a product that has it as a factor.
struct ParameterUse {
  std::string parameter, plan;
};
// The products that use parameters, by plan: names that differ only in numbers are merged, with a count.
std::string parameters_table(const std::vector<ParameterUse>& uses);

// A product's plan, and the bids of kernel families.
struct OfferedPlans {
  std::string plan;
  std::vector<synth::BidNote> bids;
};
// Lists under each plan the bids with predicted times, the cheapest first, and the reasons of refusals; equal plans are
// listed once. `cycles`: clock of the machine per second; 0: costs are in cycles.
std::string bids_table(const std::vector<OfferedPlans>& offers, double cycles);

// The least time that a kernel's work can take, and the limiting ceiling.
struct Bound {
  double seconds = 0;
  const char* ceiling = "";  // "read", "f32", "int8"
};
Bound bound_of(const std::string& plan, double flops, double bytes, const Ceilings& ceilings);

}  // namespace lumen::run
