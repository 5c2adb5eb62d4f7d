// Importance matrices: for each column of a weight the sum of squares of what it was multiplied with, and over how many
// rows; of stacked weights matrix by matrix. How much an error of that column costs. Files as others
// write and read them: GGUF (general.type imatrix, NAME.in_sum2 and NAME.counts) and the older binary form, which
// holds means times the number of windows. Proved by tests/model/calibrate/importance_test.cpp and reference.py.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "number/library/library.h"

namespace lumen::model {

struct ImportanceEntry {
  int64_t columns = 0;
  std::vector<double> sums;    // [matrices, columns]
  std::vector<double> counts;  // [matrices], rows

  int64_t matrices() const { return std::ssize(counts); }
  // Mean squares of one matrix; empty where no row reached it.
  std::vector<float> means(int64_t matrix) const;
  // The older form has all matrices of stacked weights as one, whose columns lie one behind the other: as so many
  // matrices of so many columns, if it can be that; those that nothing but zeros were read of were not reached.
  ImportanceEntry unstacked(int64_t matrices, int64_t columns) const;
};

struct Importance {
  std::map<std::string, ImportanceEntry> entries;  // by GGUF name of the weight
  std::vector<std::string> datasets;
  int64_t windows = 0, length = 0;  // of the text; 0: unknown

  // Entries of both, counted together. Error when a weight has other columns or matrices there.
  void add(const Importance& more);
};

// Either form, told apart by its first bytes. Error naming the file, and what is wrong in it: hostile files neither
// crash nor take more memory than a small multiple of their size.
Importance read_importance(const std::filesystem::path& path, const FormatLibrary& formats);

enum class ImportanceForm { gguf, windows };  // `windows`: the older one
// Nothing appears at `path` before all is written.
void write_importance(const Importance& importance, const std::filesystem::path& path, ImportanceForm form);

}  // namespace lumen::model
