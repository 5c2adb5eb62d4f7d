#include "model/train/method/recomputation.h"

#include <algorithm>

#include "model/recipe/recipe_keys.h"
#include "run/device/available.h"

namespace lumen::model::train {

namespace {

constexpr int64_t kSpared = 20;  // a twentieth of a device's free memory is kept free

graph::Recompute recomputation(const std::string& text, const run::Device& device, int64_t others) {
  using What = graph::Recompute::What;
  if (text == "none") return {};
  if (text == "maps") return {What::maps, 0};
  if (text == "layers") return {What::layers, 0};
  if (text != "auto") return {What::fit, run::parse_amount(text, "run.recompute")};
  const int64_t free = device.memory().free;
  return {What::fit, std::max<int64_t>(0, free - free / kSpared - others)};
}

}  // namespace

void recompute(Method::Work* work, const std::string& text, const run::Device& device, int64_t others) {
  const FormatRef kept = work->options.recompute.kept;
  work->options.recompute = recomputation(text, device, others);
  work->options.recompute.kept = kept;
}

int64_t beside_values(run::Engine& engine, const Method& method, const recipe::Recipe& recipe) {
  int64_t bytes = method.optimizer().state_bytes(method.trained(), method.held());
  if (recipe.accumulate > 1)
    for (const arch::Parameter& p : method.trained())
      bytes = run::saturating_sum(bytes, run::saturating_product(p.count(), int64_t{sizeof(float)}));
  const Method::Work evaluation = method.evaluation();
  return run::saturating_sum(bytes, engine.arena_bytes(evaluation.graph, evaluation.options));
}

}  // namespace lumen::model::train
