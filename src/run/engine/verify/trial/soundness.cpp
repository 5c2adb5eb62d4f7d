#include "run/engine/verify/trial/soundness.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace lumen::run {
namespace {

struct Judged {
  Trial trial;
  CheckLine line;
  bool failed() const { return line.ran && !line.ok; }
};

// The row to refuse: of those that failing trials use, the one whose trials fail most often; among equals the one in
// most failing trials, then the one that a trial targeted. Empty: some failing trial uses none, so no row explains it.
std::string blamed_row(const std::vector<Judged>& all) {
  std::map<std::string, std::pair<int, int>> counts;  // failed, tried
  std::set<std::string> wanted;
  for (const Judged& j : all) {
    if (!j.line.ran) continue;
    for (const std::string& row : j.line.rows) {
      counts[row].first += j.failed() ? 1 : 0;
      ++counts[row].second;
    }
    if (j.failed()) wanted.insert(j.trial.wanted);
  }
  std::string best;
  std::tuple<double, int, bool> most{0, 0, false};
  for (const auto& [row, count] : counts) {
    if (count.first == 0) continue;
    const std::tuple<double, int, bool> mine{double(count.first) / count.second, count.first, wanted.contains(row)};
    if (mine <= most) continue;
    most = mine;
    best = row;
  }
  return best;
}

}  // namespace

std::vector<Trial> trials_for(const machine::Machine& m, TrialDepth depth, int threads) {
  std::vector<Trial> out = family_trials(m, depth);
  for (Trial& t : encode_trials(depth)) out.push_back(std::move(t));
  for (Trial& t : product_trials(m, depth, threads)) out.push_back(std::move(t));
  return out;
}

std::vector<CheckLine> rows_not_chosen(const machine::Machine& m, const std::vector<CheckLine>& lines) {
  std::set<std::string> used;
  for (const CheckLine& line : lines) used.insert(line.rows.begin(), line.rows.end());
  std::vector<CheckLine> out;
  for (const machine::Row& row : m.rows)
    if (!used.contains(row.name))
      out.push_back({row.name, m.name, true, "no plan of these trials has it", false, {}, {}, false});
  return out;
}

Soundness find_soundness(const CompileContext& context, std::vector<Trial> trials, const OpenMachine& open) {
  Soundness out;
  machine::Machine machine = context.device->machine();
  std::map<std::set<std::string>, CompileContext> others;  // tables without some rows
  const auto context_of = [&](const CompileContext& whole, const Trial& t) -> const CompileContext& {
    if (t.without.empty()) return whole;
    const auto [at, is_new] = others.try_emplace(t.without);
    if (is_new) {
      machine::Machine rest = machine;
      for (const std::string& row : t.without) rest = without_row(std::move(rest), row);
      at->second = open(std::make_shared<const machine::Machine>(std::move(rest)));
    }
    return at->second;
  };
  const auto find_some = [&](std::span<const Trial> some) {
    std::map<const CompileContext*, std::vector<const Trial*>> by_context;
    for (const Trial& t : some) by_context[&context_of(context, t)].push_back(&t);
    for (const auto& [where, those] : by_context) find_kernels(*where, those);
  };
  constexpr size_t kTogether = 64;  // trials whose kernels are compiled together: enough for every thread
  std::vector<Judged> all;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (i % kTogether == 0) find_some(std::span(trials).subspan(i, std::min(kTogether, trials.size() - i)));
    CheckLine line = try_out(context_of(context, trials[i]), trials[i]);
    all.push_back({std::move(trials[i]), std::move(line)});
  }
  const auto failing = [&] { return std::find_if(all.begin(), all.end(), [](const Judged& j) { return j.failed(); }); };
  for (auto first = failing(); first != all.end(); first = failing()) {
    const std::string row = blamed_row(all);
    const auto with_row = std::find_if(all.begin(), all.end(), [&](const Judged& j) {
      return j.failed() && std::ranges::find(j.line.rows, row) != j.line.rows.end();
    });
    if (row.empty() || with_row == all.end()) {
      out.wrong = fmt::format("{}: {}", first->line.what, first->line.detail);
      break;
    }
    out.refused.push_back({row, fmt::format("{}: {}", with_row->line.what, with_row->line.detail)});
    machine = without_row(std::move(machine), row);
    out.machine = std::make_shared<const machine::Machine>(machine);
    const CompileContext next = open(out.machine);
    others.clear();
    for (Judged& j : all) {
      const bool used = std::ranges::find(j.line.rows, row) != j.line.rows.end();
      if (!used) continue;  // its kernels are unchanged
      j.trial.wanted.clear();
      j.line = try_out(context_of(next, j.trial), j.trial);
    }
  }
  for (Judged& j : all) {
    out.whole = out.whole && (j.line.ran || !j.line.chosen);
    out.lines.push_back(std::move(j.line));
  }
  return out;
}

}  // namespace lumen::run
