// The results of `lumen doctor` as text, as JSON, and as a file that can be shared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/device/choose/libraries.h"
#include "run/device/gpu/gpu.h"
#include "run/engine/self_test.h"
#include "run/engine/stages.h"

namespace lumen::cli {

struct CacheState {
  std::string path, state;
  int64_t files = 0, bytes = 0;
};

// All results of the checks.
struct Findings {
  CacheState cache;
  std::vector<run::MachineLine> machines;
  std::vector<run::LibraryFound> libraries;
  std::vector<run::GpuSurvey> surveys;
  std::vector<run::SelfTest> devices;

  bool usable() const {
    for (const run::SelfTest& e : devices)
      if (e.usable) return true;
    return false;
  }
};

std::string findings_text(const Findings& found);
std::string findings_json(const Findings& found);
// The same plus the system, the GPUs' properties and the relevant environment variables, without private data: names of
// users and hosts, paths, and serial numbers.
std::string shareable_json(const Findings& found);

}  // namespace lumen::cli
