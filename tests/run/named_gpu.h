// The GPU that tests on hardware run on: a test program's argument `--device cuda[:N]` or `--device hip[:N]` names it,
// and without the argument it is the first one that can be used. Named, it has to be there. `--machine NAME` runs the
// code of another row of the table on it, as the flag of `lumen` does.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/check.h"
#include "run/device/choose/choose.h"
#include "run/device/gpu/gpu.h"

namespace lumen::test {

// What follows a flag of the test program; empty: not given.
inline std::string argument_of(const std::string& flag) {
  const std::vector<std::string> words = testing::internal::GetArgvs();
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == flag) {
      LUMEN_CHECK(i + 1 < words.size(), "{} wants a value", flag);
      return words[i + 1];
    }
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
  }
  return "";
}

// The row that `--machine` names; null: none is named.
inline machine::MachineRef machine_argument() {
  const std::string name = argument_of("--machine");
  return name.empty() ? nullptr : machine::find_machine(name);
}

struct NamedGpu {
  std::unique_ptr<run::Device> device;  // null: there is none, and none was named
  run::GpuVendor vendor = run::GpuVendor::cuda;
  std::string why;  // there is none
};

// `machine` null: the row that is named, or the GPU's own. Error (exit 3) where a named one cannot be used.
inline NamedGpu open_named_gpu(machine::MachineRef machine = nullptr) {
  NamedGpu out;
  if (!machine) machine = machine_argument();
  if (const std::string named = argument_of("--device"); !named.empty()) {
    const run::DeviceChoice choice = run::parse_device(named);
    LUMEN_CHECK(choice.kind == run::DeviceChoice::Kind::gpu, "--device {}: tests of GPUs want cuda or hip", named);
    out.vendor = choice.vendor;
    out.device = run::open_gpu(choice.vendor, choice.ordinal, machine);
    return out;
  }
  for (const run::GpuVendor vendor : {run::GpuVendor::cuda, run::GpuVendor::hip}) {
    const run::GpuSurvey survey = run::survey_gpus(vendor);
    out.why += (out.why.empty() ? "" : "; ") + survey.refusal;
    for (const run::GpuFound& gpu : survey.gpus) {
      if (!gpu.match.machine) {
        out.why += gpu.match.remark;
        continue;
      }
      out.vendor = vendor;
      out.device = run::open_gpu(vendor, gpu.ordinal, machine);
      return out;
    }
  }
  return out;
}

// The interpreter of tests/amd behind a driver's stand-in takes a thousand times as long as a card.
inline bool is_interpreted() {
  return std::getenv("LUMEN_STAND_IN_AMD") != nullptr;
}

}  // namespace lumen::test
