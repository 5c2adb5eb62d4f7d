// Measured time of products with weights in a format on this machine: one row at a time, as in decoding. Proved by
// tests/model/compress/score/weight_scores_test.cpp.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "run/engine/engine.h"

namespace lumen::model::compress {

class ProductTimes {
 public:
  explicit ProductTimes(run::Engine& engine) : engine_(engine) {}
  // Milliseconds of y = W x with W [rows, columns]: the median of runs over several copies, so that weights are read
  // from memory as in a model, not from caches.
  double ms(const FormatRef& format, int64_t rows, int64_t columns);

 private:
  run::Engine& engine_;
  std::map<std::tuple<std::string, int64_t, int64_t>, double> known_;
};

}  // namespace lumen::model::compress
