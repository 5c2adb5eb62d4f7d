// needs: none. The share of the machine's peak that steps reach (MFU).
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/train/loop/loop.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

// The shares in the metrics of a short run; absent ones are -1.
std::vector<double> shares(double ceiling, const std::function<double()>& higher) {
  const TestFolder folder;
  const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
  const auto data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
  model.tokenizer = tokenizer;
  recipe::Recipe recipe = small_recipe();
  recipe.schedule.steps = 4;
  LoopOptions options;
  options.out = folder / "run";
  options.ceiling = ceiling;
  options.higher_ceiling = higher;
  Trainer trainer(engine(), model, recipe, data);
  (void)run_training(trainer, options);
  std::vector<double> out;
  std::ifstream in(options.out / "metrics.jsonl");
  for (std::string line; std::getline(in, line);)
    if (const auto row = nlohmann::json::parse(line); row.contains("lr")) out.push_back(row.value("mfu", -1.0));
  return out;
}

TEST(TrainingCeiling, MeasuresAgainWhatStepsAreFasterThan) {
  int measured = 0;
  const std::vector<double> all = shares(1, [&] { return ++measured, 1e15; });
  EXPECT_EQ(measured, 1);
  ASSERT_EQ(all.size(), 4U);
  for (const double share : all) {
    EXPECT_GT(share, 0);
    EXPECT_LT(share, 1);
  }
}

TEST(TrainingCeiling, NoShareIsSaidOfAPeakThatIsTooLow) {
  int measured = 0;
  EXPECT_EQ(shares(1, [&] { return ++measured, 2.0; }), std::vector<double>(4, -1));
  EXPECT_EQ(measured, 1);
  for (const double share : shares(1e15, [&] { return ++measured, 1.0; })) EXPECT_GT(share, 0);
  EXPECT_EQ(measured, 1) << "a peak that holds is not measured again";
}

}  // namespace
}  // namespace lumen::model::train
