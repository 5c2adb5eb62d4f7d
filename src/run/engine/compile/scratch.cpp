#include "run/engine/compile/scratch.h"

#include <map>
#include <unordered_map>

#include "graph/fuse/fuse.h"
#include "kernel/loop/text.h"
#include "run/engine/compile/compile.h"

namespace lumen::run {
namespace {

using From = synth::Argument::From;

bool writes(const synth::Step& step, int buffer) {
  for (size_t i = 0; i < step.arguments.size(); ++i)
    if (step.kernel.params[i].written && step.arguments[i] == synth::Argument{From::scratch, buffer}) return true;
  return false;
}

// The result of a step as a function of values of its group.
struct Preparation {
  std::string text;         // of the kernel and of the preparations it reads; "" if the step is not a preparation
  std::vector<int> values;  // of the group, in the order of their use in the text
};

// By step of a synthesis.
std::vector<Preparation> preparations_of(const Synthesized& s) {
  std::vector<int> writers(s.scratch.size());
  for (size_t b = 0; b < writers.size(); ++b)
    for (const synth::Step& step : s.steps) writers[b] += writes(step, b) ? 1 : 0;
  std::vector<Preparation> out(s.steps.size());
  std::vector<const Preparation*> contents(s.scratch.size(), nullptr);
  for (size_t k = 0; k + 1 < s.steps.size(); ++k) {  // the last step writes the group's result
    const synth::Step& step = s.steps[k];
    Preparation made;
    bool prepares = !step.kernel.aliased;
    for (size_t i = 0; i < step.arguments.size() && prepares; ++i) {
      const synth::Argument& a = step.arguments[i];
      const size_t at = a.index;
      if (a.from == From::value) {
        prepares = !step.kernel.params[i].written;
        made.text += "value;";
        made.values.push_back(a.index);
      } else if (step.kernel.params[i].written) {
        prepares = writers[at] == 1;
        made.text += fmt::format("{} bytes;", s.scratch[at]);
      } else {
        prepares = contents[at] != nullptr;
        if (!prepares) break;
        made.text += fmt::format("({});", contents[at]->text);
        made.values.insert(made.values.end(), contents[at]->values.begin(), contents[at]->values.end());
      }
    }
    if (!prepares) continue;
    made.text += loop::without_name(step.kernel, s.texts[k]);
    out[k] = std::move(made);
    for (size_t b = 0; b < contents.size(); ++b)
      if (writes(step, b)) contents[b] = &out[k];
  }
  return out;
}

// One preparation of a plan, and the groups that share it.
struct Shared {
  std::vector<int> groups;
  std::vector<size_t> lives;  // live ranges of its buffers, in the order of its step's arguments
};

// Finds the preparations of all groups and numbers them.
class Finder {
 public:
  Finder(const graph::Plan& plan, const DistinctKernels& kernels) : plan_(plan), kernels_(kernels) {
    for (const Synthesized& s : kernels.distinct) {
      std::vector<std::pair<int, std::vector<int>>>& steps = known_.emplace_back();
      for (Preparation& p : preparations_of(s))
        steps.emplace_back(
            p.text.empty() ? -1 : texts_.try_emplace(p.text, static_cast<int>(texts_.size())).first->second,
            std::move(p.values));
    }
    for (size_t g = 0; g < plan.groups.size(); ++g) find(g);
  }

  std::vector<std::vector<int>> by_step;  // of each group; -1: not shared
  std::vector<Shared> all;

