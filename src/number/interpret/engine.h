// A format compiled for the interpreter: its routines as programs over one array of cells, and its records. Built once
// per format and shared (engine_of); immutable, so threads may use it concurrently with cells of their own.
#pragma once

#include <memory>

#include "number/interpret/records.h"

namespace lumen::interpret {

struct Engine {
  explicit Engine(FormatRef f);

  FormatRef format;  // owns the data that the programs reference
  CellPlan plan;
  std::vector<Records> records;  // by level
  std::unique_ptr<Program> decode, code;
  std::array<std::unique_ptr<Program>, kLevels> fit, weighted_fit;
  std::array<std::vector<bool>, kLevels> assigned, weighted_assigned;  // fields a fit assigns, by field
  std::vector<Cell> fresh;                                             // cells before the first run
};

std::shared_ptr<const Engine> engine_of(const Format& f);

// Fields that a routine assigns.
void collect_assigned(const std::vector<RoutineStmt>& body, std::vector<bool>& fields);

}  // namespace lumen::interpret
