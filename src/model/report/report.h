// Report on a training run: a self-contained HTML page without scripts, of one run or of several for comparison; and
// the same as a table for terminals. Everything on it comes from a run's log and is escaped. Proved by
// tests/model/report/report_test.cpp.
//
// May include: base, base/file, base/structured, model/recipe/record.
// Offers: chart.h, page.h, tensorboard.h.
#pragma once

#include <span>
#include <string>

#include "model/report/metrics.h"

namespace lumen::model {

inline constexpr const char* kReportName = "report.html";

std::string html_report(const RunLog& run);
std::string html_comparison(std::span<const RunLog> runs);
// A row for each run, with the losses as a sparkline; and the differences of their recipes.
std::string text_report(std::span<const RunLog> runs);

// A key in which the runs' recipes differ, and each run's value; "?" where a run has no readable recipe.
struct RecipeDifference {
  std::string key;
  std::vector<std::string> values;
};
std::vector<RecipeDifference> recipe_differences(std::span<const RunLog> runs);

}  // namespace lumen::model
