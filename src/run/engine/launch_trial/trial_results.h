// What trials of programs' kernels found, kept beside their code: each is tried once for a device, a driver and its
// code, and never again unless what is kept is damaged or gone. Proved by
// tests/run/engine/launch_trial/trial_results_test.cpp.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/judge.h"

namespace lumen::run {

// What became of the kernels that a program asked for.
struct LaunchTrialCounts {
  int64_t tried = 0, refused = 0, not_tried = 0;  // here and now; the last: nothing is known of them
  int64_t kept = 0;                               // results of another start
  double seconds = 0;
};

class TrialResults : public KernelJudge {
 public:
  explicit TrialResults(CompileContext context);
  std::optional<Result> known(const GroupForm& form, const synth::Synthesis& synthesis,
                              const CompileOptions& options) override;
  Result try_out(const LoadedForm& form) override;
  void replaced(const std::string& what) override;
  void forget_replaced() override;
  void say_replaced() override;
  LaunchTrialCounts counts() const;

 private:
  std::string key_of(const GroupForm& form, const synth::Synthesis& synthesis, const CompileOptions& options) const;

  CompileContext context_;
  mutable std::mutex mutex_;             // guards what follows
  std::map<std::string, Result> known_;  // by key
  std::vector<std::string> replaced_;
  std::set<std::string> said_;
  LaunchTrialCounts counts_;
};

}  // namespace lumen::run
