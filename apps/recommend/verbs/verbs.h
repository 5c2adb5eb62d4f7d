// Commands of recommenders: trained, measured, planned for by a cloud, applied by a device.
//
// May include: apps/recommend, apps/recommend/sensitivity, apps/spread, base, base/file, cli, cli/settings, model/file,
// model/infer/measure, model/report.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/recommend/recommend.h"
#include "cli/command.h"
#include "cli/settings/settings.h"

namespace lumen::cli {

// Adds `lumen recommend` to the program (apps/CMakeLists.txt), whose options are these rows of the table.
void add_recommend(CLI::App& app, Command& command);
std::span<const Setting> recommend_rows();
// Each adds a command to `lumen recommend`.
void add_recommend_sample(CLI::App& app, Command& command);
void add_recommend_train(CLI::App& app, Command& command);
void add_recommend_eval(CLI::App& app, Command& command);
void add_recommend_plan(CLI::App& app, Command& command);
void add_recommend_apply(CLI::App& app, Command& command);
void add_recommend_serve(CLI::App& app, Command& command);
void add_recommend_study(CLI::App& app, Command& command);

// What a run's folder holds beside checkpoints.
inline constexpr const char* kItemNames = "items.txt";   // a name each line, of item 1 first
inline constexpr const char* kUsualPlan = "usual.plan";  // of the mean user: for users of whom little is known
inline constexpr const char* kBestFolder = "best";       // the checkpoint of the best evaluation
inline constexpr int64_t kLeastKnown = 3;                // interactions that a plan of one's own needs

struct DataFlags {
  std::string file;
  int64_t core = 0;
  void add(CLI::App& app);
  recommend::Split read() const;
};

// The checkpoint of the best evaluation of a run, or its newest.
std::filesystem::path best_of(const std::filesystem::path& run);
std::vector<std::string> item_names(const std::filesystem::path& run);
// Items by their names, apart by commas. Error names one that the run does not know.
std::vector<recommend::ItemId> items_named(const std::string& text, const std::vector<std::string>& names);

std::string quality_text(const std::string& name, const recommend::Evaluation& e);
inline constexpr const char* kQualityHead =
    "                                     full ranking                     100 drawn items\n"
    "                                     HR@5   HR@10  NDCG@5 NDCG@10    HR@5   HR@10  NDCG@5 NDCG@10\n";

// Histories of tested users, in the order evaluate() takes plans in.
std::vector<std::vector<recommend::ItemId>> histories_of(const recommend::Split& split,
                                                         const recommend::EvaluationOptions& options);
// Plans for them: the usual one where less than kLeastKnown is known. And the same plans, each for another user.
std::vector<recommend::Plan> plans_for(recommend::Recommender& model,
                                       const std::vector<std::vector<recommend::ItemId>>& histories,
                                       const recommend::Plan& usual);
std::vector<recommend::Plan> permuted(const std::vector<recommend::Plan>& plans);
// The plan of the mean of some training histories.
recommend::Plan usual_plan(recommend::Recommender& model, const recommend::Split& split);

}  // namespace lumen::cli
