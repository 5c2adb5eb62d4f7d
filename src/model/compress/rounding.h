// Rounds weights to a format panel by panel: numbers, codes and decoded values stay in a core's cache, and a whole
// weight is never held in f32 unless its format has a field that depends on all of it. Same bits as the codec on the
// whole, at any number of threads. Proved by tests/model/compress/rounding_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/arch/model.h"
#include "model/compress/saturation.h"
#include "run/engine/engine.h"
#include "run/engine/panels/panels.h"

namespace lumen::model::compress {

class PanelRounder {
 public:
  explicit PanelRounder(run::Engine& engine) : engine_(engine) {}

  struct Result {
    arch::Weight weight;
    double error = 0;     // |x - y| / |x|, Euclidean
    double weighted = 0;  // the same with every column's squares times its importance
    Saturation loss;
  };
  // `to` null: f32. `importance`: of the columns of each matrix of the weight, in order; one for all, or none. Error
  // (exit 4) naming row and column of a number that is not finite.
  Result round(const arch::Weight& from, const FormatRef& to, std::span<const std::vector<float>> importance,
               const std::string& name);

 private:
  class Job;

  std::shared_ptr<const run::Panels> panels(const FormatRef& f, int64_t rows, int64_t columns, bool encodes,
                                            bool weighed);

  run::Engine& engine_;
  std::map<std::tuple<std::string, int64_t, int64_t, bool, bool>, std::shared_ptr<const run::Panels>> kept_;
};

}  // namespace lumen::model::compress
