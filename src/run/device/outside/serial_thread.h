// A thread that runs jobs in the order of submit(). An exception of a job is rethrown by wait(). Proved
// by tests/run/device/outside_test.cpp.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>

#include "base/threads/threads.h"

namespace lumen::run {

class SerialThread {
 public:
  SerialThread();
  ~SerialThread();  // finishes the running job and drops the others
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;

  using Ticket = int64_t;
  Ticket submit(std::function<void()> job);
  void wait(Ticket ticket);  // call once per ticket

 private:
  void work();
  void do_next(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<std::function<void()>> jobs_;
  Ticket given_ = 0, finished_ = 0;
  std::map<Ticket, std::exception_ptr> failures_;
  bool stop_ = false;
  Thread thread_;
};

}  // namespace lumen::run
