#include "run/engine/verify/lone_steps/ready_steps.h"

#include <utility>

namespace lumen::run {
namespace {

class ReadySteps : public LoadedSteps {
 public:
  ReadySteps(const CompileContext& context, const Synthesized& steps, CompileReport* report)
      : device_(context.device), cache_(context.cache) {
    std::vector<BufferAddress> values;  // numbers instead of addresses
    for (const synth::Step& step : steps.steps)
      for (const synth::Argument& a : step.arguments)
        while (a.from == synth::Argument::From::value && std::ssize(values) <= a.index)
          values.push_back({BufferAddress::In::input, std::ssize(values)});
    launches_ = compile_steps(context, steps, values, 0, report);
    int64_t bytes = 0;
    for (const int64_t scratch : steps.scratch) bytes += aligned(scratch);
    if (bytes > 0) scratch_ = std::static_pointer_cast<std::byte>(allocate_shared(device_, bytes));
    if (device_->is_asynchronous())
      shared_status_ = std::static_pointer_cast<LaunchStatus>(allocate_shared(device_, sizeof status_));
  }

  void launch(std::span<void* const> values) override {
    LaunchStatus* const status = shared_status_ ? shared_status_.get() : &status_;
    for (const Launch& launch : launches_) {
      buffers_.clear();
      for (const BufferAddress& at : launch.addresses)
        buffers_.push_back(at.in == BufferAddress::In::input ? values[at.at] : scratch_.get() + at.at);
      device_->launch(launch.kernel, buffers_, launch.launch_config, status);
    }
  }

  void finish() override {
    device_->synchronize();
    if (shared_status_) device_->copy_out(&status_, shared_status_.get(), sizeof status_);
    if (status_.code == 0) return;
    const LaunchStatus failed = std::exchange(status_, {});
    if (shared_status_) device_->copy_in(shared_status_.get(), &status_, sizeof status_);
    throw guard_error({}, -1, failed);
  }

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<KernelCache> cache_;  // keeps the machine code alive
  std::vector<Launch> launches_;
  std::shared_ptr<std::byte> scratch_;
  std::shared_ptr<LaunchStatus> shared_status_;  // for asynchronous launches
  LaunchStatus status_;
  std::vector<void*> buffers_;
};

}  // namespace

std::unique_ptr<LoadedSteps> ready_steps(const CompileContext& context, const Synthesized& steps,
                                         CompileReport* report) {
  return std::make_unique<ReadySteps>(context, steps, report);
}

}  // namespace lumen::run
