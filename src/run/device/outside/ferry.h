// A thread that does jobs in the order in which they are given. What one throws is thrown to who waits for it. Proved
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

class Ferry {
 public:
  Ferry();
  ~Ferry();  // what is begun is done first; the rest never
  Ferry(const Ferry&) = delete;
  Ferry& operator=(const Ferry&) = delete;

  using Ticket = int64_t;
  Ticket give(std::function<void()> job);
  void wait(Ticket ticket);  // once for each

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
