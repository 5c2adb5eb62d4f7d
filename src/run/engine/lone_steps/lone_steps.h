// Kernels that belong to no program: conversions into and out of formats, panels of error feedback. Where kernels of
// programs are tried before they are trusted, so are these, by the same judge (compile/judge.h); what is wrong gives
// way to kernels without the machine's instructions, then to the processor's, then to the evaluator. Proved by
// tests/run/engine/lone_steps/lone_steps_test.cpp.
//
// May include: base, graph/ir, kernel/machine, kernel/synth/encode, kernel/synth/step, number/codec, number/format,
// run/engine/compile, run/engine/launch_trial.
// Offers: conversion.h.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/judge.h"
#include "run/engine/lone_steps/loaded_steps.h"

namespace lumen::run {

// Kernels as whoever needs them knows them.
struct LoneSteps {
  std::string meaning = {};  // for people, and for the judge: equal meanings and equal kernels, equal results
  std::function<synth::Synthesis(const machine::Machine&)> synthesize = {};
  // What they have to give: a plan of one group, whose inputs and nodes are their values in order; or an example.
  std::shared_ptr<const graph::Plan> plan = {};
  std::function<KernelExample()> example = {};
  // The same by the evaluator, on values in memory of the host; null: it has no way.
  std::function<void(std::span<void* const>)> evaluate = {};
};

// The processor, where a device is none.
using OpenProcessor = std::function<CompileContext()>;

struct ChosenSteps {
  synth::Synthesis steps;                // of the device; those that are trusted, if `instead` is null
  std::unique_ptr<LoadedSteps> instead;  // in their place. May be launched by many at the same time
};
// Error (exit 5) where all that there is computes wrongly.
ChosenSteps choose_steps(const CompileContext& context, const LoneSteps& work, const OpenProcessor& processor,
                         CompileReport* report);

std::unique_ptr<LoadedSteps> load_steps(const CompileContext& context, const LoneSteps& work,
                                        const OpenProcessor& processor, CompileReport* report);

}  // namespace lumen::run
