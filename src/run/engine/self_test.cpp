#include "run/engine/self_test.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "run/engine/cache/cache.h"
#include "run/engine/format_check.h"
#include "run/engine/roofline.h"
#include "run/engine/self_test_result.h"

namespace lumen::run {
namespace {

const char* tier_name(machine::Tier tier) {
  switch (tier) {
    case machine::Tier::measured:
      return "measured";
    case machine::Tier::emulated:
      return "emulated";
    case machine::Tier::compiled:
      return "compiled";
  }
  return "";
}

void describe_machine(const Device& device, SelfTest* e) {
  const machine::Machine& m = device.machine();
  e->description = device.describe();
  e->machine = m.name;
  e->tier = tier_name(m.tier);
  std::set<std::string> own;
  for (const machine::DotRow& row : m.dots) own.emplace(scalar_name(row.a));
  for (const machine::TileRow& row : m.tiles) own.emplace(scalar_name(row.a));
  for (const machine::MatrixRow& row : m.matrices)  // of GPUs
    own.emplace(row.a.code ? "8-bit floats" : scalar_name(row.a.scalar));
  e->products.assign(own.begin(), own.end());
  const bool integers = own.contains("u8") || own.contains("i8");
  if (!integers) e->emulated.emplace_back("8-bit integers");
  for (const char* kind : {"f16", "bf16"})
    if (!own.contains(kind)) e->emulated.emplace_back(kind);
  e->determinism = device.is_asynchronous()
                       ? "same bits on this GPU and driver; sums in another order than on a processor"
                       : "same bits for any number of threads";
  e->memory = device.memory();
}

}  // namespace

SelfTest self_test(Engine::Options options, const SelfTestOptions& what) {
  SelfTest e;
  e.device = options.device;
  if (options.machine) e.machine = options.machine->name;
  try {
    options.tries = false;  // this is the trial
    Engine engine(options);
    describe_machine(engine.device(), &e);
    if (what.tries) {
      std::vector<CheckLine> lines = check_families(engine);
      if (engine.device().is_asynchronous()) {
        KeptFiles kept(cache_folder(options.cache_folder), true);
        keep_result(engine.device(), kept, disagreement(lines));
      }
      for (CheckLine& line : lines) e.trials.push_back({"", std::move(line)});
      for (const FormatRef& f : what.formats)
        for (CheckLine& line : check_kernels(engine, f)) e.trials.push_back({f->name, std::move(line)});
      e.memory_rate = engine.measure_memory();
    }
    const auto failed = std::find_if(e.trials.begin(), e.trials.end(), [](const auto& t) { return !t.line.ok; });
    e.usable = failed == e.trials.end();
    if (!e.usable) {
      e.refusal = fmt::format(
          "{}: {}{}: {}", failed->line.ran ? "its kernels disagree with the codec" : "a kernel cannot be run",
          failed->format.empty() ? "" : failed->format + " ", failed->line.what, failed->line.detail);
      e.advice = "do not trust results of this device; please report it with the output of `lumen doctor --json`";
    }
  } catch (const Error& error) {
    e.usable = false;
    e.refusal = error.what();
    e.advice = error.hint();
  }
  return e;
}

std::vector<SelfTest> self_test_cpu(const Engine::Options& options, const SelfTestOptions& what) {
  std::vector<machine::MachineRef> candidates;
  if (options.machine) {
    candidates.push_back(options.machine);
  } else {
    for (const machine::MachineRef& m : machine::all_machines())
      if (machine::runs_here(*m)) candidates.insert(candidates.begin(), m);  // listed from the least able
  }
  std::vector<SelfTest> out;
  for (const machine::MachineRef& m : candidates) {
    Engine::Options mine = options;
    mine.device = "cpu";
    mine.machine = m;
    out.push_back(self_test(mine, what));
    if (out.back().usable) break;
  }
  return out;
}

std::vector<SelfTest> self_test_gpus(const GpuSurvey& survey, const Engine::Options& options,
                                     const SelfTestOptions& what) {
  std::vector<SelfTest> out;
  for (const GpuFound& gpu : survey.gpus) {
    Engine::Options mine = options;
    mine.device = fmt::format("{}:{}", vendor_name(survey.vendor), gpu.ordinal);
    SelfTest e = self_test(mine, what);
    if (e.description.empty())
      e.description = fmt::format("{} {} ({}), {:.1f} GiB, driver {}", e.device, gpu.name, gpu.architecture,
                                  static_cast<double>(gpu.bytes) / (1 << 30), survey.driver);
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace lumen::run
