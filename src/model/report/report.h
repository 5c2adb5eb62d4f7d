// What a training run did, for people: one HTML page without scripts that needs nothing beside itself, of one run or of
// several side by side; and the same as a table for terminals. Everything on it comes from a run's log, and all of that
// is escaped. Proved by tests/model/report/report_test.cpp.
//
// May include: base, base/file, base/structured, model/recipe/record.
// Offers: chart.h, page.h, spread.h, tensorboard.h.
#pragma once

#include <span>
#include <string>

#include "model/report/metrics.h"

namespace lumen::model {

inline constexpr const char* kReportName = "report.html";

std::string html_report(const RunLog& run);
std::string html_comparison(std::span<const RunLog> runs);
// A row for each run, with the losses as a small curve; and where recipes differ, in what.
std::string text_report(std::span<const RunLog> runs);

// A key in which not all runs' recipes are alike, and what each of them has; "?" where a run has no recipe that can be
// read.
struct RecipeDifference {
  std::string key;
  std::vector<std::string> values;
};
std::vector<RecipeDifference> recipe_differences(std::span<const RunLog> runs);

}  // namespace lumen::model
