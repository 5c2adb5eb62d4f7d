#include "run/engine/compile/steps.h"

#include "run/device/device.h"

namespace lumen::run {

using synth::Synthesis;

namespace {

constexpr int64_t kAlignment = 64;
constexpr double kSmallFlops = 2e5,
                 kSmallBytes = 1e5;  // some ten microseconds of one thread: waking others costs as much

}  // namespace

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<std::vector<void*>> find_functions(const CompileContext& shop, std::span<const Synthesis> parts,
                                               CompileReport* report) {
  std::vector<const loop::Kernel*> kernels;
  for (const Synthesis& s : parts)
    for (const synth::Step& step : s.steps) kernels.push_back(&step.kernel);
  const std::vector<void*> found = shop.cache->get(kernels, shop.threads, report);
  std::vector<std::vector<void*>> functions;
  auto next = found.begin();
  for (const Synthesis& s : parts) {
    functions.emplace_back(next, next + s.steps.size());
    next += s.steps.size();
  }
  return functions;
}

void list_steps(const CompileContext& shop, const Synthesis& s, const std::vector<void*>& functions,
                const std::function<BufferAddress(int)>& value, const std::vector<BufferAddress>& scratch,
                const std::vector<bool>& is_done, std::vector<Launch>* out) {
  for (size_t i = 0; i < s.steps.size(); ++i) {
    if (is_done[i]) continue;
    const synth::Step& step = s.steps[i];
    Launch& launch = out->emplace_back();
    launch.kernel = functions[i];
    const bool small = step.flops + step.bytes > 0 && step.flops < kSmallFlops && step.bytes < kSmallBytes;
    launch.launch_config = launch_config_of(step.kernel, shop.device->machine(), small);
    launch.plan = step.plan;
    launch.flops = step.flops;
    launch.bytes = step.bytes;
    launch.cycles = small ? step.cycles * shop.threads : step.cycles;
    for (const synth::Argument& a : step.arguments)
      launch.addresses.push_back(a.from == synth::Argument::From::value ? value(a.index) : scratch.at(a.index));
  }
}

std::vector<Launch> compile_steps(const CompileContext& shop, const Synthesis& steps,
                                  const std::vector<BufferAddress>& values, int64_t scratch_at, CompileReport* report) {
  std::vector<Launch> launches;
  std::vector<BufferAddress> scratch;
  for (const int64_t bytes : steps.scratch) {
    scratch.push_back({BufferAddress::In::arena, scratch_at});
    scratch_at += aligned(bytes);
  }
  const auto functions = find_functions(shop, {&steps, 1}, report);
  list_steps(
      shop, steps, functions[0], [&](int v) { return values.at(v); }, scratch, std::vector<bool>(steps.steps.size()),
      &launches);
  return launches;
}

}  // namespace lumen::run
