// lumen doctor
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/inspect/doctor_report.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "run/device/choose/choose.h"
#include "run/device/choose/libraries.h"
#include "run/engine/cache/user_cache.h"
#include "run/engine/self_test.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

struct DoctorFlags {
  bool json = false, all = false, quick = false;
  bool one_device = false;  // --device was given
  std::string report;       // a file; empty: none
};

CacheState look_at_cache(const Shared& shared) {
  CacheState c;
  const std::filesystem::path folder = run::cache_folder(shared.cache);
  if (run::is_cache_off(shared.cache)) return {"", "off", 0, 0};
  c.path = folder.string();
  std::error_code failure;
  if (!folder.empty() && !std::filesystem::exists(folder, failure)) {
    c.state = "not made yet";
    return c;
  }
  for (const SealedKind& kind : list_sealed(folder)) {
    c.files += kind.files;
    c.bytes += kind.bytes;
  }
  const auto kept = run::open_cache(shared.cache, true);
  c.state = kept->usable() ? "ready" : "every start compiles: " + kept->trouble();
  return c;
}

// The formats tried without --all: common GGUF formats near 4 and 8 bits.
std::vector<FormatRef> formats_to_try(const Shared& shared, const DoctorFlags& flags) {
  std::vector<FormatRef> chosen;
  for (const FormatRef& f : shared.library()->formats().all()) {
    const double bits = f->bits_per_weight();
    const bool typical = f->gguf_file_type && ((bits > 4.2 && bits < 4.6) || (bits > 8.2 && bits < 8.6));
    if (flags.all || typical) chosen.push_back(f);
  }
  return chosen;
}

Findings look(const Shared& shared, const DoctorFlags& flags) {
  Findings found;
  found.cache = look_at_cache(shared);
  found.libraries = run::look_for_libraries();
  const run::DeviceChoice choice = run::parse_device(shared.device);
  using Kind = run::DeviceChoice::Kind;
  const bool all = !flags.one_device || choice.kind == Kind::automatic;
  run::SelfTestOptions what;
  what.tries = !flags.quick;
  what.all = flags.all;
  if (what.tries) what.formats = formats_to_try(shared, flags);
  run::Engine::Options options;
  options.cache_folder = shared.cache;
  options.threads = shared.threads;
  machine::MachineRef machine;
  if (shared.machine != "native") machine = run::machine_to_run(shared.machine, all ? "auto" : shared.device);
  Progress progress;
  const auto note = [&](const std::string& device) {
    if (what.tries) progress.update(fmt::format("testing {}", device));
  };
  const bool for_gpu = machine && machine->kind == machine::Kind::gpu;
  if (all || choice.kind == Kind::cpu) {
    note("cpu");
    options.machine = for_gpu ? nullptr : machine;
    found.devices = run::self_test_cpu(options, what);
  }
  for (const run::GpuVendor vendor : {run::GpuVendor::cuda, run::GpuVendor::hip}) {
    if (!all && (choice.kind != Kind::gpu || choice.vendor != vendor)) continue;
    run::GpuSurvey survey = run::survey_gpus(vendor);
    if (!all && shared.device.find(':') != std::string::npos)
      std::erase_if(survey.gpus, [&](const run::GpuFound& gpu) { return gpu.ordinal != choice.ordinal; });
    note(run::vendor_name(vendor));
    options.machine = for_gpu ? machine : nullptr;
    for (run::SelfTest& e : run::self_test_gpus(survey, options, what)) found.devices.push_back(std::move(e));
    found.surveys.push_back(std::move(survey));
  }
  found.machines = run::machine_lines();
  for (run::MachineLine& m : found.machines)
    for (const run::SelfTest& e : found.devices) m.runs_here = m.runs_here || (e.usable && e.machine == m.name);
  return found;
}

int doctor(const Shared& shared, const DoctorFlags& flags) {
  const Findings found = look(shared, flags);
  if (!flags.report.empty()) write_file_atomic(flags.report, shareable_json(found));
  if (flags.json) {
    put_text(findings_json(found));
  } else {
    put(findings_text(found));
    if (!flags.report.empty())
      put(fmt::format("report     {} (no names of users or hosts, no paths, no serial numbers)\n", flags.report));
  }
  return exit_code(found.usable() ? Exit::ok : Exit::hardware);
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* sub = app.add_subcommand("doctor", "Show this machine's processor and GPUs, and test the kernels on them");
  add_setting(*sub, "--json", flags->json);
  auto* all = add_setting(*sub, "--all", flags->all);
  add_setting(*sub, "--quick", flags->quick)->excludes(all);
  add_setting(*sub, "--report", flags->report);
  sub->footer(
      "Each device is opened and described. Kernels of every kind are compared with the exact evaluator, with the "
      "plans of\n"
      "real work: products with each matrix and dot instruction, attention, encoding, training steps. An instruction "
      "with\n"
      "wrong results is not used. A device that is wrong without it is refused, and the next one is tested. Kernels "
      "of\n"
      "programs are tested when they are compiled (--try). --device tests one kind of device; -v shows each test.\n"
      "LUMEN_CUDA_LIBRARY and LUMEN_HIP_LIBRARY are paths of driver libraries that the system does not find.\n"
      "Exit code 0, or 3 if no device is usable.");
  add_shared_flags(*sub, command.shared);
  sub->callback([sub, flags, &command] {
    flags->one_device = sub->get_option("--device")->count() > 0;
    command.action = [flags, shared = command.shared] { return doctor(*shared, *flags); };
  });
}

}  // namespace lumen::cli
