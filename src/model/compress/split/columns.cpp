#include "model/compress/split/columns.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/round_up.h"
#include "graph/equivalence/equivalence.h"
#include "graph/transform/split_columns.h"
#include "model/arch/function.h"
#include "model/calibrate/there_and_back.h"
#include "model/compress/quantize.h"

namespace lumen::model::compress {

std::vector<ColumnGroup> column_groups(const arch::Model& model, const std::vector<std::string>& names) {
  const graph::Graph g = graph::with_numbers(function_of(model, "forward"));
  const std::set<std::string> wanted(names.begin(), names.end());
  std::vector<ColumnGroup> out;
  for (const graph::SharedColumns& shared : graph::splittable_weights(g)) {
    ColumnGroup group;
    group.columns = shared.columns;
    for (const std::string& name : shared.weights)
      if (wanted.contains(name) && graph::layer_of(name) >= 0) group.weights.push_back(name);
    if (group.weights.empty()) continue;
    group.before = graph::rows_before(g, shared.weights);
    // All readers change with the rows, so all must be in the group.
    if (group.before && group.weights.size() != shared.weights.size()) group.before.reset();
    out.push_back(std::move(group));
  }
  return out;
}

void rank_columns(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                  const calibrate::LayerRunOptions& options, const std::filesystem::path& folder,
                  std::vector<ColumnGroup>& groups, const std::function<void(double)>& progress) {
  calibrate::LayerRun run(engine, model, text, options);
  calibrate::ThereAndBack way(
      run, [&](const std::string& name) { return values_of(engine, model.weights.at(name)); }, folder);
  const size_t parts = run.parts();
  way.there([&](size_t k) {
    if (progress) progress(0.3 * k / parts);
  });
  for (ColumnGroup& group : groups) group.impacts.assign(group.columns, 0);
  way.back([&](size_t k) {
    if (progress) progress(0.3 + 0.7 * (parts - 1 - k) / parts);
    const calibrate::PartRun part =
        run.back(k, way.weights(), &way.values, &way.slopes, {}, {}, {.channels = true, .gradients = {}});
    for (ColumnGroup& group : groups)
      for (const std::string& name : group.weights) {
        const auto sums = part.channels.find(name);
        if (sums == part.channels.end()) continue;
        for (size_t i = 0; i < sums->second.size(); ++i) group.impacts[i % group.columns] += sums->second[i];
      }
  });
  for (ColumnGroup& group : groups) {
    for (double& impact : group.impacts) {
      impact /= run.windows() * options.length;
      if (!std::isfinite(impact))
        throw Error(Exit::numeric, fmt::format("a column of '{}' has the impact {}", group.weights[0], impact),
                    "the model's gradients broke; calibrate on another text");
    }
    group.order.resize(group.columns);
    std::iota(group.order.begin(), group.order.end(), 0);
    std::ranges::stable_sort(group.order, [&](int64_t a, int64_t b) { return group.impacts[a] > group.impacts[b]; });
  }
}

int64_t high_columns(double ratio, int64_t columns, const Format& high, const Format& low) {
  const int64_t step = std::lcm(high.block, low.block);
  if (ratio <= 0 || columns % step != 0) return 0;
  const int64_t wanted = std::ceil(ratio * columns - 1e-9);
  return std::min(round_up(wanted, step), columns - step);
}

}  // namespace lumen::model::compress
