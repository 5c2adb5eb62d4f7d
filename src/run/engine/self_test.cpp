#include "run/engine/self_test.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "run/engine/format_check.h"
#include "run/engine/roofline.h"
#include "run/engine/verify/policy.h"

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

void add_product(std::vector<SelfTest::Product>* all, const std::string& left, const std::string& right,
                 const std::string& sums, const char* by, const std::string& row) {
  for (SelfTest::Product& p : *all) {
    if (p.left != left || p.right != right || p.sums != sums || p.by != by) continue;
    p.rows.push_back(row);
    return;
  }
  all->push_back({left, right, sums, by, {row}});
}

std::vector<SelfTest::Product> products_of(const machine::Machine& m) {
  std::vector<SelfTest::Product> all;
  const auto name = [](Scalar s) { return std::string(scalar_name(s)); };
  for (const machine::MatrixRow& r : m.matrices) {
    // Products with scales are listed separately.
    const char* by = r.scale_group > 0 ? "matrix instructions with scales" : "matrix instructions";
    add_product(&all, machine::factor_name(r.a), machine::factor_name(r.b), name(r.acc), by, r.row);
  }
  for (const machine::TileRow& r : m.tiles) add_product(&all, name(r.a), name(r.b), name(r.acc), "tiles", r.row);
  for (const machine::DotRow& r : m.dots) add_product(&all, name(r.a), name(r.b), name(r.acc), "dots", r.row);
  for (const machine::DotRow& r : m.squares) add_product(&all, name(r.a), name(r.b), name(r.acc), "squares", r.row);
  return all;
}

// Number types without product instructions; kernels convert them to f32, or small floats to 16 bits if products are
// rounded to those and the machine has instructions for them.
std::vector<SelfTest::Emulated> emulated_by(const std::vector<SelfTest::Product>& products) {
  const auto has = [&](const auto& kind) {
    return std::any_of(products.begin(), products.end(),
                       [&](const SelfTest::Product& p) { return kind(p.left) && kind(p.right); });
  };
  const auto named = [](const std::string& wanted) { return [wanted](const std::string& s) { return s == wanted; }; };
  std::vector<SelfTest::Emulated> out;
  for (const char* kind : {"f16", "bf16"})
    if (!has(named(kind))) out.push_back({kind, "f32"});
  if (!has([](const std::string& s) { return s == "i8" || s == "u8"; })) out.push_back({"8-bit integers", "f32"});
  const bool short_floats = has(named("f16")) || has(named("bf16"));
  for (const machine::FloatCode& code : {machine::kOcp4, machine::kOcp5})
    if (const std::string kind = machine::code_name(code); !has(named(kind)))
      out.push_back({kind, short_floats ? "16-bit floats, or f32" : "f32"});
  return out;
}

void describe_machine(const Device& device, SelfTest* e) {
  const machine::Machine& m = device.machine();
  e->description = device.describe();
  e->machine = m.name;
  e->tier = tier_name(m.tier);
  e->tries_programs = tries_launches(device);
  e->products = products_of(m);
  e->emulated = emulated_by(e->products);
  e->memory = device.memory();
}

// One failing kernel makes a device unusable; refused instructions that are avoided do not count.
void judge(const std::string& wrong, SelfTest* e) {
  const auto failed = std::find_if(e->trials.begin(), e->trials.end(), [](const auto& t) { return !t.line.ok; });
  e->usable = wrong.empty() && failed == e->trials.end();
  if (e->usable) return;
  e->refusal =
      failed == e->trials.end()
          ? wrong
          : fmt::format("{}: {}{}: {}",
                        failed->line.ran ? "its kernels disagree with the codec" : "a kernel cannot be run",
                        failed->format.empty() ? "" : failed->format + " ", failed->line.what, failed->line.detail);
  e->advice = "do not trust results of this device; please report it with the file of `lumen doctor --report FILE`";
}

}  // namespace

SelfTest self_test(Engine::Options options, const SelfTestOptions& what) {
  SelfTest e;
  e.device = options.device;
  if (options.machine) e.machine = options.machine->name;
  try {
    options.tries = false;  // self_test itself runs the trials
    Engine engine(options);
    describe_machine(engine.device(), &e);
    std::string wrong;
    if (what.tries) {
      Soundness found = engine.try_kernels(what.all);
      wrong = found.wrong;
      e.refused = found.refused;
      for (CheckLine& line : found.lines) e.trials.push_back({"", std::move(line)});
      for (const FormatRef& f : what.formats)
        for (CheckLine& line : check_kernels(engine, f)) e.trials.push_back({f->name, std::move(line)});
      if (wrong.empty()) e.determinism = engine.prove_determinism();
      e.memory_rate = engine.measure_memory();
      describe_machine(engine.device(), &e);
    }
    judge(wrong, &e);
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
      if (machine::runs_here(*m)) candidates.insert(candidates.begin(), m);  // listed from the least capable
    const machine::MachineRef native = machine::native_machine();            // may be missing in the list
    if (candidates.empty() || candidates[0] != native) candidates.insert(candidates.begin(), native);
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
      e.description = fmt::format("{} {} ({}), {}, driver {}", e.device, gpu.name, gpu.architecture,
                                  size_text(gpu.bytes), survey.driver);
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace lumen::run
