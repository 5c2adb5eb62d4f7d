// Rounds to nearest with clipping: the largest numbers of each group of columns are clamped to the limit of least
// output error of the group (AWQ's clip search, arXiv 2306.00978), for any format.
#include "model/compress/equivalent_transform/clip.h"
#include "model/compress/strategy/each.h"
#include "model/compress/strategy/stack.h"

namespace lumen::model::compress {
namespace {

class ClippedRounder : public Rounder {
 public:
  explicit ClippedRounder(run::Engine& engine) : engine_(engine) {}

  Rounding round(const RoundingTask& t) override {
    Rounding out;
    // Numbers that share a scale.
    const int64_t group = t.format->block > 1 && t.format->row_bytes == 0 ? t.format->block : t.columns;
    std::vector<float> clamped(t.values.begin(), t.values.end());
    double before = 0, after = 0;
    for (int64_t m = 0; m < t.matrices; ++m) {
      const std::span<const float> gram = t.gram(m);
      if (gram.empty()) continue;
      const ClipLimits limits = find_clip_by_gram(t.matrix(m), t.rows, t.columns, group, gram, rounding(t.format));
      limits.clamp(std::span<float>(clamped).subspan(m * t.rows * t.columns, t.rows * t.columns));
      before += limits.before;
      after += limits.after;
    }
    out.blob = engine_.encode(t.format, clamped.data(), t.all_rows(), t.columns);
    out.values = engine_.decode(t.format, out.blob.data(), t.all_rows(), t.columns);
    if (before > 0) out.remark = fmt::format("limits: loss of groups x {:.3f}", after / before);
    return out;
  }

 private:
  RoundMatrix rounding(const FormatRef& f) {
    return [this, f](std::span<const float> values, int64_t rows, int64_t columns) {
      const std::vector<uint8_t> blob = engine_.encode(f, values.data(), rows, columns);
      return engine_.decode(f, blob.data(), rows, columns);
    };
  }

  run::Engine& engine_;
};

class Clipped : public Strategy {
 public:
  std::string_view name() const override { return "clip"; }
  std::string_view about() const override { return "round to nearest, each group's largest numbers clamped first"; }
  graph::TapKinds observes() const override {
    graph::TapKinds kinds;
    kinds.gram = true;
    return kinds;
  }
  std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions&) const override {
    return std::make_unique<ClippedRounder>(engine);
  }
};

}  // namespace

const Strategy& clipped_strategy() {
  static const Clipped s;
  return s;
}

}  // namespace lumen::model::compress
