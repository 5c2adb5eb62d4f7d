// Tables of a format, trained on weights: Lloyd's rounds. A round encodes a sample with the tables as they are; then
// every entry of a table that decode is linear in becomes the least squares solution for the values that use it. What
// an entry multiplies is found by decoding the same codes under other tables, so nothing about a format is known here.
// The result is a format of its own, whose text holds the new values. Same bits at any thread count. Proved by
// tests/model/compress/codebook_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "number/format/format.h"
#include "run/engine/engine.h"

namespace lumen::model {

struct TableTraining {
  int rounds = 16;           // at most
  double least_gain = 1e-3;  // of the squared error, in a round; three rounds with less end it
};

struct TrainedTables {
  FormatRef format;                 // null where no table is trained, or none became better
  std::vector<std::string> tables;  // that decode is linear in; empty: nothing to train
  double before = 0, after = 0;     // squared error of the sample, weighted by importance, relative to its squares
  int rounds = 0;
  std::string text(const Format& from) const;  // a line for people
};

// Whether decode reads a table at all, and the format's fields are all of blocks, whose values can be sampled.
bool may_train_tables(const Format& f);

// `x`: whole blocks; `importance`: as many numbers, or none. The new format is named after the old one and its values,
// and has none of its ids in files.
TrainedTables train_tables(run::Engine& engine, const FormatRef& f, std::span<const float> x,
                           std::span<const float> importance, const TableTraining& training = {});

}  // namespace lumen::model
