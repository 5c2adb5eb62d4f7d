// The autotuner: kernels with several plans try them during the first real launches, and the fastest is stored for the
// machine. All plans of a kernel give the same bits (synth::Synthesis::candidates), so trying changes no result; other
// plans are compiled by a thread of the lowest priority, and only for kernels that have taken enough time. Launches of
// asynchronous devices are timed by events between them, in runs that are not replayed (execute.cpp). Proved by
// tests/run/engine/tune_test.cpp.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/threads/threads.h"
#include "run/engine/cache/cache.h"

namespace lumen::run {

// A plan by its position among the candidates, and the hash of its kernels' text, because a number may refer to another
// plan after an update. 0 is the cost model's current plan.
struct ChosenPlan {
  int number = 0;
  std::string hash;
};

double median(std::vector<double> x);  // of at least one number

// One kernel of one program with several plans. next() and record() belong to the thread that runs the program, offer()
// to any other thread.
class Autotuner {
 public:
  struct Plan {
    void* kernel = nullptr;  // the device's loaded kernel
    LaunchConfig launch_config;
    std::string plan;
    ChosenPlan chosen;
  };
  // `ask` is called once, when the kernel has taken `worth` seconds in all; `decided` is called with the winner.
  Autotuner(Plan first, std::function<void()> ask, std::function<void(const Plan&)> decided,
            double worth = kWorthSeconds);

  const Plan& next();                                             // the plan for the next launches, until record()
  const Plan& current() const { return *plans_[current_].plan; }  // the plan returned by next()
  void record(double seconds);                                    // time of that launch
  bool tries() const { return state_ == State::trying; }          // launches must be timed
  bool done() const { return state_ == State::done; }
  const Plan& best() const { return *plans_[best_].plan; }

  void offer(std::vector<Plan> others);  // from the tuner's thread; empty: there are no other plans

  static constexpr double kWorthSeconds = 0.2;  // total time before other plans are requested
  // The same on devices whose kernels do not use CPU time, so that compiling does not slow them: about fifty tokens of
  // an 8-billion-parameter model.
  static constexpr double kWorthApart = 0.04;
  static constexpr int kRounds = 5;          // launches of every plan
  static constexpr double kHopeless = 1.25;  // plans this much slower than the first after two rounds are dropped
  static constexpr double kGain = 0.97;      // of the first plan's time: a smaller gain is ignored

 private:
  enum class State : uint8_t { waiting, asked, trying, done };
  struct Tried {
    std::unique_ptr<Plan> plan;
    std::vector<double> seconds;
    bool dropped = false;
  };
  void advance();
  void decide();

  State state_ = State::waiting;
  double worth_, taken_ = 0;
  std::vector<Tried> plans_;
  size_t current_ = 0, best_ = 0;
  std::function<void()> ask_;
  std::function<void(const Plan&)> decided_;
  std::atomic<bool> offered_ = false;
  std::vector<Plan> others_;  // until offered_ is read
};

class Tuner {
 public:
  // Choices are stored where the cache keeps its kernels.
  Tuner(std::shared_ptr<KernelCache> cache, int threads);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  std::string key_of(const std::string& meaning) const;  // for a kernel on this machine with this many threads
  std::optional<ChosenPlan> remembered(const std::string& key);
  void remember(const std::string& key, const ChosenPlan& plan);
  // .. available at once, but written in the background, before any job, or at destruction.
  void remember_soon(const std::string& key, const ChosenPlan& plan);

  // Runs `job` in the background, after earlier ones. Dropped if the tuner is destroyed first.
  void later(std::function<void()> job);
  void wait();  // until all jobs are done, for tests

 private:
  using Decision = std::pair<std::string, ChosenPlan>;  // a key and its plan
  void work();
  void wake();
  void write(const Decision& decision);

  std::shared_ptr<KernelCache> cache_;
  int threads_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::function<void()>> jobs_;
  std::deque<Decision> unwritten_;
  bool busy_ = false, stop_ = false;
  std::unordered_map<std::string, ChosenPlan> chosen_;
  Thread thread_;  // started by the first job
};

}  // namespace lumen::run
