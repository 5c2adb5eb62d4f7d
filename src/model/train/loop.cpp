#include "model/train/loop.h"

#include <chrono>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace lumen::model {
namespace {

// Appends one JSON object per line; a line that cannot be written (a full disk) ends the run with an error. A resumed
// run first drops the lines of steps it will do again, by replacing the file as a whole.
class Metrics {
 public:
  Metrics(const std::filesystem::path& out, int64_t done) {
    if (out.empty()) return;
    std::filesystem::create_directories(out);
    path_ = out / "metrics.jsonl";
    std::string kept;
    if (done > 0) {
      std::ifstream old(path_);
      for (std::string line; std::getline(old, line);) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (json.is_object() && json.value("step", int64_t{0}) <= done) kept += line + "\n";
      }
    }
    write_file_atomic(path_, kept);
    file_.open(path_, std::ios::app);
    if (!file_) throw user_error("cannot write {}", path_.string());
  }

  void write(const nlohmann::json& line) {
    if (!file_.is_open()) return;
    file_ << line.dump() << "\n" << std::flush;
    if (!file_) throw user_error("cannot write {}: is the disk full? The last checkpoint is whole", path_.string());
  }

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

constexpr int64_t kQuickWindows = 64;  // of evaluations on the way

}  // namespace

LoopResult run_training(Trainer& trainer, const LoopOptions& options) {
  using Clock = std::chrono::steady_clock;
  const Recipe& recipe = trainer.recipe();
  const int64_t steps = recipe.schedule.steps;
  Metrics metrics(options.out, trainer.done());
  Progress progress;
  LoopResult result;
  std::deque<double> recent;
  const auto begin = Clock::now();
  double step_seconds = 0;
  int64_t tokens = 0;
  double validation = -1;
  const auto evaluate = [&](int64_t windows) {
    validation = trainer.evaluate(windows);
    if (result.best_validation == 0 || validation < result.best_validation) result.best_validation = validation;
    metrics.write({{"step", trainer.done()}, {"validation_loss", validation}});
  };
  const auto save = [&] {
    if (!options.out.empty()) result.checkpoint = trainer.save(options.out);
  };

  int64_t saved_at = -1;
  while (trainer.done() < steps) {
    if (options.stop && options.stop->load()) {
      result.interrupted = true;
      break;
    }
    const Trainer::Step step = trainer.step();
    recent.push_back(step.loss);
    if (recent.size() > 50) recent.pop_front();
    step_seconds += step.seconds;
    tokens += step.tokens;
    result.train_loss = std::accumulate(recent.begin(), recent.end(), 0.0) / static_cast<double>(recent.size());
    result.tokens_per_second = static_cast<double>(tokens) / std::max(step_seconds, 1e-9);
    metrics.write({{"step", trainer.done()},
                   {"loss", step.loss},
                   {"norm", step.norm},
                   {"lr", step.rate},
                   {"seconds", step.seconds},
                   {"elapsed", std::chrono::duration<double>(Clock::now() - begin).count()},
                   {"tokens_per_second", static_cast<double>(step.tokens) / std::max(step.seconds, 1e-9)}});
    const double spent = std::chrono::duration<double>(Clock::now() - begin).count();
    const double left = static_cast<double>(steps - trainer.done()) * step_seconds * static_cast<double>(step.tokens) /
                        static_cast<double>(tokens);
    progress.update(
        fmt::format("{} step {}/{} | loss {:.4f}{} | norm {:.2f} | lr {:.2e} | {:.1f} ms | {:.0f} tok/s | {}<{}",
                    options.title, trainer.done(), steps, result.train_loss,
                    validation >= 0 ? fmt::format(" (val {:.4f})", validation) : "", step.norm, step.rate,
                    step.seconds * 1e3, result.tokens_per_second, format_duration(spent), format_duration(left)));
    if (recipe.evaluate_every > 0 && trainer.done() % recipe.evaluate_every == 0 && trainer.done() < steps) {
      evaluate(kQuickWindows);
    }
    if (recipe.save_every > 0 && trainer.done() % recipe.save_every == 0) {
      save();
      saved_at = trainer.done();
    }
  }
  if (saved_at != trainer.done()) save();
  if (!result.interrupted) {
    evaluate(recipe.evaluate_windows);
    result.validation_loss = validation;
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  progress.finish(fmt::format("{} step {}/{} | loss {:.4f}{} | {:.0f} tok/s | {}", options.title, trainer.done(), steps,
                              result.train_loss, validation >= 0 ? fmt::format(" | val {:.4f}", validation) : "",
                              result.tokens_per_second, format_duration(result.seconds)));
  return result;
}

}  // namespace lumen::model
