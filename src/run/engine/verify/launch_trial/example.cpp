#include "run/engine/verify/launch_trial/example.h"

#include "base/printable.h"
#include "base/round_up.h"
#include "run/device/require.h"

namespace lumen::run {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr double kMostMemory = 0.9;  // of the free memory

int64_t apart(int64_t bytes) {
  constexpr int64_t kApart = 256;
  return round_up(bytes, kApart);
}

// Launches all steps in order and returns the requested values. Nonempty `why`: the reason why it was not possible.
std::map<int, Bytes> launched(Device& device, const std::shared_ptr<Device>& shared, const LoadedForm& form,
                              const KernelExample& example, std::string* why) {
  std::vector<int64_t> values, scratch;
  int64_t end = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t at = end;
    end = saturating_sum(end, apart(bytes));
    return at;
  };
  for (const Bytes& bytes : example.given) values.push_back(take(std::ssize(bytes)));
  for (const int64_t bytes : form.synthesis.scratch) scratch.push_back(take(bytes));
  const int64_t status_at = take(sizeof(LaunchStatus));
  if (double(end) > kMostMemory * double(device.memory().free)) {
    *why = fmt::format("its operands take {}, which are not free", size_text(end));
    return {};
  }
  const auto memory = std::static_pointer_cast<std::byte>(allocate_shared(shared, end));
  for (size_t i = 0; i < values.size(); ++i)
    device.copy_in(memory.get() + values[i], example.given[i].data(), std::ssize(example.given[i]));
  LaunchStatus here;
  LaunchStatus* const status =
      device.is_asynchronous() ? reinterpret_cast<LaunchStatus*>(memory.get() + status_at) : &here;
  for (size_t i = 0; i < form.synthesis.steps.size(); ++i) {
    const synth::Step& step = form.synthesis.steps[i];
    std::vector<void*> buffers;
    for (const synth::Argument& a : step.arguments)
      buffers.push_back(memory.get() +
                        (a.from == synth::Argument::From::value ? values.at(a.index) : scratch.at(a.index)));
    device.launch(form.functions[i], buffers, launch_config_of(step.kernel, device.machine(), false), status);
  }
  device.synchronize();
  if (status != &here) device.copy_out(&here, status, sizeof here);
  if (here.code != 0) *why = fmt::format("it refuses these operands (guard {})", here.code);
  std::map<int, Bytes> out;
  for (const auto& [value, bytes] : example.expected) {
    Bytes& got = out[value] = Bytes(bytes.size());
    device.copy_out(got.data(), memory.get() + values.at(value), std::ssize(got));
  }
  return out;
}

}  // namespace

LaunchTrial try_example(const CompileContext& context, const LoadedForm& form) {
  LaunchTrial out;
  const KernelExample example = (*form.example)();
  out.text = example.why_not;
  if (!out.text.empty()) return out;
  const std::map<int, Bytes> all = launched(*context.device, context.device, form, example, &out.text);
  if (!out.text.empty()) return out;
  out.tried = true;
  for (const auto& [value, want] : example.expected) {
    const Bytes& got = all.at(value);
    const auto [wrong, right] = std::mismatch(got.begin(), got.end(), want.begin());
    out.compared += std::ssize(want);
    if (wrong == got.end()) continue;
    out.right = false;
    out.text = fmt::format("kernel '{}' computes wrongly: byte {} of {} that it gives, expected {:#04x}, got {:#04x}",
                           form.synthesis.steps.back().plan, wrong - got.begin(), want.size(), *right, *wrong);
    return out;
  }
  out.text = fmt::format("{} bytes, all equal", out.compared);
  return out;
}

}  // namespace lumen::run
