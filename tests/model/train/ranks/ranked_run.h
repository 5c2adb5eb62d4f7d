// Trainers of several ranks, threads of one process, for tests.
#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"
#include "tests/run/ranks/among.h"

namespace lumen::model::train {

struct Fresh {
  arch::Model model;
  std::shared_ptr<const data::Batches> batches;
  explicit Fresh(const recipe::Recipe& recipe, const graph::Config& other = {}) {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
    const auto data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    graph::Config config = other;
    config["vocab"] = tokenizer.size();
    model = initialise(family, family->config("tiny", config), 3);
    model.tokenizer = tokenizer;
    batches = window_batches(data, recipe.seed, recipe.batch, recipe.length, recipe.accumulate);
  }
};

struct RankedRun {
  std::vector<double> losses, norms;
  double validation = 0;
  std::map<std::string, std::vector<uint8_t>> weights;
};

inline RankedRun trained(run::Engine& engine, const recipe::Recipe& recipe, int steps,
                         std::shared_ptr<run::Communicator> ranks, const std::filesystem::path& out = {},
                         const graph::Config& config = {}) {
  const Fresh s(recipe, config);
  Trainer trainer(engine, s.model, recipe, s.batches, nullptr, ranks);
  RankedRun run;
  for (int i = 0; i < steps; ++i) {
    const Trainer::Step step = trainer.step();
    run.losses.push_back(step.loss);
    run.norms.push_back(step.norm);
  }
  (void)trainer.prove();
  run.validation = trainer.evaluate();
  if (!out.empty()) (void)trainer.save(out);
  run.weights = weights_of(trainer);
  return run;
}

inline RankedRun trained(const recipe::Recipe& recipe, int steps, std::shared_ptr<run::Communicator> ranks,
                         const std::filesystem::path& out = {}, const graph::Config& config = {}) {
  run::Engine engine = make_engine(1);
  return trained(engine, recipe, steps, std::move(ranks), out, config);
}

// By rank, what `train` says; all must have the same weights.
inline std::vector<RankedRun> among_ranks(int size,
                                          const std::function<RankedRun(std::shared_ptr<run::Communicator>)>& train) {
  std::vector<RankedRun> runs(size);
  const auto memory = std::make_shared<run::SharedMemory>(size);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        auto own =
            std::make_shared<run::Communicator>(run::RankPlace{r, size, r, size}, run::join_shared_memory(memory, r));
        try {
          runs[r] = train(own);
        } catch (const std::exception& error) {
          own->abort(error.what());
          throw;
        }
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  for (const RankedRun& run : runs) {
    EXPECT_EQ(run.weights, runs[0].weights);
    EXPECT_EQ(run.losses, runs[0].losses);
    EXPECT_EQ(run.validation, runs[0].validation);
  }
  return runs;
}

inline std::vector<RankedRun> among_ranks(int size, const recipe::Recipe& recipe, int steps,
                                          const std::filesystem::path& out = {}, const graph::Config& config = {}) {
  return among_ranks(size, [&](std::shared_ptr<run::Communicator> own) {
    return trained(recipe, steps, std::move(own), out, config);
  });
}

inline void expect_near(const RankedRun& a, const RankedRun& b, double within) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], within * std::abs(a.losses[i])) << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], 10 * within * std::abs(a.norms[i])) << i;
  }
  EXPECT_NEAR(a.validation, b.validation, within * std::abs(a.validation));
}

}  // namespace lumen::model::train
