#include "run/engine/program/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace lumen::run {
namespace {

constexpr size_t kPlanWidth = 120;

std::string shortened(const std::string& text) {
  return text.size() <= kPlanWidth ? text : text.substr(0, kPlanWidth - 3) + "...";
}

}  // namespace

Bound bound_of(const std::string& plan, double flops, double bytes, const Ceilings& ceilings) {
  // A plan names its product instruction; without one it uses f32 fused multiply-adds.
  double peak = ceilings.f32_flops;
  const char* name = "f32";
  for (const Ceilings::Row& row : ceilings.rows) {
    if (row.flops > peak && plan.find(row.name) != std::string::npos) {
      peak = row.flops;
      name = row.kind;
    }
  }
  const double compute = peak > 0 ? flops / peak : 0;
  const double memory = ceilings.read_bytes > 0 ? bytes / ceilings.read_bytes : 0;
  return compute > memory ? Bound{compute, name} : Bound{memory, "read"};
}

double predicted(const KernelTime& t, const Ceilings& ceilings) {
  const double model = ceilings.cycles > 0 ? t.cycles / ceilings.cycles : 0;
  return std::max(model, bound_of(t.plan, t.flops, t.bytes, ceilings).seconds);
}

std::vector<KernelTime> join_equal(std::vector<KernelTime> times) {
  std::vector<KernelTime> joined;
  std::unordered_map<std::string, size_t> at;
  for (KernelTime& t : times) {
    const auto [place, first] = at.try_emplace(t.plan, joined.size());
    if (first) {
      joined.push_back(std::move(t));
      continue;
    }
    KernelTime& sum = joined[place->second];
    sum.launches += t.launches;
    sum.seconds += t.seconds;
    sum.flops += t.flops;
    sum.bytes += t.bytes;
    sum.cycles += t.cycles;
  }
  std::stable_sort(joined.begin(), joined.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  return joined;
}

std::string parameters_table(const std::vector<ParameterUse>& uses) {
  if (uses.empty()) return {};
  std::vector<std::string> plans;  // in order of first use
  std::unordered_map<std::string, std::vector<std::pair<std::string, int>>> names;
  for (const ParameterUse& use : uses) {
    std::string name;
    for (const char c : use.parameter.substr(0, use.parameter.find(' '))) {
      const bool digit = c >= '0' && c <= '9', first = name.empty() || name.back() == '.';
      if (!digit || !(first || name.back() == '*')) {
        name += c;
      } else if (first) {
        name += '*';
      }
    }
    name += use.parameter.substr(std::min(use.parameter.find(' '), use.parameter.size()));
    const auto [at, fresh] = names.try_emplace(use.plan);
    if (fresh) plans.push_back(use.plan);
    const auto known =
        std::find_if(at->second.begin(), at->second.end(), [&](const auto& n) { return n.first == name; });
    if (known == at->second.end()) {
      at->second.emplace_back(name, 1);
    } else {
      ++known->second;
    }
  }
  std::string out = "products of parameters:\n";
  for (const std::string& plan : plans) {
    std::string list;
    for (const auto& [name, count] : names.at(plan))
      list += fmt::format("{}{}{}", list.empty() ? "" : ", ", name, count > 1 ? fmt::format(" ({})", count) : "");
    out += fmt::format("  {}: {}\n", list, shortened(plan));
  }
  return out;
}

std::string bids_table(const std::vector<OfferedPlans>& offers, double cycles) {
  std::string out;
  std::set<std::string> seen;
  for (const OfferedPlans& offer : offers) {
    if (!seen.insert(offer.plan).second) continue;
    if (out.empty()) out = "bids for products, predicted:\n";
    out += fmt::format("  {}\n", shortened(offer.plan));
    for (const synth::BidNote& bid : offer.bids) {
      const std::string cost =
          cycles > 0 ? fmt::format("{:.1f} us", bid.cycles / cycles * 1e6) : fmt::format("{:.3g} cycles", bid.cycles);
      out += bid.refused.empty() ? fmt::format("    {:14} {:>12}  {}\n", bid.family, cost, shortened(bid.plan))
                                 : fmt::format("    {:14} {:>12}  {}\n", bid.family, "refused", shortened(bid.refused));
    }
  }
  return out;
}

std::string times_table(const std::vector<KernelTime>& times, int64_t runs, const Ceilings* ceilings) {
  double total = 0;
  int64_t launches = 0;
  for (const KernelTime& t : times) {
    total += t.seconds;
    launches += t.launches;
  }
  const double each = 1.0 / std::max<int64_t>(1, runs);
  std::string out =
      fmt::format("{:>5} {:>10}{} {:>6} {:>9} {:>8}{}  kernel\n", "calls", "ms per run", ceilings ? "  predicted" : "",
                  "share", "GFLOP/s", "GB/s", ceilings ? "   of ceiling" : "");
  for (const KernelTime& t : times) {
    const double seconds = t.seconds * each;
    out += fmt::format("{:5} {:10.3f}", t.launches, seconds * 1e3);
    if (ceilings) out += fmt::format(" {:10.3f}", predicted(t, *ceilings) * 1e3);
    out += fmt::format(" {:5.1f}%", total > 0 ? 100 * t.seconds / total : 0);
    out += seconds > 0 ? fmt::format(" {:9.1f} {:8.2f}", t.flops / seconds / 1e9, t.bytes / seconds / 1e9)
                       : fmt::format(" {:9} {:8}", "", "");
    if (ceilings) {
      const Bound bound = bound_of(t.plan, t.flops, t.bytes, *ceilings);
      out += seconds > 0 && bound.seconds > 0
                 ? fmt::format("  {:4.0f}% {:5}", 100 * bound.seconds / seconds, bound.ceiling)
                 : fmt::format("  {:11}", "");
    }
    out += fmt::format("  {}\n", shortened(t.plan));
  }
  return out + fmt::format("{:5} {:10.3f} in {} runs\n", launches, total * each * 1e3, runs);
}

}  // namespace lumen::run
