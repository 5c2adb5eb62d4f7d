// Whether kernels of programs are tried before use: a setting of the process. Proved by
// tests/run/engine/verify/verify_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "run/device/device.h"

namespace lumen::run {

// `automatic`: on GPUs whose kernels have not been measured on hardware (a tier of the machine's table below
// `measured`).
enum class LaunchTrials : uint8_t { automatic, always, never };

const std::vector<std::string>& launch_trials_names();          // in the user's spelling and this order
LaunchTrials launch_trials_from_name(const std::string& name);  // Error (exit 2) for others
void set_launch_trials(LaunchTrials way);
LaunchTrials launch_trials();  // the value that was set, else LUMEN_TRY, else automatic

bool tries_launches(const Device& device);

}  // namespace lumen::run
