// Report on training runs: the document of its page (page.h), of one run or of several for comparison, and a table for
// terminals. Everything in it comes from the runs' logs. Proved by tests/model/report/report_test.cpp.
//
// May include: base, base/file, base/structured, model/recipe/record.
// Offers: chart.h, page.h, study.h, tensorboard.h.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "model/report/metrics.h"

namespace lumen::model::report {

inline constexpr const char* kReportName = "report.html";

// {"lumen_report": 1, "title", "subtitle", "runs": [..], "differences": [..]}. A run has:
//   name, path, starts, skipped, first_skipped;
//   about            the log's "run", as it is there; and outputs, the same for its last line
//   summary          what is known of: step, train_loss, validation_loss, validation_rows, best_loss, best_step,
//                    best_rows, tokens, epoch, speed (tokens a second: RunLog::mean_over_time), mfu, memory, seconds
//   curves           by key of a step's line, condensed (chart.h) to at most 600 points
//   evaluations      step, validation_loss, rows, figures, samples
//   events           step, kind, text
//   recipe_changes   key, default, value: where the recipe differs from the defaults in what is trained
nlohmann::ordered_json report_json(std::span<const RunLog> runs);
std::string html_report(std::span<const RunLog> runs);
// A row for each run, with the losses as a sparkline; and the differences of their recipes.
std::string text_report(std::span<const RunLog> runs);

// A key in which the runs' recipes differ, and each run's value; "?" where a run has no readable recipe.
struct RecipeDifference {
  std::string key;
  std::vector<std::string> values;
};
std::vector<RecipeDifference> recipe_differences(std::span<const RunLog> runs);

}  // namespace lumen::model::report
