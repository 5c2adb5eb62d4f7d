// What the launches of a program cost, as a table: equal kernels are one line, the most expensive first, each beside
// the ceiling of the machine that binds it. Proved by tests/run/engine/explain_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernel/synth/step/step.h"
#include "run/engine/program/program.h"

namespace lumen::run {

// Lines of equal plans added up, most seconds first.
std::vector<KernelTime> join_equal(std::vector<KernelTime> times);

// Seconds of one run that were to be expected: what the cost model says, or the ceiling that binds where it is slower
// or there is no model.
double predicted(const KernelTime& t, const Ceilings& ceilings);

// `runs`: how often the program ran. Without ceilings the columns of predictions and fractions are left out.
std::string times_table(const std::vector<KernelTime>& times, int64_t runs, const Ceilings* ceilings);

// A parameter, its name and its type, and the plan of a product it is a factor of.
struct ParameterUse {
  std::string parameter, plan;
};
// Which products parameters go through, plan by plan: names that differ in numbers alone are one, with their count.
std::string parameters_table(const std::vector<ParameterUse>& uses);

// A product's plan, and what families of kernels bid for it.
struct OfferedPlans {
  std::string plan;
  std::vector<synth::BidNote> bids;
};
// Beneath each plan the bids with their predicted times, the cheapest first, and why others refused; equal plans are
// listed once. `cycles`: of the machine in a second; 0: costs are cycles.
std::string bids_table(const std::vector<OfferedPlans>& offers, double cycles);

// The least time work of a kernel can take, and by which ceiling.
struct Bound {
  double seconds = 0;
  const char* ceiling = "";  // "read", "f32", "int8"
};
Bound bound_of(const std::string& plan, double flops, double bytes, const Ceilings& ceilings);

}  // namespace lumen::run
