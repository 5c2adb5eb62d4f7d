// Self-test of a device: opens, describes and measures it, and tests its kernels. Shown by `lumen doctor` for each
// device. Proved by tests/run/engine/self_test_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "run/device/gpu/gpu.h"
#include "run/engine/engine.h"
#include "run/engine/verify/trial/determinism.h"
#include "run/engine/verify/trial/soundness.h"

namespace lumen::run {

struct SelfTest {
  std::string device;       // in the user's spelling: "cpu", "cuda:0"
  std::string description;  // one line; the known part if it cannot be opened
  std::string machine, tier;
  bool tries_programs = false;  // each kernel of a program is tried before use (verify/policy.h)
  // Products with native instructions, from the machine table that kernels use: `matrices` and `dots` of GPUs, `tiles`
  // and `dots` of CPUs.
  struct Product {
    std::string left, right, sums;  // "bf16", "e4m3", "i8"; "f32"
    std::string by;                 // "matrix instructions", "dots", "tiles"
    std::vector<std::string> rows;  // of the table
  };
  std::vector<Product> products;
  struct Emulated {
    std::string kind, by;  // "f16", "f32": the type used instead
  };
  std::vector<Emulated> emulated;
  std::vector<RefusedRow> refused;  // instructions that computed wrongly; not in `products`
  Determinism determinism;          // empty if the test was not run
  DeviceMemory memory;
  double memory_rate = 0;  // bytes per second: reads of a CPU, copies of a GPU; 0: not measured
  struct Trial {
    std::string format = {};  // "" for trials without a format
    CheckLine line = {};
  };
  std::vector<Trial> trials;
  bool usable = false;
  std::string refusal, advice;  // if not usable
};

struct SelfTestOptions {
  std::vector<FormatRef> formats;  // formats whose kernels are tested in addition to the families
  bool tries = true;               // false: compiles and measures nothing
  bool all = false;                // tests every kind of plan instead of every instruction
};

// Opens the device named by the options and tests it. Never throws for a device's shortcomings.
SelfTest self_test(Engine::Options options, const SelfTestOptions& what);

// This processor: its most capable machine that passes, after those that were refused.
std::vector<SelfTest> self_test_cpu(const Engine::Options& options, const SelfTestOptions& what);

// Every GPU of a vendor; empty if there is no driver or no GPU (the survey has the reason).
std::vector<SelfTest> self_test_gpus(const GpuSurvey& survey, const Engine::Options& options,
                                     const SelfTestOptions& what);

}  // namespace lumen::run
