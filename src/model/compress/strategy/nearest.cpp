// Rounding to nearest with each format's own scale search: unweighted, and with errors weighted by the squares of every
// column's inputs.
#include <algorithm>

#include "model/compress/strategy/each.h"

namespace lumen::model::compress {
namespace {

Rounding rounded(run::Engine& engine, const RoundingTask& t, std::span<const float> importance) {
  Rounding out;
  out.blob = engine.encode(t.format, t.values.data(), t.all_rows(), t.columns, importance);
  out.values = engine.decode(t.format, out.blob.data(), t.all_rows(), t.columns);
  return out;
}

// Importance by columns, where every matrix has input statistics; for a stack by elements, with 1 for matrices without
// rows.
Rounding weighed(run::Engine& engine, const RoundingTask& t) {
  if (!t.format->weighs()) return rounded(engine, t, {});
  int64_t unreached = 0;
  Rounding out = rounded(engine, t, t.importance(&unreached));
  if (unreached > 0) out.remark = fmt::format("no row reached {} of {} matrices", unreached, t.matrices);
  return out;
}

class NearestRounder : public Rounder {
 public:
  NearestRounder(run::Engine& engine, bool weighs) : engine_(engine), weighs_(weighs) {}
  Rounding round(const RoundingTask& task) override {
    return weighs_ ? weighed(engine_, task) : rounded(engine_, task, {});
  }

 private:
  run::Engine& engine_;
  const bool weighs_;
};

class Nearest : public Strategy {
 public:
  std::string_view name() const override { return "rtn"; }
  std::string_view about() const override { return "round to nearest, scales by each format's own search"; }
  std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions&) const override {
    return std::make_unique<NearestRounder>(engine, false);
  }
};

class Weighted : public Strategy {
 public:
  std::string_view name() const override { return "imatrix"; }
  std::string_view about() const override {
    return "round to nearest, scales by importance where the format has a search for that";
  }
  graph::TapKinds observes() const override {
    graph::TapKinds kinds;
    kinds.squares = true;
    return kinds;
  }
  std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions&) const override {
    return std::make_unique<NearestRounder>(engine, true);
  }
};

}  // namespace

const Strategy& nearest_strategy() {
  static const Nearest s;
  return s;
}
const Strategy& importance_strategy() {
  static const Weighted s;
  return s;
}

}  // namespace lumen::model::compress
