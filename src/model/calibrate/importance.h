// Importance matrices: for each column of a weight the sum of squares of its inputs, and the number of rows; for
// stacked weights by matrix. It weights an error of that column. In the files of other programs: GGUF (general.type
// imatrix, NAME.in_sum2 and NAME.counts) and the older binary form, which holds means times the number of windows.
// Proved by tests/model/calibrate/importance_test.cpp and reference.py.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "number/library/library.h"

namespace lumen::model::calibrate {

struct ImportanceEntry {
  int64_t columns = 0;
  std::vector<double> sums;    // [matrices, columns]
  std::vector<double> counts;  // [matrices], rows

  int64_t matrices() const { return std::ssize(counts); }
  // Mean squares of one matrix; empty where no row reached it.
  std::vector<float> means(int64_t matrix) const;
  // The older form concatenates the columns of all matrices of a stacked weight. Splits them into this many matrices of
  // this many columns, if sizes fit; matrices of only zeros count as not reached.
  ImportanceEntry unstacked(int64_t matrices, int64_t columns) const;
};

struct Importance {
  std::map<std::string, ImportanceEntry> entries;  // by GGUF name of the weight
  std::vector<std::string> datasets;
  int64_t windows = 0, length = 0;  // of the text; 0: unknown

  // Adds the entries of `more`. Error when a weight's columns or matrices differ.
  void add(const Importance& more);
};

// Either form, recognized by its first bytes. Error naming the file and the fault: hostile files neither crash nor take
// more memory than a small multiple of their size.
Importance read_importance(const std::filesystem::path& path, const FormatLibrary& formats);

enum class ImportanceForm { gguf, windows };  // `windows`: the older one
// `path` appears only when complete.
void write_importance(const Importance& importance, const std::filesystem::path& path, ImportanceForm form);

}  // namespace lumen::model::calibrate
