#include "run/device/gpu/gpu_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "kernel/machine/relatives.h"

namespace lumen::run {
namespace {

using machine::MachineRef;

constexpr std::string_view kNvidia = "sm_", kAmd = "gfx";

// "sm_90a": 90 and 'a'.
struct Generation {
  int number = 0;
  char letter = 0;
};
std::optional<Generation> generation_of(std::string_view name) {
  if (!name.starts_with(kNvidia)) return std::nullopt;
  name.remove_prefix(kNvidia.size());
  Generation g;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), g.number);
  if (wrong != std::errc()) return std::nullopt;
  const size_t rest = name.data() + name.size() - end;
  if (rest > 1) return std::nullopt;
  if (rest == 1) g.letter = *end;
  return g;
}

bool executes(const Generation& gpu, const Generation& code) {
  if (code.letter == 0) return code.number <= gpu.number;
  if (code.letter == 'f') return code.number / 10 == gpu.number / 10 && code.number <= gpu.number;
  return code.number == gpu.number;
}

// "gfx1103" is generation 11.0, stepping 3; minor and stepping are hexadecimal digits.
struct Gfx {
  std::string major, minor, stepping;
};
std::optional<Gfx> gfx_of(std::string_view name) {
  if (!name.starts_with(kAmd) || name.size() < kAmd.size() + 3) return std::nullopt;
  const size_t n = name.size();
  return Gfx{std::string(name.substr(kAmd.size(), n - 2 - kAmd.size())), std::string(1, name[n - 2]),
             std::string(1, name[n - 1])};
}

std::vector<std::string> names_with(std::span<const MachineRef> table, std::string_view prefix) {
  std::vector<std::string> names;
  for (const MachineRef& m : table)
    if (m->kind == machine::Kind::gpu && m->name.starts_with(prefix)) names.push_back(m->name);
  return names;
}

GpuMatch none(const std::string& architecture, const std::vector<std::string>& known, std::string advice = {}) {
  GpuMatch match;
  match.remark = known.empty() ? fmt::format("this build generates no code for GPUs of its kind ({})", architecture)
                               : fmt::format("no code for {}: supported are {}", architecture, fmt::join(known, ", "));
  match.advice = advice.empty() ? "use --device cpu" : std::move(advice);
  return match;
}

}  // namespace

std::vector<MachineRef> all_rows() {
  std::vector<MachineRef> rows = machine::all_machines();
  for (const MachineRef& m : machine::relatives()) rows.push_back(m);
  return rows;
}

GpuMatch match_gpu(const std::string& architecture, std::span<const MachineRef> table) {
  const std::string plain = architecture.substr(0, architecture.find(':'));
  if (const auto gpu = generation_of(plain)) {
    GpuMatch best;
    Generation of_best;
    for (const MachineRef& m : table) {
      if (m->kind != machine::Kind::gpu) continue;
      const auto code = generation_of(m->name);
      if (!code || !executes(*gpu, *code)) continue;
      const bool better = !best.machine || code->number > of_best.number ||
                          (code->number == of_best.number && code->letter > of_best.letter);
      if (!better) continue;
      best.machine = m;
      of_best = *code;
    }
    if (!best.machine) return none(plain, names_with(table, kNvidia));
    if (of_best.number != gpu->number)
      best.remark = fmt::format("{} has no row of its own: code for {} is used, without its newer instructions", plain,
                                best.machine->name);
    return best;
  }
  for (const MachineRef& m : table)
    if (m->kind == machine::Kind::gpu && m->name == plain) return {m, {}, {}};
  const std::string generic = machine::generic_of(plain);
  for (const MachineRef& m : table)
    if (m->kind == machine::Kind::gpu && !generic.empty() && m->name == generic)
      return {m,
              fmt::format("{} has no row of its own: its generation's generic code ({}) is used, which needs a driver "
                          "that supports code objects of version 6",
                          plain, generic),
              {}};
  const auto gpu = gfx_of(plain);
  if (!gpu) return none(plain, {});
  for (const MachineRef& m : table) {
    const auto row = m->kind == machine::Kind::gpu ? gfx_of(m->name) : std::nullopt;
    if (!row || row->major != gpu->major || row->minor != gpu->minor) continue;
    return none(plain, names_with(table, kAmd),
                fmt::format("its nearest relative is {}: many run as one with HSA_OVERRIDE_GFX_VERSION={}.{}.{} in the "
                            "environment; `lumen doctor` then tests it",
                            m->name, row->major, row->minor, row->stepping));
  }
  return none(plain, names_with(table, kAmd));
}

}  // namespace lumen::run
