// Evaluations of a model while it is trained: its validation loss, tasks, and texts it goes on with, all with the
// weights as they are, in the formats in which they will be written. Proved by
// tests/model/train/loop/evaluation_test.cpp.
// tests/model/train/loop/evaluation_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/eval/evaluate.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model {

struct TrainingEvaluation {
  double validation_loss = 0;
  std::optional<double> validation_kl;    // from the reference, where the recipe asks for it
  std::map<std::string, double> figures;  // "TASK.FIGURE"
  struct Sample {
    std::string prompt, text;
  };
  std::vector<Sample> samples;

  // The figure that a recipe's `metric` names. Error that lists what there is.
  double figure(const std::string& metric) const;
};

// Whether more of a figure is better: less is, of losses and perplexities.
bool is_better(const std::string& metric, double value, double than);

class TrainingEvaluator {
 public:
  // Error when a task is not known or has no data, or the metric is none of the figures.
  explicit TrainingEvaluator(const Recipe& recipe);
  // Nothing when `stop` became true. `told` hears what is going on.
  std::optional<TrainingEvaluation> run(Trainer& trainer, int64_t rows, const std::atomic<bool>* stop,
                                        const std::function<void(const std::string&)>& told);

 private:
  void ask(const LoadedModel& loaded, bool is_chat, const std::atomic<bool>* stop,
           const std::function<void(const std::string&)>& told, TrainingEvaluation& out) const;

  TaskLibrary library_;
  std::vector<std::string> tasks_, prompts_;
  EvalOptions options_;
  int64_t sample_tokens_;
};

}  // namespace lumen::model
