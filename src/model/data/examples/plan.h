// Which examples share a row of a batch. Packing puts several into one window: each into the open window that it fills
// best, of a bounded number of open ones; the outcome is a function of the examples' lengths and the seed. Proved by
// tests/model/data/data_batches_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/data/examples/example_store.h"

namespace lumen::model::data {

enum class Overflow { cut, drop };
const char* overflow_name(Overflow o);
Overflow overflow(const std::string& name);  // Error (usage) that lists the names

// Tokens first .. first + length of an example.
struct PlanItem {
  uint32_t example = 0, first = 0, length = 0, learned = 0;
};

struct RowPlan {
  std::vector<PlanItem> items;
  std::vector<uint64_t> begins;  // of each row's items, and their end
  uint64_t rows() const { return begins.empty() ? 0 : begins.size() - 1; }
};

struct PlanOptions {
  int64_t length = 0;  // positions of a row: an example of n tokens takes n - 1
  bool packing = false;
  Overflow overflow = Overflow::cut;
  uint64_t seed = 0;
};

// Rows of these examples (of pairs: numbers of pairs; row 2i and 2i + 1 are one). What is cut or dropped because it is
// longer than a row is counted; plain text never is, it becomes several pieces.
RowPlan plan_rows(const ExampleStore& store, const std::vector<uint32_t>& chosen, const PlanOptions& options,
                  const std::vector<std::string>& files, RowReport* report);

}  // namespace lumen::model::data
