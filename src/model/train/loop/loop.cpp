#include "model/train/loop/loop.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "model/report/report.h"
#include "model/report/tensorboard.h"
#include "model/train/loop/evaluation.h"
#include "model/train/loop/saver.h"
#include "model/train/trainer/guard.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kQuickRows = 64;  // of intermediate evaluations, at most as many as at the end
constexpr const char* kTensorboardName = "tensorboard";
constexpr const char *kLossTag = "validation/loss", *kFinalLossTag = "validation/loss_of_all_rows";

// The log's first line: model, recipe, files and device.
json run_line(Trainer& trainer, const LoopOptions& options) {
  const recipe::Recipe& recipe = trainer.recipe();
  const arch::Model& model = trainer.outline();
  int64_t parameters = 0;
  for (const arch::Parameter& p : model.parameters) parameters += p.count();
  json run = {{"model", model.name},
              {"family", model.family->name()},
              {"parameters", parameters},
              {"trained", trainer.trained_count()},
              {"device", trainer.engine().device().describe()},
              {"threads", trainer.engine().threads()},
              {"steps", recipe.schedule.steps},
              {"flops_per_step", trainer.work()},
              {"recipe", describe(recipe)},
              {"memory", json::array()},
              {"formats", json::array()},
              {"what", json::array()},
              {"optimizer", recipe.optimizer.name},
              {"moments", recipe.optimizer.moments},
              {"files", json::array()}};
  recipe::Recipe defaults;
  defaults.optimizer = resolved(model.family->library(), defaults.optimizer);
  run["defaults"] = describe(defaults);
  if (const Trainer::Origin origin = trainer.origin(); !origin.hash.empty()) {
    run["base"] = origin.place;
    run["base_hash"] = origin.hash;
  }
  if (const Trainer::Origin teacher = trainer.taught_by(); !teacher.hash.empty()) {
    run["teacher"] = teacher.place;
    run["teacher_hash"] = teacher.hash;
  }
  if (trainer.has_adapter()) run["adapter"] = recipe.adapter.method;
  if (recipe.ship.ships()) run["ships"] = recipe.ship.type;
  for (const Trainer::Trained& t : trainer.trained())
    run["what"].push_back({{"what", t.what}, {"format", t.format}, {"tensors", t.tensors}, {"numbers", t.numbers}});
  if (options.ceiling > 0) run["ceiling_flops"] = options.ceiling;
  for (const Trainer::Held& held : trainer.memory())
    run["memory"].push_back({{"kind", held.kind}, {"bytes", held.bytes}});
  for (const Trainer::HeldIn& held : trainer.formats())
    run["formats"].push_back(
        {{"format", held.format}, {"tensors", held.tensors}, {"numbers", held.numbers}, {"bytes", held.bytes}});
  for (const data::DataFile& file : trainer.batches().files())
    run["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"xxh3_128", file.hash.hex()}});
  return {{"step", trainer.done()}, {"run", std::move(run)}};
}

class Loop {
 public:
  Loop(Trainer& trainer, const LoopOptions& options)
      : trainer_(trainer),
        options_(options),
        recipe_(trainer.recipe()),
        begun_at_(trainer.done()),
        evaluator_(recipe_),
        saver_(trainer, options.out) {
    if (options_.out.empty() || !trainer_.writes()) return;
    if (begun_at_ == 0) {
      std::error_code error;
      remove_tree(options_.out / kTensorboardName, error);
      fs::remove(options_.out / kBestName, error);
    }
    metrics_ = report::MetricsFile(options_.out, begun_at_);
    if (recipe_.tensorboard) events_ = report::EventFile(options_.out / kTensorboardName, begun_at_ + 1);
  }

  LoopResult run() {
    metrics_.write(run_line(trainer_, options_));
    if (recipe_.on_nan == "rollback" && !saver_.has_any()) save();
    log_first_samples();
    while (true) {
      try {
        to_the_end();
        break;
      } catch (const Error& error) {
        if (error.code() != Exit::numeric) throw;
        go_back(error);
      }
    }
    result_.checkpoint = saver_.last();
    result_.seconds = clock_.seconds();
    write_report();
    std::string line = fmt::format("{} step {}/{}", options_.title, trainer_.done(), recipe_.schedule.steps);
    if (tokens_ > 0) line += fmt::format(" | loss {:.4f}", result_.train_loss);
    if (validation_ >= 0) line += fmt::format(" | val {:.4f}", validation_);
    if (tokens_ > 0) line += fmt::format(" | {:.0f} tok/s", result_.tokens_per_second);
    progress_.finish(fmt::format("{} | {}", line, format_duration(result_.seconds)));
    return result_;
  }

 private:
  // Whether evaluations choose the checkpoint to keep, or end the run early.
  bool watches() const { return recipe_.early_stopping > 0 || recipe_.load_best; }
  bool is_stale() const { return recipe_.early_stopping > 0 && trainer_.state().stale >= recipe_.early_stopping; }

  void to_the_end() {
    steps();
    if (saver_.saved_at() != trainer_.done()) save();
    if (result_.interrupted) return;
    if (is_stale() && trainer_.done() < recipe_.schedule.steps) {
      event("early stop",
            fmt::format("{} evaluations without a better {} than {:.6g} after step {}", trainer_.state().stale,
                        recipe_.metric, trainer_.state().best.value_or(0), trainer_.state().best_step));
    }
    saver_.confirm();
    handing_over_ = recipe_.load_best;
    if (recipe_.load_best && trainer_.state().best_step >= 0) {
      result_.best_step = trainer_.state().best_step;
      event("best", fmt::format("the weights after step {} are handed over: {} {:.6g}", result_.best_step,
                                recipe_.metric, trainer_.state().best.value_or(0)));
      if (result_.best_step != trainer_.done()) saver_.restore_best();
    }
    end_curve();
    if (!result_.interrupted) evaluate(recipe_.evaluate_windows, false);
    if (!result_.interrupted) result_.validation_loss = validation_;
  }

  bool is_due(int64_t done) const {
    return recipe_.evaluate_every > 0 && done > 0 && done % recipe_.evaluate_every == 0 &&
           (done < recipe_.schedule.steps || watches()) && trainer_.state().evaluated_at != done;
  }

  void steps() {
    while (!result_.interrupted) {
      const int64_t done = trainer_.done();
      if (is_due(done)) evaluate(quick_rows(), true);
      if (result_.interrupted) return;
      if (recipe_.save_every > 0 && done % recipe_.save_every == 0 && done != begun_at_ && saver_.saved_at() != done) {
        save();
        write_report();
      }
      if (done >= recipe_.schedule.steps || is_stale()) return;
      if (options_.stop && options_.stop->load()) {
        result_.interrupted = true;
        return;
      }
      reads_next_ = true;
      const Trainer::Step step = trainer_.step();
      reads_next_ = false;
      saver_.confirm();
      RunState& state = trainer_.state();
      if (const std::string spike = spike_of(state, recipe_.spike_factor, step.loss, step.norm); !spike.empty())
        throw Error(Exit::numeric, fmt::format("step {}: {}", trainer_.done(), spike),
                    "a lower --lr or a larger --spike-factor");
      state.push(step.loss, step.norm);
      show(step);
    }
  }

  void save() {
    reads_next_ = true;
    saver_.save();
    reads_next_ = false;
  }

  int64_t quick_rows() const {
    return recipe_.evaluate_windows > 0 ? std::min(kQuickRows, recipe_.evaluate_windows) : kQuickRows;
  }

  // What the model answers before it is trained, for comparison.
  void log_first_samples() {
    if (begun_at_ != 0 || recipe_.samples.empty()) return;
    const auto samples = evaluator_.samples(trainer_, options_.stop);
    if (!samples) return;  // the stop ends the run before its first step
    json line = {{"step", 0}};
    put_samples(*samples, line);
    metrics_.write(line);
  }

  // The last evaluation reads more rows than the intermediate ones, and its loss is not comparable with theirs. The
  // curve of the intermediate ones therefore gets a point of its own at the end.
  void end_curve() {
    if (recipe_.evaluate_every <= 0 || trainer_.state().evaluated_at == trainer_.done()) return;
    const int64_t rows = trainer_.evaluated_rows(quick_rows());
    if (rows == trainer_.evaluated_rows(recipe_.evaluate_windows)) return;
    const double loss = trainer_.evaluate(rows, options_.stop);
    if (loss < 0) {
      result_.interrupted = true;
      return;
    }
    metrics_.write({{"step", trainer_.done()}, {"validation_loss", loss}, {"validation_rows", rows}});
    const std::pair<std::string, double> scalar(kLossTag, loss);
    events_.scalars(trainer_.done(), {&scalar, 1});
  }

  // Evaluates all validation rows, or a few for intermediate evaluations; watched ones choose the best checkpoint.
  void evaluate(int64_t rows, bool watched) {
    const auto told = [&](const std::string& text) {
      progress_.update(fmt::format("{} step {}: {}", options_.title, trainer_.done(), text));
    };
    const auto e = evaluator_.run(trainer_, rows, options_.stop, told);
    if (!e) {
      result_.interrupted = true;
      return;
    }
    validation_ = e->validation_loss;
    if (result_.best_validation == 0 || validation_ < result_.best_validation) result_.best_validation = validation_;
    log(*e, trainer_.evaluated_rows(rows));
    if (!watched) return;
    RunState& state = trainer_.state();
    state.evaluated_at = trainer_.done();
    const double value = e->figure(recipe_.metric);
    const bool better = !state.best || is_better(recipe_.metric, value, *state.best);
    if (better) {
      state.best = value;
      state.best_step = trainer_.done();
    }
    state.stale = better ? 0 : state.stale + 1;
    if (!better || !watches()) return;
    save();
    saver_.link_best();
  }

  void put_samples(const std::vector<TrainingEvaluation::Sample>& samples, json& line) {
    for (const TrainingEvaluation::Sample& s : samples) {
      line["samples"].push_back({{"prompt", s.prompt}, {"text", s.text}});
      events_.text(trainer_.done(), "samples/" + printable(s.prompt), s.prompt + s.text);
    }
  }

  void log(const TrainingEvaluation& e, int64_t rows) {
    json line = {{"step", trainer_.done()}, {"validation_loss", e.validation_loss}, {"validation_rows", rows}};
    // One curve has values of one number of rows.
    const bool is_curve = rows == trainer_.evaluated_rows(quick_rows()) || recipe_.evaluate_every <= 0;
    std::vector<std::pair<std::string, double>> scalars = {{is_curve ? kLossTag : kFinalLossTag, e.validation_loss}};
    if (e.validation_kl) {
      line["validation_kl"] = *e.validation_kl;
      scalars.emplace_back("validation/kl", *e.validation_kl);
    }
    for (const auto& [name, value] : e.figures) {
      const size_t dot = name.find('.');
      line["tasks"][name.substr(0, dot)][name.substr(dot + 1)] = value;
      scalars.emplace_back("tasks/" + name, value);
    }
    events_.scalars(trainer_.done(), scalars);
    put_samples(e.samples, line);
    metrics_.write(line);
  }

  void event(const char* kind, const std::string& text) {
    metrics_.write({{"step", trainer_.done()}, {"event", kind}, {"text", text}});
  }

  // Rolls back where the recipe asks for it and a checkpoint allows it; otherwise the error ends the run.
  void go_back(const Error& error) {
    const int64_t failed = reads_next_ ? trainer_.done() : trainer_.done() - 1;
    reads_next_ = false;
    if (handing_over_ || recipe_.on_nan != "rollback" || !saver_.go_back(failed)) throw saver_.diverged(error);
    const RunState& state = trainer_.state();
    metrics_.go_back(trainer_.done());
    events_.go_back(trainer_.done() + 1);
    recent_.clear();
    const std::string text =
        fmt::format("{}; back to step {}, leaving out {} batch{} ({} of {} times)", error.what(), trainer_.done(),
                    state.skipped.size(), state.skipped.size() == 1 ? "" : "es", state.rollbacks, recipe_.rollbacks);
    event("rollback", text);
    warn(text);
  }

  void write_report() const {
    if (options_.out.empty() || !trainer_.writes()) return;
    write_run_report(options_.out);
  }

  // The step's operations per second over the device's peak; 0 where the peak is not known, or known to be too low.
  double share_of_ceiling(double seconds) {
    const auto share = [&] { return ceiling_ > 0 ? work_ / seconds / ceiling_ : 0; };
    if (share() > 1 && options_.higher_ceiling && !measured_again_) {
      measured_again_ = true;
      ceiling_ = std::max(ceiling_, options_.higher_ceiling());
    }
    return share() <= 1 ? share() : 0;
  }

  void show(const Trainer::Step& step) {
    recent_.push_back(step.loss);
    if (recent_.size() > RunState::kWindow) recent_.pop_front();
    step_seconds_ += step.seconds;
    tokens_ += step.tokens;
    result_.train_loss = std::accumulate(recent_.begin(), recent_.end(), 0.0) / recent_.size();
    result_.tokens_per_second = tokens_ / std::max(step_seconds_, 1e-9);
    const int64_t done = trainer_.done(), memory = trainer_.engine().device().memory().held;
    const double seconds = std::max(step.seconds, 1e-9);
    const int64_t tokens = done * step.tokens;
    json line = {{"step", done},
                 {"loss", step.loss},
                 {"norm", step.norm},
                 {"lr", step.rate},
                 {"seconds", step.seconds},
                 {"elapsed", clock_.seconds()},
                 {"tokens_per_second", step.tokens / seconds},
                 {"tokens", tokens},
                 {"memory", memory}};
    std::vector<std::pair<std::string, double>> scalars = {{"train/loss", step.loss},
                                                           {"train/grad_norm", step.norm},
                                                           {"train/learning_rate", step.rate},
                                                           {"speed/tokens_per_second", step.tokens / seconds},
                                                           {"speed/memory_bytes", static_cast<double>(memory)}};
    std::string share;
    if (const double mfu = share_of_ceiling(seconds); mfu > 0) {
      line["mfu"] = mfu;
      scalars.emplace_back("speed/mfu", mfu);
      share = fmt::format(" | MFU {:.0f} %", 100 * mfu);
    }
    if (const int64_t pass = trainer_.batches().training_tokens(); pass > 0) {
      line["epoch"] = tokens / static_cast<double>(pass);
      scalars.emplace_back("train/epoch", line["epoch"].get<double>());
    }
    for (const auto& [name, value] : step.metrics) {
      line[name] = value;
      scalars.emplace_back("train/" + name, value);
    }
    metrics_.write(line);
    if (recipe_.tensorboard) events_.scalars(done, scalars);
    const int64_t steps = recipe_.schedule.steps;
    const double left = (steps - done) * step_seconds_ * step.tokens / tokens_;
    progress_.update(fmt::format(
        "{} step {}/{} | loss {:.4f}{} | norm {:.2f} | lr {:.2e} | {:.1f} ms | {:.0f} tok/s | {}{} | {}<{}",
        options_.title, done, steps, result_.train_loss,
        validation_ >= 0 ? fmt::format(" (val {:.4f})", validation_) : "", step.norm, step.rate, step.seconds * 1e3,
        result_.tokens_per_second, size_text(memory), share, format_duration(clock_.seconds()), format_duration(left)));
  }

  Trainer& trainer_;
  const LoopOptions& options_;
  const recipe::Recipe& recipe_;
  const int64_t begun_at_;
  TrainingEvaluator evaluator_;
  report::MetricsFile metrics_;
  report::EventFile events_;
  Saver saver_;
  Progress progress_;
  LoopResult result_;
  std::deque<double> recent_;
  const Stopwatch clock_;
  const double work_ = trainer_.work();  // of a step
  double ceiling_ = options_.ceiling;
  bool measured_again_ = false;
  double step_seconds_ = 0, validation_ = -1;
  int64_t tokens_ = 0;
  bool reads_next_ = false;  // while the next batch is read: if numbers break, that batch is skipped first
  bool handing_over_ = false;
};

}  // namespace

void write_run_report(const fs::path& folder) {
  const report::RunLog log = report::read_run_log(folder);
  write_file_atomic(folder / report::kReportName, report::html_report({&log, 1}));
}

LoopResult run_training(Trainer& trainer, const LoopOptions& options) {
  trainer.require_data();
  LoopOptions own = options;
  own.stop = trainer.asked_to_stop(options.stop);
  trainer.remember_reference(own.stop);
  (void)trainer.prove();  // checks the initial state, and that evaluation works before any training step
  return Loop(trainer, own).run();
}

}  // namespace lumen::model::train
