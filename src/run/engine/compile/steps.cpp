#include "run/engine/compile/steps.h"

#include "base/check.h"
#include "base/round_up.h"
#include "run/device/device.h"

namespace lumen::run {

using synth::Synthesis;

namespace {

constexpr int64_t kAlignment = 64;
constexpr double kSmallFlops = 2e5,
                 kSmallBytes = 1e5;  // about ten microseconds of one thread: waking others costs as much

}  // namespace

int64_t aligned(int64_t bytes) {
  return round_up(bytes, kAlignment);
}

std::vector<void*> find_functions(const CompileContext& context, const Synthesized& s, CompileReport* report) {
  std::vector<const loop::Kernel*> kernels;
  for (const synth::Step& step : s.steps) kernels.push_back(&step.kernel);
  return context.cache->get(kernels, context.threads, report, s.texts);
}

std::string plan_at_once(const std::string& plan, int instances) {
  return instances > 1 ? fmt::format("{} at once: {}", instances, plan) : plan;
}

loop::Kernel with_instances(loop::Kernel kernel, int instances) {
  kernel.instances = instances;
  return kernel;
}

void list_steps(const CompileContext& context, const Synthesis& s, const std::vector<StepCode>& code,
                const std::vector<ListedGroup>& groups, std::vector<Launch>* out) {
  const auto list = [&](size_t i, void* kernel, std::span<const ListedGroup> some) {
    const synth::Step& step = s.steps[i];
    const auto instances = double(some.size());
    Launch& launch = out->emplace_back();
    LUMEN_CHECK(kernel, "{} has no code", step.plan);
    launch.kernel = kernel;
    const double flops = step.flops * instances, bytes = step.bytes * instances;
    const bool small = flops + bytes > 0 && flops < kSmallFlops && bytes < kSmallBytes;
    // Kernels are large: only those with several instances are copied.
    const machine::Machine& machine = context.device->machine();
    launch.launch_config = some.size() == 1
                               ? launch_config_of(step.kernel, machine, small)
                               : launch_config_of(with_instances(step.kernel, int(some.size())), machine, small);
    launch.plan = plan_at_once(step.plan, int(some.size()));
    launch.flops = flops;
    launch.bytes = bytes;
    launch.cycles = (small ? step.cycles * context.threads : step.cycles) * instances;
    launch.is_last = i + 1 == s.steps.size();
    for (const ListedGroup& group : some) {
      launch.blamed.push_back(group.subject);
      for (const synth::Argument& a : step.arguments)
        launch.addresses.push_back(a.from == synth::Argument::From::value ? group.value(a.index)
                                                                          : group.scratch.at(a.index));
    }
  };
  for (size_t i = 0; i < s.steps.size(); ++i) {
    if (code[i].at_once) {
      list(i, code[i].at_once, groups);
      continue;
    }
    for (const ListedGroup& group : groups)
      if (!group.is_done[i]) list(i, code[i].alone, {&group, 1});
  }
}

std::vector<Launch> compile_steps(const CompileContext& context, const Synthesized& steps,
                                  const std::vector<BufferAddress>& values, int64_t scratch_at, CompileReport* report) {
  std::vector<Launch> launches;
  ListedGroup group{[&](int v) { return values.at(v); }, {}, std::vector<bool>(steps.steps.size())};
  for (const int64_t bytes : steps.scratch) {
    group.scratch.push_back({BufferAddress::In::arena, scratch_at});
    scratch_at += aligned(bytes);
  }
  std::vector<StepCode> code;
  for (void* function : find_functions(context, steps, report)) code.push_back({function});
  list_steps(context, steps, code, {group}, &launches);
  return launches;
}

}  // namespace lumen::run
