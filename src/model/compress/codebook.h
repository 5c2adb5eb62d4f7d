// Trains a format's tables on weights by Lloyd's algorithm. A round encodes a sample with the current tables; then
// every entry of a table in which decode is linear becomes the least squares solution for the values that use it. An
// entry's coefficients are found by decoding the same codes under other tables, so this works for any format. The
// result is a new format, whose text holds the new values. Same bits at any thread count. Proved by
// tests/model/compress/codebook_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "number/format/format.h"
#include "run/engine/engine.h"

namespace lumen::model::compress {

struct TableTraining {
  int rounds = 16;           // at most
  double least_gain = 1e-3;  // relative gain of squared error per round; three rounds below it end training
};

struct TrainedTables {
  FormatRef format;                 // null where no table is trained, or none improved
  std::vector<std::string> tables;  // in which decode is linear; empty: nothing to train
  double before = 0, after = 0;     // squared error of the sample, weighted by importance, relative to its squares
  int rounds = 0;
  std::string text(const Format& from) const;  // a printable line
};

// Whether decode reads a table at all, and all fields are per block, so that blocks can be sampled.
bool may_train_tables(const Format& f);

// `x`: whole blocks; `importance`: as many numbers, or empty. The new format is named after the old one and its values,
// and has none of its file ids.
TrainedTables train_tables(run::Engine& engine, const FormatRef& f, std::span<const float> x,
                           std::span<const float> importance, const TableTraining& training = {});

}  // namespace lumen::model::compress
