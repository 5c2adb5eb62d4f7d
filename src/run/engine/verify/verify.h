// Finds out whether kernels are right, and what runs instead of those that are not:
// trial/         typical graphs against the evaluator: whether a device computes right, and with which instructions
// launch_trial/  a program's own kernels, launched once on random operands before the program uses them
// lone_steps/    kernels outside of programs, tried like these
// This header has the judge that compilation asks (compile/judge.h): results are stored with the kernels' code, so each
// kernel is tried once per device, driver and code, and again only if the stored result is damaged or missing. Proved
// by tests/run/engine/verify/verify_test.cpp.
//
// May include: base, run/device, run/engine/compile, run/engine/verify/launch_trial.
// Offers: policy.h.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/judge.h"

namespace lumen::run {

// Trial results of the kernels that a program uses.
struct LaunchTrialCounts {
  int64_t tried = 0, refused = 0, not_tried = 0;  // in this run; not_tried: their correctness is unknown
  int64_t kept = 0;                               // results from an earlier run
  double seconds = 0;
};

class TrialResults : public KernelJudge {
 public:
  explicit TrialResults(CompileContext context);
  std::optional<Result> known(const GroupForm& form, const Synthesized& synthesis,
                              const CompileOptions& options) override;
  Result try_out(const LoadedForm& form) override;
  void replaced(const std::string& what) override;
  void forget_replaced() override;
  void say_replaced() override;
  LaunchTrialCounts counts() const;

 private:
  std::string key_of(const GroupForm& form, const Synthesized& synthesis, const CompileOptions& options) const;

  CompileContext context_;
  mutable std::mutex mutex_;             // guards the following members
  std::map<std::string, Result> known_;  // by key
  std::vector<std::string> replaced_;
  std::set<std::string> said_;
  LaunchTrialCounts counts_;
};

}  // namespace lumen::run
