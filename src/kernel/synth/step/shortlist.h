// Which plans of a cost model are worth a measurement.
#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace lumen::synth {

constexpr size_t kMostCandidates = 6;    // of one kernel
constexpr double kWorstCandidate = 1.6;  // times the estimate of the best

// The best plan first, then the best of every other register tile, then what is left. Plans have height, vectors and
// cycles.
template <class Plan>
std::vector<Plan> shortlist(std::vector<Plan> all) {
  std::stable_sort(all.begin(), all.end(), [](const Plan& a, const Plan& b) { return a.cycles < b.cycles; });
  std::vector<Plan> first, rest;
  std::set<std::pair<int, int>> tiles;
  for (Plan& plan : all) {
    if (plan.cycles > kWorstCandidate * all.front().cycles) break;
    (tiles.insert({plan.height, plan.vectors}).second ? first : rest).push_back(plan);
  }
  first.insert(first.end(), rest.begin(), rest.end());
  if (first.size() > kMostCandidates) first.resize(kMostCandidates);
  return first;
}

}  // namespace lumen::synth
