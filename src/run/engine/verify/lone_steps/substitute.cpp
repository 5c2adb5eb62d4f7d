#include "run/engine/verify/lone_steps/substitute.h"

#include <algorithm>
#include <mutex>

#include "base/round_up.h"

namespace lumen::run {
namespace {

class EvaluatedSteps : public LoadedSteps {
 public:
  explicit EvaluatedSteps(std::function<void(std::span<void* const>)> evaluate) : evaluate_(std::move(evaluate)) {}
  void launch(std::span<void* const> values) override { evaluate_(values); }
  void finish() override {}

 private:
  std::function<void(std::span<void* const>)> evaluate_;
};

class CopiedSteps : public LoadedSteps {
 public:
  CopiedSteps(std::shared_ptr<Device> device, const synth::Synthesis& steps, std::unique_ptr<LoadedSteps> of_host)
      : device_(std::move(device)), of_host_(std::move(of_host)) {
    for (const synth::Step& step : steps.steps)
      for (size_t i = 0; i < step.arguments.size(); ++i) {
        const synth::Argument& a = step.arguments[i];
        if (a.from != synth::Argument::From::value) continue;
        if (std::ssize(values_) <= a.index) values_.resize(a.index + 1);
        Value& value = values_[a.index];
        value.bytes = std::max(value.bytes, step.kernel.params[i].bytes);
        value.written = value.written || step.kernel.params[i].written;
      }
  }

  void launch(std::span<void* const> values) override {
    constexpr int64_t kLine = 64;  // alignment that kernels assume
    const std::scoped_lock lock(mutex_);
    device_->synchronize();
    int64_t end = 0;
    for (const Value& value : values_) end += aligned(value.bytes);
    memory_.resize(end + kLine);
    const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
    std::byte* at = memory_.data() + (round_up(begin, kLine) - begin);
    std::vector<void*> copies;
    for (size_t i = 0; i < values_.size(); ++i) {
      copies.push_back(at);
      if (values_[i].bytes > 0) device_->copy_out(at, values[i], values_[i].bytes);
      at += aligned(values_[i].bytes);
    }
    of_host_->launch(copies);
    of_host_->finish();
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i].written) device_->copy_in(values[i], copies[i], values_[i].bytes);
  }
  void finish() override {}

 private:
  struct Value {
    int64_t bytes = 0;
    bool written = false;
  };
  std::shared_ptr<Device> device_;
  std::unique_ptr<LoadedSteps> of_host_;
  std::vector<Value> values_;
  std::mutex mutex_;  // guards the following members and the host's steps
  std::vector<std::byte> memory_;
};

}  // namespace

std::unique_ptr<LoadedSteps> evaluated_steps(std::function<void(std::span<void* const>)> evaluate) {
  return std::make_unique<EvaluatedSteps>(std::move(evaluate));
}

std::unique_ptr<LoadedSteps> copied_steps(std::shared_ptr<Device> device, const synth::Synthesis& steps,
                                          std::unique_ptr<LoadedSteps> of_host) {
  return std::make_unique<CopiedSteps>(std::move(device), steps, std::move(of_host));
}

}  // namespace lumen::run
