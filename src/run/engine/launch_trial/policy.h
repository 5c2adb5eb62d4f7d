// Whether kernels of programs are tried before they are trusted: a matter of the process. Proved
// by tests/run/engine/launch_trial/trial_results_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "run/device/device.h"

namespace lumen::run {

// `automatic`: on GPUs whose kernels nobody has measured on hardware (a tier of the machine's table below `measured`).
enum class LaunchTrials : uint8_t { automatic, always, never };

const std::vector<std::string>& launch_trials_names();          // as people type them, in that order
LaunchTrials launch_trials_from_name(const std::string& name);  // Error (exit 2) for others
void set_launch_trials(LaunchTrials way);
LaunchTrials launch_trials();  // what was set, or else LUMEN_TRY says; automatic

bool tries_launches(const Device& device);

}  // namespace lumen::run
