#include "run/engine/verify/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "run/engine/verify/launch_trial/launch_trial.h"

namespace lumen::run {
namespace {

constexpr std::string_view kRight = "right", kWrong = "wrong: ";
constexpr const char* kKind = "trials";
constexpr size_t kLongest = 2048;
constexpr int kVersion = 1;  // changes with test data or bounds

std::optional<KernelJudge::Result> read_result_of(const std::string& text) {
  if (text == kRight) return KernelJudge::Result{};
  if (text.starts_with(kWrong) && text.size() > kWrong.size())
    return KernelJudge::Result{false, text.substr(kWrong.size())};
  return std::nullopt;
}

}  // namespace

TrialResults::TrialResults(CompileContext context) : context_(std::move(context)) {
  context_.judge = nullptr;
}

std::string TrialResults::key_of(const GroupForm& form, const Synthesized& synthesis,
                                 const CompileOptions& options) const {
  return context_.cache->key_of(fmt::format("launch trial {}\n{} {}\n{}\n{}", kVersion, options.exact,
                                            scalar_name(options.products.scalar), form.meaning, synthesis.hash));
}

std::optional<KernelJudge::Result> TrialResults::known(const GroupForm& form, const Synthesized& synthesis,
                                                       const CompileOptions& options) {
  const std::string key = key_of(form, synthesis, options);
  const std::scoped_lock lock(mutex_);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const auto kept = read_result_of(context_.cache->kept().read(kKind, key));
  if (!kept) return std::nullopt;
  ++counts_.kept;
  return known_[key] = *kept;
}

KernelJudge::Result TrialResults::try_out(const LoadedForm& form) {
  const Stopwatch watch;
  const std::string& name = form.synthesis.steps.back().plan;
  LaunchTrial found;
  try {
    found = try_launch(context_, form);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("'{}' cannot be run on {}: {}", name, context_.device->describe(), error.what()),
                error.hint());
  }
  const double seconds = watch.seconds();
  verbose(fmt::format("  {} {:<56} {:6.1f} ms  {}",
                      !found.tried  ? "none"
                      : found.right ? "ok  "
                                    : "FAIL",
                      name, 1e3 * seconds, found.text));
  if (!found.right) verbose(form.form.meaning);
  Result result{found.right, found.right ? "" : found.text};
  std::replace(result.why.begin(), result.why.end(), '\n', ' ');
  if (result.why.size() > kLongest) result.why.resize(kLongest);
  const std::string key = key_of(form.form, form.synthesis, form.options);
  const std::scoped_lock lock(mutex_);
  known_[key] = result;
  counts_.seconds += seconds;
  ++(!found.tried ? counts_.not_tried : counts_.tried);
  counts_.refused += result.right ? 0 : 1;
  // Kernels that could not be tried are tried again at the next start.
  if (found.tried)
    context_.cache->kept().write(kKind, key, result.right ? std::string(kRight) : std::string(kWrong) + result.why);
  return result;
}

void TrialResults::replaced(const std::string& what) {
  const std::scoped_lock lock(mutex_);
  replaced_.push_back(what);
}

void TrialResults::forget_replaced() {
  const std::scoped_lock lock(mutex_);
  replaced_.clear();
}

void TrialResults::say_replaced() {
  std::vector<std::string> news;
  {
    const std::scoped_lock lock(mutex_);
    for (const std::string& what : replaced_)
      if (said_.insert(what).second) news.push_back(what);
    replaced_.clear();
  }
  for (const std::string& what : news) warn(fmt::format("{}: {}", context_.device->describe(), what));
}

LaunchTrialCounts TrialResults::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

}  // namespace lumen::run
