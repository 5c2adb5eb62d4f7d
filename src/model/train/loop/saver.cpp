#include "model/train/loop/saver.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/file/file.h"
#include "base/file/temporary.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  int64_t step = 0;
  const size_t dash = name.rfind('-') + 1;
  std::from_chars(name.data() + dash, name.data() + name.size(), step);
  return step;
}

}  // namespace

Saver::Saver(Trainer& trainer, fs::path out) : trainer_(trainer), out_(std::move(out)) {
  if (out_.empty()) return;
  // Later checkpoints are of steps that this run repeats, perhaps with other results.
  for (const fs::path& path : file::list_checkpoints(out_))
    if (step_of(path) <= trainer_.done()) good_.push_back(path);
}

void Saver::save() {
  trainer_.prove();
  saved_at_ = trainer_.done();
  if (out_.empty()) return;
  last_ = trainer_.save(out_);
  if (std::find(good_.begin(), good_.end(), last_) == good_.end()) good_.push_back(last_);
  is_new_ = true;
}

void Saver::confirm() {
  if (is_new_) {
    if (trainer_.writes()) file::keep_checkpoints(out_, trainer_.recipe().keep, last_, best());
    trainer_.meet();
    std::error_code error;
    std::erase_if(good_, [&](const fs::path& path) { return !fs::exists(path, error); });
  }
  is_new_ = false;
}

fs::path Saver::best() const {
  const RunState& state = trainer_.state();
  return state.best_step < 0 ? fs::path() : out_ / fmt::format("checkpoint-{}", state.best_step);
}

void Saver::link_best() const {
  if (out_.empty() || !trainer_.writes()) return;
  const fs::path part = out_ / fmt::format(".{}.{}.part", kBestName, ::getpid());
  std::error_code error;
  fs::remove(part, error);
  remember_temporary(part);
  fs::create_directory_symlink(last_.filename(), part, error);
  if (!error) fs::rename(part, out_ / kBestName, error);
  forget_temporary(part);
  if (error) throw user_error("cannot link '{}': {}", (out_ / kBestName).string(), error.message());
}

void Saver::restore_best() const {
  std::error_code error;
  if (!fs::exists(best(), error))
    throw Error(Exit::user, fmt::format("the best checkpoint {} is gone", best().string()),
                "without --load-best the last step's model is written");
  // Decisions since that checkpoint are kept, so that the next start decides alike.
  const RunState state = trainer_.state();
  trainer_.restore(file::load_checkpoint(best(), trainer_.outline().family->library().formats()), {.seed = true});
  trainer_.state() = state;
}

Error Saver::diverged(const Error& error) {
  std::string message = error.what();
  if (is_new_) {
    if (trainer_.writes()) file::discard_checkpoint(last_);
    message += fmt::format("; '{}', which leads to it, was removed", last_.string());
    std::erase(good_, last_);
  }
  is_new_ = false;
  if (const int64_t rollbacks = trainer_.state().rollbacks; rollbacks > 0)
    message += fmt::format("; the run has gone back {} time{} already", rollbacks, rollbacks == 1 ? "" : "s");
  if (good_.empty())
    return Error(error.code(), message, "nothing was saved; begin again with a lower --lr or a longer --warmup");
  return Error(error.code(), message,
               fmt::format("the last good checkpoint is {0}; go on with a lower rate: --resume {0} "
                           "--allow-changed-recipe --lr RATE",
                           good_.back().string()));
}

bool Saver::go_back(int64_t failed) {
  const RunState before = trainer_.state();
  if (failed < 0 || before.rollbacks >= trainer_.recipe().rollbacks) return false;
  const bool again = failed <= before.failed_at;
  while (!good_.empty() && (step_of(good_.back()) > failed || (again && is_new_ && good_.size() > 1))) {
    if (trainer_.writes()) file::discard_checkpoint(good_.back());
    good_.pop_back();
    is_new_ = false;
  }
  if (good_.empty()) return false;
  last_ = good_.back();
  const int64_t from = step_of(last_);
  const int64_t width = again ? std::min(2 * before.width, RunState::kWidest) : 1;
  trainer_.restore(file::load_checkpoint(last_, trainer_.outline().family->library().formats()), {.seed = true});
  RunState& state = trainer_.state();
  state.skipped = before.skipped;
  for (int64_t step = failed; step >= std::max(from, failed - width + 1); --step) state.skip(before.batch_of(step));
  state.rollbacks = before.rollbacks + 1;
  state.failed_at = failed;
  state.width = width;
  saved_at_ = from;
  // A run that is killed now restarts with the same decision.
  last_ = trainer_.save(out_);
  return true;
}

}  // namespace lumen::model::train
