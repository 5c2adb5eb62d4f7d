// A whole training run around a Trainer: live line, evaluations, metrics, checkpoints, and a graceful end on Ctrl-C.
// Nothing broken is saved: before a checkpoint is written, the loss with its weights and all its numbers must be
// finite; the oldest one is removed once the step after the newest was good, too. Where the recipe asks for it, a run
// rolls back to its last good checkpoint instead of ending, stops early, and returns the best weights.
// Proved by tests/model/train/train_test.cpp, guard_test.cpp and rollback_test.cpp.
//
// May include: base, base/file, base/structured, model/arch/adapter, model/arch/checkpoint, model/arch/family,
// model/compress, model/eval, model/infer/generate, model/infer/measure, model/recipe/record, model/report,
// model/templates, model/train/adapter_init, model/train/trainer, run/engine.
// Offers: outputs.h, saver.h.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "model/train/trainer/trainer.h"

namespace lumen::model::train {

struct LoopOptions {
  std::filesystem::path out;                // checkpoints and metrics.jsonl; empty: nothing is written
  const std::atomic<bool>* stop = nullptr;  // set by a signal: save and return early
  std::string title = "train";              // first words of the live line
  double ceiling = 0;                       // peak operations per second of the device (product_ceiling); 0: not known
  // Measures the peak again, and returns the higher one. Called once, when a step is faster than the peak: other work
  // slowed the machine when it was measured.
  std::function<double()> higher_ceiling = {};
};

struct LoopResult {
  double train_loss = 0;       // mean of the last 50 steps, nats per token
  double validation_loss = 0;  // whole validation text (or the recipe's windows); not computed when interrupted
  int64_t best_step = -1;      // step of the trainer's current weights, where the recipe asks for the best; else -1
  double best_validation = 0;  // of all evaluations
  double seconds = 0;
  double tokens_per_second = 0;  // training steps only
  bool interrupted = false;
  std::filesystem::path checkpoint;  // the last one written
};

// Error (exit 4) when a loss, a gradient or a weight is not finite: it names the good checkpoint and how to continue.
LoopResult run_training(Trainer& trainer, const LoopOptions& options);

// Writes report.html from the log in the folder of a run.
void write_run_report(const std::filesystem::path& folder);

}  // namespace lumen::model::train
