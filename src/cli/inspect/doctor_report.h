// What `lumen doctor` has found, as text, as JSON, and as a file that can be sent to others.
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

// All that is known after looking.
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
// The same with the system, the GPUs' properties and the variables of the environment that matter, and without what is
// private: names of users and hosts, paths, and numbers that belong to one card.
std::string shareable_json(const Findings& found);

}  // namespace lumen::cli
