// lumen doctor
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/inspect/processor.h"
#include "cli/output.h"
#include "cli/version.h"
#include "run/device/choose/choose.h"
#include "run/device/choose/libraries.h"
#include "run/engine/cache/kept_files.h"
#include "run/engine/self_test.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

struct DoctorFlags {
  bool json = false, all = false, quick = false;
  bool one_device = false;  // --device was given
};

struct CacheState {
  std::string path, state;
  int64_t files = 0, bytes = 0;
};

CacheState look_at_cache(const Shared& shared) {
  CacheState c;
  const std::filesystem::path folder = run::cache_folder(shared.cache);
  if (folder.empty()) return {"", "off", 0, 0};
  c.path = folder.string();
  std::error_code failure;
  if (!std::filesystem::exists(folder, failure)) {
    c.state = "not made yet";
    return c;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, failure)) {
    if (!entry.is_regular_file(failure)) continue;
    ++c.files;
    c.bytes += static_cast<int64_t>(entry.file_size(failure));
  }
  const run::KeptFiles kept(folder, true);
  c.state = kept.usable() ? "ready" : "every start compiles: " + kept.trouble();
  return c;
}

// Without --all: the formats that files of other programs are in, near 4 and 8 bits.
std::vector<FormatRef> formats_to_try(const Shared& shared, const DoctorFlags& flags) {
  std::vector<FormatRef> chosen;
  for (const FormatRef& f : shared.library()->formats().all()) {
    const double bits = f->bits_per_weight();
    const bool typical = f->gguf_file_type && ((bits > 4.2 && bits < 4.6) || (bits > 8.2 && bits < 8.6));
    if (flags.all || typical) chosen.push_back(f);
  }
  return chosen;
}

// All that is known after looking.
struct Findings {
  CacheState cache;
  std::vector<run::MachineLine> machines;
  std::vector<run::LibraryFound> libraries;
  std::vector<run::GpuSurvey> surveys;
  std::vector<run::SelfTest> devices;

  bool usable() const {
    for (const run::SelfTest& e : devices)
      if (e.usable) return true;
    return false;
  }
};

