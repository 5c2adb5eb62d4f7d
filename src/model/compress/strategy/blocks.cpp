// Strategies that round all weights of a layer together, by the layer's output error (model/compress/reconstruction).
#include "model/compress/reconstruction/reconstruction.h"
#include "model/compress/strategy/each.h"

namespace lumen::model::compress {
namespace {

using Learn = LearnedBlock (*)(run::Engine&, BlockObjective&, std::span<const LearnedWeight>, const LearnOptions&,
                               const LearnProgress&);

class LearnedRounder : public Rounder {
 public:
  LearnedRounder(run::Engine& engine, const StrategyOptions& options, Learn learn)
      : engine_(engine), nearest_(importance_strategy().rounder(engine, options)), learn_(learn) {
    options_.steps = options.steps;
    options_.rate = options.rate;
    options_.windows = options.step_windows;
  }

  // Weights on which no compared output depends.
  Rounding round(const RoundingTask& task) override {
    Rounding out = nearest_->round(task);
    out.remark = "is in no layer: rounded to nearest by importance" + (out.remark.empty() ? "" : "; " + out.remark);
    return out;
  }

  BlockRounding round_block(BlockObjective& objective, std::span<const RoundingTask> tasks,
                            const LearnProgress& progress) override {
    std::vector<LearnedWeight> weights;
    for (const RoundingTask& t : tasks) {
      LearnedWeight& w = weights.emplace_back();
      w.name = t.name;
      w.format = t.format;
      w.rows = t.all_rows();
      w.columns = t.columns;
      w.values = t.values;
      if (t.format->weighs()) w.importance = t.importance();
    }
    LearnedBlock learned = learn_(engine_, objective, weights, options_, progress);
    BlockRounding out{{}, learned.before, learned.after};
    for (size_t i = 0; i < tasks.size(); ++i) {
      Rounding& r = out.weights.emplace_back();
      r.blob = std::move(learned.blobs[i]);
      r.values = engine_.decode(tasks[i].format, r.blob.data(), tasks[i].all_rows(), tasks[i].columns);
    }
    return out;
  }

 private:
  run::Engine& engine_;
  const std::unique_ptr<Rounder> nearest_;
  const Learn learn_;
  LearnOptions options_;
};

class Learned : public Strategy {
 public:
  Learned(std::string_view name, std::string_view about, Learn learn, bool any_format = false)
      : name_(name), about_(about), learn_(learn), any_format_(any_format) {}

  std::string_view name() const override { return name_; }
  std::string_view about() const override { return about_; }
  graph::TapKinds observes() const override { return importance_strategy().observes(); }
  bool by_blocks() const override { return true; }
  std::optional<std::string> refuses(const Format& f, const StrategyOptions&) const override {
    ElementCodes codes;
    std::string why;
    if (find_element_codes(f, &codes, &why) || (any_format_ && f.encodes())) return std::nullopt;
    return why;
  }
  std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions& options) const override {
    return std::make_unique<LearnedRounder>(engine, options, learn_);
  }

 private:
  const std::string_view name_, about_;
  const Learn learn_;
  const bool any_format_;
};

}  // namespace

const Strategy& autoround_strategy() {
  static const Learned s(
      "autoround", "values go to either neighbour and ranges shrink, by signs of a layer's gradients", learn_by_signs);
  return s;
}
const Strategy& adaround_strategy() {
  static const Learned s("adaround", "values go to either neighbour, by a layer's gradients through soft rounding",
                         learn_soft_rounding);
  return s;
}
const Strategy& omniquant_strategy() {
  static const Learned s("omniquant", "ranges are clipped by a layer's gradients (learnable weight clipping)",
                         learn_clipping);
  return s;
}
const Strategy& block_ap_strategy() {
  static const Learned s("block-ap", "values and ranges are trained by a layer's gradients, through the rounding",
                         learn_values, true);
  return s;
}

}  // namespace lumen::model::compress
