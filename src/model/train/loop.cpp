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

// The run's checkpoints. The last one is good by itself when it is written; what follows it decides whether older ones
// are needed still.
class Saver {
 public:
  Saver(Trainer& trainer, std::filesystem::path out) : trainer_(trainer), out_(std::move(out)) {}

  void save() {
    trainer_.prove();
    saved_at_ = trainer_.done();
    if (out_.empty()) return;
    last_ = trainer_.save(out_);
    is_new_ = true;
  }
  int64_t saved_at() const { return saved_at_; }
  const std::filesystem::path& last() const { return last_; }

  // What came after the last one was good.
  void confirm() {
    if (is_new_) keep_checkpoints(out_, static_cast<int>(trainer_.recipe().keep), last_);
    is_new_ = false;
  }

  // Training has diverged. A checkpoint whose very next step shows it is of no use to anybody.
  Error diverged(const Error& error) {
    std::string message = error.what();
    if (is_new_) {
      discard_checkpoint(last_);
      message += fmt::format("; '{}', which leads to it, was removed", last_.string());
    }
    is_new_ = false;
    const auto good = out_.empty() ? std::nullopt : latest_checkpoint(out_);
    if (!good)
      return Error(error.code(), message, "nothing was saved; begin again with a lower --lr or a longer --warmup");
    return Error(error.code(), message,
                 fmt::format("the last good checkpoint is {0}; go on with a lower rate: --resume {0} "
                             "--allow-changed-recipe --lr RATE",
                             good->string()));
  }

 private:
  Trainer& trainer_;
  std::filesystem::path out_, last_;
  int64_t saved_at_ = -1;
  bool is_new_ = false;
};

class Loop {
 public:
  Loop(Trainer& trainer, const LoopOptions& options)
      : trainer_(trainer), options_(options), metrics_(options.out, trainer.done()), saver_(trainer, options.out) {}

  LoopResult run() {
    try {
      steps();
      if (saver_.saved_at() != trainer_.done()) saver_.save();
      if (!result_.interrupted) {
        evaluate(trainer_.recipe().evaluate_windows);
        if (!result_.interrupted) result_.validation_loss = validation_;
      }
      saver_.confirm();
    } catch (const Error& error) {
      if (error.code() == Exit::numeric) throw saver_.diverged(error);
      throw;
    }
    result_.checkpoint = saver_.last();
    result_.seconds = elapsed();
    std::string line = fmt::format("{} step {}/{}", options_.title, trainer_.done(), trainer_.recipe().schedule.steps);
    if (tokens_ > 0) line += fmt::format(" | loss {:.4f}", result_.train_loss);
    if (validation_ >= 0) line += fmt::format(" | val {:.4f}", validation_);
    if (tokens_ > 0) line += fmt::format(" | {:.0f} tok/s", result_.tokens_per_second);
    progress_.finish(fmt::format("{} | {}", line, format_duration(result_.seconds)));
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  void evaluate(int64_t windows) {
    const double loss = trainer_.evaluate(windows, options_.stop);
    if (loss < 0) {
      result_.interrupted = true;
      return;
    }
    validation_ = loss;
    if (result_.best_validation == 0 || validation_ < result_.best_validation) result_.best_validation = validation_;
    metrics_.write({{"step", trainer_.done()}, {"validation_loss", validation_}});
  }

  void steps() {
    const Recipe& recipe = trainer_.recipe();
    while (trainer_.done() < recipe.schedule.steps) {
      if (options_.stop && options_.stop->load()) {
        result_.interrupted = true;
        return;
      }
      const Trainer::Step step = trainer_.step();
      saver_.confirm();
      show(step);
      const int64_t done = trainer_.done();
      if (recipe.evaluate_every > 0 && done % recipe.evaluate_every == 0 && done < recipe.schedule.steps)
        evaluate(kQuickWindows);
      if (recipe.save_every > 0 && done % recipe.save_every == 0) saver_.save();
    }
  }

  void show(const Trainer::Step& step) {
    recent_.push_back(step.loss);
    if (recent_.size() > 50) recent_.pop_front();
    step_seconds_ += step.seconds;
    tokens_ += step.tokens;
    result_.train_loss = std::accumulate(recent_.begin(), recent_.end(), 0.0) / static_cast<double>(recent_.size());
    result_.tokens_per_second = static_cast<double>(tokens_) / std::max(step_seconds_, 1e-9);
    nlohmann::json line = {{"step", trainer_.done()},
                           {"loss", step.loss},
                           {"norm", step.norm},
                           {"lr", step.rate},
                           {"seconds", step.seconds},
                           {"elapsed", elapsed()},
                           {"tokens_per_second", static_cast<double>(step.tokens) / std::max(step.seconds, 1e-9)}};
    for (const auto& [name, value] : step.metrics) line[name] = value;
    metrics_.write(line);
    const int64_t steps = trainer_.recipe().schedule.steps;
    const double left = static_cast<double>(steps - trainer_.done()) * step_seconds_ *
                        static_cast<double>(step.tokens) / static_cast<double>(tokens_);
    progress_.update(
        fmt::format("{} step {}/{} | loss {:.4f}{} | norm {:.2f} | lr {:.2e} | {:.1f} ms | {:.0f} tok/s | {}<{}",
                    options_.title, trainer_.done(), steps, result_.train_loss,
                    validation_ >= 0 ? fmt::format(" (val {:.4f})", validation_) : "", step.norm, step.rate,
                    step.seconds * 1e3, result_.tokens_per_second, format_duration(elapsed()), format_duration(left)));
  }

  Trainer& trainer_;
  const LoopOptions& options_;
  Metrics metrics_;
  Saver saver_;
  Progress progress_;
  LoopResult result_;
  std::deque<double> recent_;
  const Clock::time_point begin_ = Clock::now();
  double step_seconds_ = 0, validation_ = -1;
  int64_t tokens_ = 0;
};

}  // namespace

LoopResult run_training(Trainer& trainer, const LoopOptions& options) {
  trainer.require_data();
  trainer.remember_reference(options.stop);
  (void)trainer.prove();  // what it begins with; and that evaluating works is known now, not after all steps
  return Loop(trainer, options).run();
}

}  // namespace lumen::model
