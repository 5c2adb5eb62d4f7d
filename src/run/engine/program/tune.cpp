// See tune.h.
#include "run/engine/program/tune.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/log.h"

namespace lumen::run {
namespace {

constexpr const char* kKind = "plans";
constexpr int kLowestPriority = 19;

}  // namespace

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

Autotuner::Autotuner(Plan first, std::function<void()> ask, std::function<void(const Plan&)> decided, double worth)
    : worth_(worth), ask_(std::move(ask)), decided_(std::move(decided)) {
  plans_.emplace_back().plan = std::make_unique<Plan>(std::move(first));
}

const Autotuner::Plan& Autotuner::next() {
  if (state_ == State::asked && offered_.load(std::memory_order_acquire)) {
    for (Plan& plan : others_) plans_.emplace_back().plan = std::make_unique<Plan>(std::move(plan));
    others_.clear();
    for (Tried& tried : plans_) tried.seconds.reserve(kRounds);
    state_ = plans_.size() > 1 ? State::trying : State::done;
  }
  return *plans_[current_].plan;
}

void Autotuner::record(double seconds) {
  if (state_ == State::waiting) {
    taken_ += seconds;
    if (taken_ < worth_) return;
    state_ = State::asked;
    ask_();
    ask_ = nullptr;  // releases the graph that it holds
  } else if (state_ == State::trying) {
    plans_[current_].seconds.push_back(seconds);
    advance();
  }
}

void Autotuner::offer(std::vector<Plan> others) {
  others_ = std::move(others);
  offered_.store(true, std::memory_order_release);
}

// Plans are interleaved, so that other load on the machine affects all of them alike.
void Autotuner::advance() {
  for (size_t step = 1; step <= plans_.size(); ++step) {
    Tried& tried = plans_[(current_ + step) % plans_.size()];
    if (tried.dropped || tried.seconds.size() >= kRounds) continue;
    if (tried.seconds.size() == 2 && &tried != plans_.data()) {
      const std::vector<double>& first = plans_[0].seconds;
      tried.dropped = *std::min_element(tried.seconds.begin(), tried.seconds.end()) >
                      kHopeless * *std::min_element(first.begin(), first.end());
      if (tried.dropped) continue;
    }
    current_ = (current_ + step) % plans_.size();
    return;
  }
  decide();
}

void Autotuner::decide() {
  double least = kGain * median(plans_[0].seconds);
  for (size_t i = 1; i < plans_.size(); ++i) {
    if (plans_[i].dropped || median(plans_[i].seconds) >= least) continue;
    least = median(plans_[i].seconds);
    best_ = i;
  }
  current_ = best_;
  state_ = State::done;
  decided_(best());
  decided_ = nullptr;
}

Tuner::Tuner(std::shared_ptr<KernelCache> cache, int threads) : cache_(std::move(cache)), threads_(threads) {}

Tuner::~Tuner() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    jobs_.clear();
  }
  wake_.notify_all();
  thread_.join();
  for (const Decision& decision : unwritten_) write(decision);
}

std::string Tuner::key_of(const std::string& meaning) const {
  return cache_->key_of(fmt::format("plan for {} threads\n{}", threads_, meaning));
}

std::optional<ChosenPlan> Tuner::remembered(const std::string& key) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = chosen_.find(key); found != chosen_.end()) return found->second;
  }
  const std::string text = cache_->kept().read(kKind, key);
  ChosenPlan plan;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), plan.number);
  if (wrong != std::errc() || plan.number < 0) return std::nullopt;
  plan.hash = text.substr(end - text.data());
  if (plan.hash.size() < 2 || plan.hash.front() != ' ' || plan.hash.back() != '\n') return std::nullopt;
  plan.hash = plan.hash.substr(1, plan.hash.size() - 2);
  const std::scoped_lock lock(mutex_);
  return chosen_[key] = plan;
}

void Tuner::remember(const std::string& key, const ChosenPlan& plan) {
  {
    const std::scoped_lock lock(mutex_);
    chosen_[key] = plan;
  }
  write({key, plan});
}

void Tuner::remember_soon(const std::string& key, const ChosenPlan& plan) {
  {
    const std::scoped_lock lock(mutex_);
    chosen_[key] = plan;
    unwritten_.emplace_back(key, plan);
  }
  wake();
}

void Tuner::write(const Decision& decision) {
  const auto& [key, plan] = decision;
  cache_->kept().write(kKind, key, fmt::format("{} {}\n", plan.number, plan.hash));
}

void Tuner::later(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake();
}

void Tuner::wake() {
  {
    const std::scoped_lock lock(mutex_);
    if (!thread_.is_running()) thread_ = Thread::where_possible([this] { work(); });
    if (!thread_.is_running()) jobs_.clear();  // kernels keep their plans; decisions are written at the end
  }
  wake_.notify_one();
}

void Tuner::wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !thread_.is_running() || (jobs_.empty() && unwritten_.empty() && !busy_); });
}

void Tuner::work() {
  // This thread runs only when the machine is idle. Either call may fail harmlessly.
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_IDLE, &none);
  ::setpriority(PRIO_PROCESS, ::gettid(), kLowestPriority);
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !jobs_.empty() || !unwritten_.empty(); });
    if (stop_) return;
    std::function<void()> job;
    if (!unwritten_.empty()) {
      job = [this, decision = std::move(unwritten_.front())] { write(decision); };
      unwritten_.pop_front();
    } else {
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    busy_ = true;
    lock.unlock();
    try {
      job();
    } catch (const std::exception& error) {
      warn(fmt::format("tuning stopped for a kernel: {}", error.what()));
    }
    lock.lock();
    busy_ = false;
    idle_.notify_all();
  }
}

}  // namespace lumen::run
