// Kernels outside of programs: conversions into and out of formats, panels of error feedback. Where kernels of programs
// are tried before use, so are these, by the same judge (compile/judge.h); wrong kernels are replaced by kernels
// without special instructions, then by the CPU's, then by the evaluator. Proved by
// tests/run/engine/verify/lone_steps/lone_steps_test.cpp.
//
// May include: base, graph/ir, kernel/machine, kernel/synth/encode, kernel/synth/step, number/codec, number/format,
// run/engine/compile, run/engine/verify/launch_trial.
// Offers: conversion.h.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/judge.h"
#include "run/engine/verify/lone_steps/loaded_steps.h"

namespace lumen::run {

// A description of kernels, from the code that needs them.
struct LoneSteps {
  std::string meaning = {};  // for messages and the judge: equal meanings and equal kernels have equal results
  std::function<synth::Synthesis(const machine::Machine&)> synthesize = {};
  // The expected result: a plan of one group, whose inputs and nodes are their values in order; or an example.
  std::shared_ptr<const graph::Plan> plan = {};
  std::function<KernelExample()> example = {};
  // The same by the evaluator, on values in host memory; null: not available.
  std::function<void(std::span<void* const>)> evaluate = {};
};

// Opens the CPU, for other devices.
using OpenProcessor = std::function<CompileContext()>;

struct ChosenSteps {
  Synthesized steps;                     // for the device; correct, if `instead` is null
  std::unique_ptr<LoadedSteps> instead;  // replacement. Several threads may launch it concurrently
};
// Error (exit 5) if all alternatives compute wrongly.
ChosenSteps choose_steps(const CompileContext& context, const LoneSteps& work, const OpenProcessor& processor,
                         CompileReport* report);

std::unique_ptr<LoadedSteps> load_steps(const CompileContext& context, const LoneSteps& work,
                                        const OpenProcessor& processor, CompileReport* report);

}  // namespace lumen::run
