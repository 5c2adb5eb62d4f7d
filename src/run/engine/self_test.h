// What a device is and whether it can be trusted: opened, described, measured, and its kernels put on trial. What
// `lumen doctor` shows of each device. Proved by tests/run/engine/self_test_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "run/device/gpu/gpu.h"
#include "run/engine/engine.h"
#include "run/engine/trial/determinism.h"
#include "run/engine/trial/soundness.h"

namespace lumen::run {

struct SelfTest {
  std::string device;       // as people type it: "cpu", "cuda:0"
  std::string description;  // one line; what could be learned when it cannot be opened
  std::string machine, tier;
  bool tries_programs = false;  // each kernel of a program is tried before it is trusted (launch_trial/policy.h)
  // What it multiplies with instructions of their own, by the table that kernels are made with: `matrices` and `dots`
  // of GPUs, `tiles` and `dots` of processors.
  struct Product {
    std::string left, right, sums;  // "bf16", "e4m3", "i8"; "f32"
    std::string by;                 // "matrix instructions", "dots", "tiles"
    std::vector<std::string> rows;  // of the table
  };
  std::vector<Product> products;
  struct Emulated {
    std::string kind, by;  // "f16", "f32": what stands in
  };
  std::vector<Emulated> emulated;
  std::vector<RefusedRow> refused;  // rows of the table that computed wrongly; not among `products`
  Determinism determinism;          // empty when nothing was run
  DeviceMemory memory;
  double memory_rate = 0;  // bytes a second: a processor reading, a GPU copying; 0: not measured
  struct Trial {
    std::string format = {};  // "" for what is no format's
    CheckLine line = {};
  };
  std::vector<Trial> trials;
  bool usable = false;
  std::string refusal, advice;  // why not
};

struct SelfTestOptions {
  std::vector<FormatRef> formats;  // whose kernels are tried beside the families
  bool tries = true;               // false: nothing is compiled or measured
  bool all = false;                // every kind of plan, not every instruction alone
};

// Opens the device that the options name and puts it on trial. Never throws for what the device lacks.
SelfTest self_test(Engine::Options options, const SelfTestOptions& what);

// This processor: its most able machine that passes, behind those that were refused.
std::vector<SelfTest> self_test_cpu(const Engine::Options& options, const SelfTestOptions& what);

// Every GPU of a vendor; empty when there is no driver or no GPU (the survey says why).
std::vector<SelfTest> self_test_gpus(const GpuSurvey& survey, const Engine::Options& options,
                                     const SelfTestOptions& what);

}  // namespace lumen::run
