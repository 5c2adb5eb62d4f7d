// Training one step at a time. The command `lumen train` runs in its own thread; its loop executes one request at a
// time and then waits for the next. So a run by steps begins and ends exactly as a run of the command does. A caller
// may stop waiting for an answer: its request is still completed before the next one starts.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "base/error.h"
#include "base/threads/threads.h"
#include "cli/run_app.h"
#include "cli/train/train.h"
#include "include/lumen.h"
#include "model/train/loop/loop.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

struct lumen_trainer {
  using Work = std::function<void(model::train::Trainer&, const model::train::LoopOptions&)>;

  explicit lumen_trainer(std::vector<std::string> words);
  ~lumen_trainer();
  lumen_trainer(const lumen_trainer&) = delete;
  lumen_trainer& operator=(const lumen_trainer&) = delete;

  void wait_until_ready(const api::Listener& listener);
  // Runs `work` in the trainer's thread and waits for it; an exception of `work` is rethrown here.
  void ask(Work work, const api::Listener& listener);
  // Lets the command leave its loop and waits until it has ended.
  nlohmann::ordered_json finish(const api::Listener& listener);

 private:
  model::train::LoopResult loop(model::train::Trainer& trainer, const model::train::LoopOptions& options);
  void run();
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, const api::Listener& listener, Condition is_met);
  void require_alive() const;

  std::vector<std::string> words_;
  std::string output_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Work work_;                  // requested or running
  std::exception_ptr thrown_;  // by the last finished work
  uint64_t asked_ = 0, done_ = 0;
  bool is_ready_ = false, finishes_ = false, gives_up_ = false, is_over_ = false, is_finished_ = false;
  std::exception_ptr end_;  // exception of the command
  model::train::LoopResult result_;
  Thread thread_;
};

namespace {

constexpr std::chrono::milliseconds kAskEvery{50};

}  // namespace

lumen_trainer::lumen_trainer(std::vector<std::string> words)
    : words_(std::move(words)), thread_("to train in", [this] { run(); }) {}

