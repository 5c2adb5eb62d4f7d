#include "run/device/choose/choose.h"

#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "run/device/gpu/gpu.h"

namespace lumen::run {

DeviceChoice parse_device(const std::string& text) {
  if (text.empty() || text == "cpu") return {};
  if (text == "auto") return {DeviceChoice::Kind::automatic, {}, 0};
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  DeviceChoice choice{DeviceChoice::Kind::gpu, {}, 0};
  bool ok = false;
  for (const GpuVendor vendor : {GpuVendor::cuda, GpuVendor::hip}) {
    if (name != vendor_name(vendor)) continue;
    choice.vendor = vendor;
    ok = true;
  }
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [at, wrong] = std::from_chars(text.data() + colon + 1, end, choice.ordinal);
    ok = ok && wrong == std::errc() && at == end && choice.ordinal >= 0;
  }
  if (!ok)
    throw Error(Exit::usage, fmt::format("'{}' is no device", text),
                "devices: cpu, cuda, cuda:N, hip, hip:N, auto; `lumen doctor` lists those of this machine");
  return choice;
}

bool has_gpu_node(const std::filesystem::path& nodes) {
  std::error_code ignored;
  return std::filesystem::exists(nodes / "nvidia0", ignored) || std::filesystem::exists(nodes / "kfd", ignored);
}

std::unique_ptr<Device> open_device(const DeviceChoice& choice, machine::MachineRef machine, int threads,
                                    Loader loader) {
  if (choice.kind == DeviceChoice::Kind::gpu) return open_gpu(choice.vendor, choice.ordinal, std::move(machine));
  // With a CPU machine, "auto" selects the CPU.
  if (choice.kind == DeviceChoice::Kind::automatic && !(machine && machine->kind == machine::Kind::cpu)) {
    std::string reasons;
    for (const GpuVendor vendor : {GpuVendor::cuda, GpuVendor::hip}) {
      const GpuSurvey survey = survey_gpus(vendor);
      if (!survey.refusal.empty()) reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", survey.refusal);
      for (const GpuFound& gpu : survey.gpus) {
        if (gpu.match.machine) {
          auto device = open_gpu(vendor, gpu.ordinal, machine);
          note(fmt::format("device: {}", device->describe()));
          return device;
        }
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", gpu.name, gpu.match.remark);
      }
    }
    note(fmt::format("device: cpu ({})", reasons));
  }
  return open_cpu(machine ? std::move(machine) : machine::native_machine(), threads, std::move(loader));
}

}  // namespace lumen::run