 private:
  void find(size_t group) {
    const auto& [which, values, offsets] = kernels_.groups[group];
    std::vector<int>& numbers = by_step.emplace_back();
    for (const auto& [text, locals] : known_[which]) {
      numbers.push_back(-1);
      if (text < 0) continue;
      std::vector<int64_t> key = {text};
      for (const int local : locals) key.insert(key.end(), {values[local], offsets[local]});
      const auto [place, fresh] = latest_.try_emplace(std::move(key), static_cast<int>(all.size()));
      // If the groups are far apart, preparing twice costs less than keeping the memory.
      if (!fresh && subject(group) - subject(all[place->second].groups.back()) > graph::kFar)
        place->second = all.size();
      if (place->second == std::ssize(all)) all.emplace_back();
      std::vector<int>& groups = all[place->second].groups;
      if (!groups.empty() && groups.back() == static_cast<int>(group)) continue;  // twice in one group
      numbers.back() = place->second;
      groups.push_back(group);
    }
  }
  graph::ValueId subject(size_t group) const { return graph::subject(plan_.graph, plan_.groups[group]); }

  const graph::Plan& plan_;
  const DistinctKernels& kernels_;
  std::vector<std::vector<std::pair<int, std::vector<int>>>> known_;  // by distinct form and step: text, values
  std::unordered_map<std::string, int> texts_;
  std::map<std::vector<int64_t>, int> latest_;  // by text, and value and offset of each operand
};

// Live ranges of each group's scratch buffers; those of shared ones begin at the first group that uses them.
struct Lives {
  std::vector<graph::Life> all;
  std::vector<std::vector<std::pair<size_t, int64_t>>> of_group;  // by buffer: its live range, and the offset in bytes

  // Groups that run concurrently have separate scratch.
  void add(const graph::Plan& plan, size_t group, const synth::Synthesis& s, const std::vector<int>& preparation,
           std::vector<Shared>& shared) {
    std::vector<std::pair<size_t, int64_t>>& addresses = of_group.emplace_back(s.scratch.size());
    std::vector<bool> is_shared(s.scratch.size());
    for (size_t k = 0; k < s.steps.size(); ++k) {
      if (preparation[k] < 0) continue;
      Shared& one = shared[preparation[k]];
      size_t written = 0;
      for (size_t i = 0; i < s.steps[k].arguments.size(); ++i) {
        if (!s.steps[k].kernel.params[i].written) continue;
        const size_t buffer = s.steps[k].arguments[i].index;
        if (one.lives.size() == written) {
          one.lives.push_back(all.size());
          all.push_back({aligned(s.scratch[buffer]), int(graph::first_beside(plan, size_t(one.groups.front()))),
                         int(graph::last_beside(plan, size_t(one.groups.back())))});
        }
        addresses[buffer] = {one.lives[written++], 0};
        is_shared[buffer] = true;
      }
    }
    int64_t own = 0;
    for (size_t b = 0; b < s.scratch.size(); ++b) {
      if (is_shared[b]) continue;
      addresses[b] = {all.size(), own};
      own += aligned(s.scratch[b]);
    }
    if (own > 0) all.push_back({own, int(graph::first_beside(plan, group)), int(graph::last_beside(plan, group))});
  }
};

}  // namespace

ScratchPlan plan_scratch(const graph::Plan& plan, const DistinctKernels& kernels) {
  Finder found(plan, kernels);
  ScratchPlan out;
  std::vector<int> numbers(found.all.size(), -1);
  for (size_t i = 0; i < found.all.size(); ++i)
    if (found.all[i].groups.size() > 1) numbers[i] = out.preparations++;
  Lives lives;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    std::vector<int> shared = found.by_step[g];
    for (int& p : shared) p = p >= 0 && numbers[p] >= 0 ? p : -1;
    lives.add(plan, g, kernels.distinct[kernels.groups[g].which], shared, found.all);
    for (int& p : shared) p = p >= 0 ? numbers[p] : -1;
    out.groups.push_back({{}, std::move(shared)});
  }
  out.bytes = graph::place_lives(lives.all);
  for (size_t g = 0; g < plan.groups.size(); ++g)
    for (const auto& [life, offset] : lives.of_group[g])
      out.groups[g].at.push_back(offset + (life < lives.all.size() ? lives.all[life].offset : 0));
  return out;
}

}  // namespace lumen::run
