#include "run/device/outside/serial_thread.h"

#include <utility>

namespace lumen::run {

SerialThread::SerialThread() : thread_(Thread::where_possible([this] { work(); })) {}

SerialThread::~SerialThread() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

SerialThread::Ticket SerialThread::submit(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  jobs_.push_back(std::move(job));
  if (!thread_.is_running()) {  // no thread could be started: the submitter runs the job
    do_next(lock);
    return ++given_;
  }
  wake_.notify_one();
  return ++given_;
}

void SerialThread::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return finished_ >= ticket; });
  const auto failure = failures_.find(ticket);
  if (failure == failures_.end()) return;
  const std::exception_ptr thrown = failure->second;
  failures_.erase(failure);
  std::rethrow_exception(thrown);
}

void SerialThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    do_next(lock);
  }
}

void SerialThread::do_next(std::unique_lock<std::mutex>& lock) {
  const std::function<void()> job = std::move(jobs_.front());
  jobs_.pop_front();
  lock.unlock();
  std::exception_ptr failure;
  try {
    job();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  ++finished_;
  if (failure) failures_[finished_] = failure;
  done_.notify_all();
}

}  // namespace lumen::run