lumen_trainer::~lumen_trainer() {
  {
    const std::lock_guard lock(mutex_);
    gives_up_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void lumen_trainer::run() {
  cli::take_steps_by([this](model::train::Trainer& trainer, const model::train::LoopOptions& options) {
    return loop(trainer, options);
  });
  std::exception_ptr end;
  try {
    const int code = cli::run_in_process(words_, &output_);
    if (code != LUMEN_OK) throw Error(Exit(code), "the run has ended");
  } catch (...) {
    end = std::current_exception();
  }
  cli::take_steps_by({});
  const std::lock_guard lock(mutex_);
  end_ = end;
  is_over_ = true;
  changed_.notify_all();
}

model::train::LoopResult lumen_trainer::loop(model::train::Trainer& trainer, const model::train::LoopOptions& options) {
  trainer.require_data();
  trainer.remember_reference(nullptr);
  (void)trainer.prove();
  std::unique_lock lock(mutex_);
  is_ready_ = true;
  changed_.notify_all();
  for (;;) {
    changed_.wait(lock, [&] { return gives_up_ || finishes_ || asked_ > done_; });
    if (gives_up_) throw Error(Exit::interrupted, "the trainer was closed");
    if (asked_ == done_) break;
    const Work work = work_;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      work(trainer, options);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    thrown_ = thrown;
    ++done_;
    changed_.notify_all();
  }
  lock.unlock();
  model::train::LoopResult result;
  result.checkpoint = trainer.save(options.out);
  result.validation_loss = trainer.evaluate();
  lock.lock();
  result_ = result;
  return result;
}

template <typename Condition>
void lumen_trainer::wait(std::unique_lock<std::mutex>& lock, const api::Listener& listener, Condition is_met) {
  while (!changed_.wait_for(lock, kAskEvery, is_met)) {
    lock.unlock();
    listener.ask();
    lock.lock();
  }
}

void lumen_trainer::require_alive() const {
  if (!is_over_) return;
  if (end_) std::rethrow_exception(end_);
  throw usage_error("the training has ended: its results are written");
}

void lumen_trainer::wait_until_ready(const api::Listener& listener) {
  std::unique_lock lock(mutex_);
  wait(lock, listener, [&] { return is_ready_ || is_over_; });
  if (is_over_ && !end_) throw Error(Exit::usage, "these arguments train nothing", output_);
  require_alive();
}

void lumen_trainer::ask(Work work, const api::Listener& listener) {
  std::unique_lock lock(mutex_);
  wait(lock, listener, [&] { return is_over_ || (is_ready_ && asked_ == done_); });
  require_alive();
  if (finishes_) throw usage_error("the training is being finished");
  work_ = std::move(work);
  const uint64_t mine = ++asked_;
  changed_.notify_all();
  wait(lock, listener, [&] { return is_over_ || done_ >= mine; });
  if (done_ < mine) require_alive();
  if (done_ == mine && thrown_) std::rethrow_exception(thrown_);
}

nlohmann::ordered_json lumen_trainer::finish(const api::Listener& listener) {
  std::unique_lock lock(mutex_);
  wait(lock, listener, [&] { return is_over_ || (is_ready_ && asked_ == done_); });
  if (is_finished_ || (is_over_ && end_)) require_alive();
  finishes_ = true;
  changed_.notify_all();
  wait(lock, listener, [&] { return is_over_; });
  if (end_) std::rethrow_exception(end_);
  is_finished_ = true;
  return {
      {"output", output_}, {"checkpoint", result_.checkpoint.string()}, {"validation_loss", result_.validation_loss}};
}

extern "C" {

int lumen_trainer_open(int count, const char* const* arguments, lumen_on_text on_text, void* context,
                       lumen_trainer** trainer) {
  return api::guarded([&] {
    api::require(trainer, "trainer");
    if (count < 0) throw usage_error("{} arguments", count);
    if (count > 0) api::require(arguments, "arguments");
    std::vector<std::string> words = {"train"};
    for (int i = 0; i < count; ++i) {
      api::require(arguments[i], "an argument");
      words.emplace_back(arguments[i]);
    }
    auto made = std::make_unique<lumen_trainer>(std::move(words));
    made->wait_until_ready({on_text, context});
    *trainer = made.release();
  });
}

int lumen_trainer_step(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** json) {
  return api::guarded([&] {
    api::require(trainer, "trainer");
    api::require(json, "json");
    const auto out = std::make_shared<nlohmann::ordered_json>();
    trainer->ask(
        [out](model::train::Trainer& t, const model::train::LoopOptions&) {
          const model::train::Trainer::Step step = t.step();
          *out = {{"step", t.done()},
                  {"loss", step.loss},
                  {"norm", step.norm},
                  {"rate", step.rate},
                  {"tokens", step.tokens},
                  {"seconds", step.seconds},
                  {"steps", t.recipe().schedule.steps}};
          (*out)["metrics"] = nlohmann::ordered_json::object();
          for (const auto& [name, value] : step.metrics) (*out)["metrics"][name] = value;
        },
        {on_text, context});
    *json = api::handed_over(out->dump());
  });
}

int lumen_trainer_evaluate(lumen_trainer* trainer, int64_t rows, lumen_on_text on_text, void* context, double* loss) {
  return api::guarded([&] {
    api::require(trainer, "trainer");
    api::require(loss, "loss");
    if (rows < 0) throw usage_error("{} rows", rows);
    const auto out = std::make_shared<double>(0);
    trainer->ask([out, rows](model::train::Trainer& t, const model::train::LoopOptions&) { *out = t.evaluate(rows); },
                 {on_text, context});
    *loss = *out;
  });
}

int lumen_trainer_save(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** path) {
  return api::guarded([&] {
    api::require(trainer, "trainer");
    api::require(path, "path");
    const auto out = std::make_shared<std::string>();
    trainer->ask([out](model::train::Trainer& t,
                       const model::train::LoopOptions& options) { *out = t.save(options.out).string(); },
                 {on_text, context});
    *path = api::handed_over(*out);
  });
}

int lumen_trainer_finish(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** json) {
  return api::guarded([&] {
    api::require(trainer, "trainer");
    api::require(json, "json");
    *json = api::handed_over(
        trainer->finish({on_text, context}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  });
}

void lumen_trainer_close(lumen_trainer* trainer) {
  delete trainer;
}

}  // extern "C"
