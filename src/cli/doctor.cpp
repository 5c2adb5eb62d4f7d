// lumen doctor
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/version.h"
#include "run/engine/format_check.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

struct Flags {
  bool json = false, all = false, quick = false;
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

// The folder the engine keeps kernels in; the same rule as run/engine/engine.h states.
std::filesystem::path cache_folder(const Shared& shared) {
  if (!shared.cache.empty()) return shared.cache;
  const auto variable = [](const char* name) {
    return std::getenv(name) ? std::string(std::getenv(name)) : std::string();
  };
  if (const std::string own = variable("LUMEN_CACHE"); !own.empty()) return own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return std::filesystem::path(xdg) / "lumen";
  return std::filesystem::path(variable("HOME")) / ".cache" / "lumen";
}

struct CacheState {
  std::string path, state;
  int64_t files = 0, bytes = 0;
};

CacheState look_at_cache(const Shared& shared) {
  CacheState c;
  if (shared.cache == "off") return {"", "off", 0, 0};
  const std::filesystem::path folder = cache_folder(shared);
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
  c.state = access(folder.c_str(), W_OK) == 0 ? "ready" : "not writable: kernels are compiled at every start";
  return c;
}

struct SelfTest {
  std::string format;
  std::vector<run::CheckLine> lines;
};

// Kernels of a few formats (all with --all) against the codec, on the machine this program would use.
std::vector<SelfTest> self_test(const Shared& shared, const Flags& flags) {
  std::vector<SelfTest> tests;
  run::Engine engine = shared.engine();
  std::vector<FormatRef> chosen;
  for (const FormatRef& f : shared.library()->formats().all()) {
    // Without --all: the formats that files of other programs are in, near 4 and 8 bits.
    const double bits = f->bits_per_weight();
    const bool typical = f->gguf_file_type && ((bits > 4.2 && bits < 4.6) || (bits > 8.2 && bits < 8.6));
    if (flags.all || typical) chosen.push_back(f);
  }
  for (const FormatRef& f : chosen) tests.push_back({f->name, run::check_kernels(engine, f)});
  return tests;
}

int doctor(const Shared& shared, const Flags& flags) {
  const double gib = 1.0 / (1 << 30);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) * gib;
  const double available =
      static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) * gib;
  const auto machines = run::machine_lines();
  const CacheState cache = look_at_cache(shared);
  const std::vector<SelfTest> tests = flags.quick ? std::vector<SelfTest>() : self_test(shared, flags);
  bool ok = true;
  for (const SelfTest& t : tests) {
    for (const run::CheckLine& line : t.lines) ok = ok && line.ok;
  }
  if (flags.json) {
    nlohmann::json out;
    out["version"] = kVersion;
    out["compiler"] = run::compiler_version();
    out["processor"] = processor_name();
    out["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
    out["memory_gib"] = memory;
    out["memory_available_gib"] = available;
    out["native_machine"] = run::native_machine_name();
    for (const auto& m : machines) {
      out["machines"].push_back({{"name", m.name},
                                 {"triple", m.triple},
                                 {"vector_bits", m.vector_bits},
                                 {"tier", m.tier},
                                 {"runs_here", m.runs_here}});
    }
    out["cache"] = {{"path", cache.path}, {"state", cache.state}, {"files", cache.files}, {"bytes", cache.bytes}};
    for (const SelfTest& t : tests) {
      for (const run::CheckLine& line : t.lines) {
        out["self_test"].push_back({{"format", t.format},
                                    {"what", line.what},
                                    {"machine", line.machine},
                                    {"ok", line.ok},
                                    {"detail", line.detail}});
      }
    }
    out["ok"] = ok;
    std::fputs((out.dump(2) + "\n").c_str(), stdout);
    return static_cast<int>(ok ? Exit::ok : Exit::verify);
  }
  std::string out =
      fmt::format("lumen {} ({})\nprocessor  {}, {} cores\nmemory     {:.1f} GiB, {:.1f} GiB free\nkernels    {}\n",
                  kVersion, run::compiler_version(), processor_name(), sysconf(_SC_NPROCESSORS_ONLN), memory, available,
                  cache.path.empty() ? "cache off"
                                     : fmt::format("{} ({}, {} files, {:.1f} MiB)", cache.path, cache.state,
                                                   cache.files, static_cast<double>(cache.bytes) / (1 << 20)));
  out += fmt::format("machines   code for this processor: {}\n", run::native_machine_name());
  for (const auto& m : machines) {
    out += fmt::format("  {:<22} {:>5} bits  {:<10} {}\n", m.name, m.vector_bits, m.tier,
                       m.runs_here ? "runs here" : "compiles only");
  }
  for (const SelfTest& t : tests) {
    for (const run::CheckLine& line : t.lines) {
      out +=
          fmt::format("self-test  {} {:<12} {:<32} {}\n", line.ok ? "ok  " : "FAIL", t.format, line.what, line.detail);
    }
  }
  out += ok ? "all is well\n" : "some kernels disagree with the codec: do not trust results on this machine\n";
  std::fputs(out.c_str(), stdout);
  return static_cast<int>(ok ? Exit::ok : Exit::verify);
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = app.add_subcommand("doctor", "What this machine is, what runs on it, and whether kernels are right");
  sub->add_flag("--json", flags->json, "For programs");
  sub->add_flag("--all", flags->all, "Test the kernels of every format");
  sub->add_flag("--quick", flags->quick, "Skip the self-test");
  sub->footer("Exit code 5 when a self-test fails.");
  add_shared_flags(*sub, command.shared);
  sub->callback(
      [flags, &command] { command.action = [flags, shared = command.shared] { return doctor(*shared, *flags); }; });
}

}  // namespace lumen::cli
