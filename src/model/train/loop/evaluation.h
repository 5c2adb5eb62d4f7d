// Evaluations of a model during training: validation loss, tasks, and sample continuations of prompts, all with the
// current weights in the formats they will be written in. Proved by tests/model/train/loop/evaluation_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/eval/evaluate.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model::train {

struct TrainingEvaluation {
  double validation_loss = 0;
  std::optional<double> validation_kl;    // from the reference, where the recipe requests it
  std::map<std::string, double> figures;  // "TASK.FIGURE"
  struct Sample {
    std::string prompt, text;
  };
  std::vector<Sample> samples;

  // The figure that a recipe's `metric` names. Error that lists the available figures.
  double figure(const std::string& metric) const;
};

// Whether `value` is better than `than`; losses and perplexities are better when smaller.
bool is_better(const std::string& metric, double value, double than);

class TrainingEvaluator {
 public:
  // Error when a task is unknown or has no data, or the metric is not among the figures.
  explicit TrainingEvaluator(const recipe::Recipe& recipe);
  // nullopt when `stop` became true. `told` receives progress messages.
  std::optional<TrainingEvaluation> run(Trainer& trainer, int64_t rows, const std::atomic<bool>* stop,
                                        const std::function<void(const std::string&)>& told);
  // Continuations of the recipe's prompts with the weights as they are; nullopt when `stop` became true.
  std::optional<std::vector<TrainingEvaluation::Sample>> samples(Trainer& trainer, const std::atomic<bool>* stop) const;

 private:
  void ask(const infer::LoadedModel& loaded, const std::atomic<bool>* stop,
           const std::function<void(const std::string&)>& told, TrainingEvaluation& out) const;
  std::vector<TrainingEvaluation::Sample> go_on(const infer::LoadedModel& loaded, bool is_chat,
                                                const std::atomic<bool>* stop) const;

  eval::TaskLibrary library_;
  std::vector<std::string> tasks_, prompts_;
  eval::EvalOptions options_;
  int64_t sample_tokens_;
};

}  // namespace lumen::model::train