Findings look(const Shared& shared, const DoctorFlags& flags) {
  Findings found;
  found.cache = look_at_cache(shared);
  found.libraries = run::look_for_libraries();
  const run::DeviceChoice choice = run::parse_device(shared.device);
  using Kind = run::DeviceChoice::Kind;
  const bool all = !flags.one_device || choice.kind == Kind::automatic;
  run::SelfTestOptions what;
  what.tries = !flags.quick;
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

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

int64_t passed(const run::SelfTest& e) {
  int64_t n = 0;
  for (const auto& t : e.trials) n += t.line.ok ? 1 : 0;
  return n;
}

nlohmann::json json_of(const run::SelfTest& e) {
  nlohmann::json out = {{"device", e.device},
                        {"usable", e.usable},
                        {"description", e.description},
                        {"machine", e.machine},
                        {"tier", e.tier},
                        {"products", e.products},
                        {"emulated", e.emulated},
                        {"determinism", e.determinism},
                        {"memory_bytes", e.memory.total},
                        {"memory_free_bytes", e.memory.free},
                        {"memory_rate", e.memory_rate},
                        {"refusal", e.refusal},
                        {"advice", e.advice},
                        {"self_test", nlohmann::json::array()}};
  for (const auto& t : e.trials)
    out["self_test"].push_back(
        {{"format", t.format}, {"what", t.line.what}, {"ok", t.line.ok}, {"detail", t.line.detail}});
  return out;
}

std::string json_text(const Findings& found) {
  nlohmann::json out;
  out["version"] = kVersion;
  out["compiler"] = run::compiler_version();
  out["processor"] = processor_name();
  out["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  out["native_machine"] = run::native_machine_name();
  out["devices"] = nlohmann::json::array();
  for (const run::SelfTest& e : found.devices) out["devices"].push_back(json_of(e));
  out["drivers"] = nlohmann::json::array();
  for (const run::GpuSurvey& s : found.surveys)
    out["drivers"].push_back({{"name", run::vendor_name(s.vendor)},
                              {"library", s.library},
                              {"version", s.driver},
                              {"gpus", s.gpus.size()},
                              {"refusal", s.refusal},
                              {"advice", s.advice}});
  for (const run::LibraryFound& l : found.libraries)
    out["libraries"].push_back({{"name", l.name}, {"file", l.file}, {"version", l.version}, {"remark", l.remark}});
  for (const auto& m : found.machines)
    out["machines"].push_back({{"name", m.name},
                               {"triple", m.triple},
                               {"vector_bits", m.vector_bits},
                               {"tier", m.tier},
                               {"runs_here", m.runs_here}});
  const CacheState& c = found.cache;
  out["cache"] = {{"path", c.path}, {"state", c.state}, {"files", c.files}, {"bytes", c.bytes}};
  out["ok"] = found.usable();
  return out.dump(2) + "\n";
}

std::string text_of(const run::SelfTest& e) {
  std::string out = fmt::format("  {:<8} {:<7}  {}\n", e.device, e.usable ? "usable" : "REFUSED",
                                e.description.empty() ? e.machine : e.description);
  const auto line = [&](const std::string& text) { out += fmt::format("{:20}{}\n", "", text); };
  if (!e.refusal.empty()) line("why: " + e.refusal);
  if (!e.refusal.empty() && !e.advice.empty()) line("hint: " + e.advice);
  if (e.tier.empty()) return out;  // it could not be opened
  line(fmt::format("code for {} ({}); products of {} by instructions of their own{}", e.machine, e.tier,
                   e.products.empty() ? "f32" : fmt::format("{}", fmt::join(e.products, ", ")),
                   e.emulated.empty() ? "" : fmt::format("; of {} through f32", fmt::join(e.emulated, ", "))));
  line(fmt::format("{:.1f} of {:.1f} GiB free{}; {}", gib(e.memory.free), gib(e.memory.total),
                   e.memory_rate > 0 ? fmt::format(", {:.0f} GB/s", e.memory_rate / 1e9) : "", e.determinism));
  if (e.trials.empty()) return out;
  line(fmt::format("self-test of kernels with f32 activations (as with --exact): {} of {} agree with the codec",
                   passed(e), e.trials.size()));
  for (const auto& t : e.trials)
    if (!t.line.ok || verbosity() == Verbosity::verbose)
      line(fmt::format("  {} {:<12} {:<32} {}", t.line.ok ? "ok  " : "FAIL", t.format, t.line.what, t.line.detail));
  return out;
}

std::string report_text(const Findings& found) {
  const CacheState& cache = found.cache;
  std::string out =
      fmt::format("lumen {} ({})\nprocessor  {}, {} cores\nkernels    {}\ndevices\n", kVersion, run::compiler_version(),
                  processor_name(), sysconf(_SC_NPROCESSORS_ONLN),
                  cache.path.empty() ? "cache off"
                                     : fmt::format("{} ({}, {} files, {:.1f} MiB)", cache.path, cache.state,
                                                   cache.files, static_cast<double>(cache.bytes) / (1 << 20)));
  for (const run::SelfTest& e : found.devices) out += text_of(e);
  for (const run::GpuSurvey& s : found.surveys)
    if (s.gpus.empty())
      out += fmt::format("  {:<8} none     {}\n{:20}hint: {}\n", run::vendor_name(s.vendor),
                         s.refusal.empty() ? "no such GPU" : s.refusal, "",
                         s.advice.empty() ? "`lumen doctor` without --device lists all" : s.advice);
  out += "libraries\n";
  for (const run::GpuSurvey& s : found.surveys)
    if (!s.library.empty()) out += fmt::format("  {:<10} {} ({})\n", run::vendor_name(s.vendor), s.driver, s.library);
  for (const run::LibraryFound& l : found.libraries)
    out += l.file.empty() ? fmt::format("  {:<10} not here\n", l.name)
                          : fmt::format("  {:<10} {} ({}); {}\n", l.name, l.version, l.file, l.remark);
  out += fmt::format("machines   code for this processor: {}\n", run::native_machine_name());
  for (const auto& m : found.machines)
    out += fmt::format("  {:<22} {:>5} bits  {:<10} {}\n", m.name, m.vector_bits, m.tier,
                       m.runs_here ? "runs here" : "compiles only");
  return out + (found.usable() ? "all is well on the devices marked usable\n" : "nothing usable was found\n");
}

int doctor(const Shared& shared, const DoctorFlags& flags) {
  const Findings found = look(shared, flags);
  if (flags.json) {
    put_text(json_text(found));
  } else {
    put(report_text(found));
  }
  return static_cast<int>(found.usable() ? Exit::ok : Exit::hardware);
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* sub = app.add_subcommand(
      "doctor", "What this machine is, what runs on it, and whether kernels with f32 activations are right");
  sub->add_flag("--json", flags->json, "For programs");
  auto* all = sub->add_flag("--all", flags->all, "Test the kernels of every format");
  sub->add_flag("--quick", flags->quick, "Skip the self-test and the measurement")->excludes(all);
  sub->footer(
      "Every device is opened, described, and its kernels are compared with the exact codec, with f32 activations: "
      "those "
      "that\n"
      "round activations, as commands do without --exact, are not tried. A device that disagrees is refused and the "
      "next "
      "one\n"
      "is tried. --device looks at one kind alone, -v shows every test.\n"
      "LUMEN_CUDA_LIBRARY and LUMEN_HIP_LIBRARY name a driver's library that the system does not find by itself.\n"
      "Exit code 0, or 3 when nothing usable is found.");
  add_shared_flags(*sub, command.shared);
  sub->callback([sub, flags, &command] {
    flags->one_device = sub->get_option("--device")->count() > 0;
    command.action = [flags, shared = command.shared] { return doctor(*shared, *flags); };
  });
}

}  // namespace lumen::cli
