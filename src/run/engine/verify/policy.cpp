#include "run/engine/verify/policy.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "base/error.h"

namespace lumen::run {
namespace {

constexpr const char* kVariable = "LUMEN_TRY";

std::atomic<int>& setting() {
  static std::atomic<int> value = -1;  // not set
  return value;
}

}  // namespace

const std::vector<std::string>& launch_trials_names() {
  static const std::vector<std::string> names{"auto", "always", "never"};
  return names;
}

LaunchTrials launch_trials_from_name(const std::string& name) {
  const auto& names = launch_trials_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) throw usage_error("kernels are tried auto, always or never, not '{}'", name);
  return LaunchTrials(at - names.begin());
}

void set_launch_trials(LaunchTrials way) {
  setting() = int(way);
}

LaunchTrials launch_trials() {
  if (const int set = setting(); set >= 0) return LaunchTrials(set);
  const char* said = std::getenv(kVariable);
  return said && *said != 0 ? launch_trials_from_name(said) : LaunchTrials::automatic;
}

bool tries_launches(const Device& device) {
  const LaunchTrials way = launch_trials();
  if (way != LaunchTrials::automatic) return way == LaunchTrials::always;
  return device.is_asynchronous() && device.machine().tier != machine::Tier::measured;
}

}  // namespace lumen::run
