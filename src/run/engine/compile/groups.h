// Turns a plan's groups into kernels, and these into launches. Proved by tests/run/engine/compile_test.cpp.
#pragma once

#include <map>
#include <memory>

#include "run/engine/compile/product_choice.h"
#include "run/engine/compile/scan.h"
#include "run/engine/compile/scratch.h"
#include "run/engine/compile/steps.h"

namespace lumen::run {

struct ScanKernels;  // below

// The kernels of a plan's groups.
struct Kernels {
  DistinctKernels kernels;
  ScratchPlan scratch;
  std::map<size_t, std::shared_ptr<ScanKernels>> scans;  // by group
  std::vector<std::vector<StepCode>> code;               // of each distinct form, by step
  std::vector<ChosenProduct> products;                   // by distinct form; empty: none
  std::vector<std::shared_ptr<Autotuner>> trials;        // by distinct form
};

// The kernels of a scan.
struct ScanKernels {
  ScanPlan plan;
  Kernels first, body;
  int64_t bytes = 0;  // of the scan's memory
};

// Generates no code: plans scratch, scans included. `settled`, by distinct form: no other plans are to be tried.
Kernels synthesize_groups(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                          const ValueFacts& facts, std::vector<bool>* settled = nullptr);

// Loads or compiles their machine code, scans included.
void find_code(const CompileContext& context, Kernels* made, CompileReport* report);

// Appends launches of all groups, in order. `of`: the plan's graph, for messages; null: the program's own.
void list_groups(const CompileContext& context, const graph::Plan& plan, const Kernels& made,
                 const PlanAddresses& places, const std::shared_ptr<const graph::Graph>& of, LaunchList* list);

}  // namespace lumen::run
