// A plan's groups as kernels, and those as launches. Proved by tests/run/engine/compile_test.cpp.
#pragma once

#include <map>
#include <memory>

#include "run/engine/compile/product_choice.h"
#include "run/engine/compile/scan.h"
#include "run/engine/compile/scratch.h"
#include "run/engine/compile/steps.h"

namespace lumen::run {

struct ScanKernels;  // below

// What each group of a plan becomes.
struct Kernels {
  DistinctKernels kernels;
  ScratchPlan scratch;
  std::map<size_t, std::shared_ptr<ScanKernels>> scans;  // by group
  std::vector<std::vector<StepCode>> code;               // of each distinct form, by step
  std::vector<ChosenProduct> products;                   // by distinct form; empty: none
  std::vector<std::shared_ptr<Autotuner>> trials;        // likewise
};

// A scan's.
struct ScanKernels {
  ScanPlan plan;
  Kernels first, body;
  int64_t bytes = 0;  // of the scan's memory
};

// Without any code: scratch is planned, scans included. `settled`, by distinct form: nothing is left to try.
Kernels synthesize_groups(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                          const ValueFacts& facts, std::vector<bool>* settled = nullptr);

// Their machine code, scans included.
void find_code(const CompileContext& context, Kernels* made, CompileReport* report);

// Launches of all groups, in order. `of`: the plan's graph, for messages; null: it is the program's.
void list_groups(const CompileContext& context, const graph::Plan& plan, const Kernels& made,
                 const PlanAddresses& places, const std::shared_ptr<const graph::Graph>& of, LaunchList* list);

}  // namespace lumen::run
