// A thread pool that shares the tasks of many short jobs, and parallel loops on top of it. Any awake thread takes the
// next task; a job never waits for a thread that has not taken one, so a busy machine costs little, and a thread that
// the system could not start only reduces speed. Idle threads spin for some microseconds, then sleep. Proved by
// tests/base/threads/threads_test.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <exception>
#include <mutex>
#include <type_traits>
#include <vector>

#include "base/threads/threads.h"

namespace lumen {

class Team {
 public:
  // The remaining tasks of a job. Each is taken once.
  class Pieces {
   public:
    int64_t take() {  // -1: none is left
      const int64_t piece = next_.fetch_add(1, std::memory_order_relaxed);
      return piece < count_ ? piece : -1;
    }
    int64_t count() const { return count_; }

   private:
    friend class Team;
    alignas(64) std::atomic<int64_t> next_ = 0;
    int64_t count_ = 0;
  };
  // Takes tasks until none is left. Must not throw.
  using Work = void (*)(void* context, Pieces& pieces);

  explicit Team(int count);  // includes the caller of run(); fewer if the system starts fewer
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int count() const { return members_.size() + 1; }
  // Distributes `pieces` tasks over all idle members, and returns when all are done. One job at a time: a second
  // caller, or a task that calls run() again, works alone.
  void run(int64_t pieces, Work work, void* context);

 private:
  void live();  // main loop of a member

  std::vector<Thread> members_;
  std::atomic_flag busy_;

  // The open job. Written only while no member is active.
  Work work_ = nullptr;
  void* context_ = nullptr;
  Pieces pieces_;

  alignas(64) std::atomic<int> call_ = 0;    // incremented for every job; members sleep on it
  alignas(64) std::atomic<int> active_ = 0;  // members inside the job
  std::atomic<bool> open_ = false, stop_ = false;
};

// The team for all loops, with a thread for each core.
Team& loop_team();

// Limits the threads of all later loops of this process; 0: no limit. For --threads, and for tests that results do not
// depend on the thread count.
void limit_loop_threads(int most);
int most_loop_threads();  // INT_MAX without a limit

// Scheduling of a loop. Results must not depend on it: each iteration writes only its own data.
struct Sharing {
  int64_t grain = 0;     // iterations per task; 0: equal shares, for iterations of equal cost
  bool is_worth = true;  // false: the caller runs all iterations
  int most = INT_MAX;    // threads
};

// body(i) for begin <= i < end, or body(i, thread) with thread numbers from 0 on, below Sharing::most. An exception is
// rethrown, that of the lowest task; later tasks still run.
template <typename Body>
void parallel_for(int64_t begin, int64_t end, Sharing sharing, const Body& body) {
  const auto call = [&body](int64_t i, [[maybe_unused]] int thread) {
    if constexpr (std::is_invocable_v<const Body&, int64_t, int>)
      body(i, thread);
    else
      body(i);
  };
  const int64_t count = end - begin;
  if (count <= 0) return;
  const int most = std::min(sharing.most, most_loop_threads());
  Team* const team = sharing.is_worth && most > 1 && count > 1 ? &loop_team() : nullptr;
  if (!team || team->count() == 1) {
    for (int64_t i = begin; i < end; ++i) call(i, 0);
    return;
  }
  constexpr int64_t kPiecesEach = 4;  // enough to balance threads of unequal speed
  struct Loop {
    const decltype(call)& body;
    int64_t begin, count, pieces;
    int most;
    std::atomic<int> threads = 0;  // that have joined
    std::mutex mutex = {};
    std::exception_ptr failure = nullptr;
    int64_t failed = 0;  // piece

    int64_t cut(int64_t piece) const { return begin + count / pieces * piece + std::min(piece, count % pieces); }
    static void work(void* context, Team::Pieces& left) {
      auto& self = *static_cast<Loop*>(context);
      const int thread = self.threads++;
      if (thread >= self.most) return;
      for (int64_t piece = left.take(); piece >= 0; piece = left.take()) {
        try {
          const int64_t last = self.cut(piece + 1);
          for (int64_t i = self.cut(piece); i < last; ++i) self.body(i, thread);
        } catch (...) {
          const std::lock_guard lock(self.mutex);
          if (self.failure && self.failed < piece) continue;
          self.failure = std::current_exception();
          self.failed = piece;
        }
      }
    }
  };
  const int64_t pieces =
      sharing.grain > 0 ? (count + sharing.grain - 1) / sharing.grain : std::min(count, kPiecesEach * team->count());
  Loop loop{call, begin, count, pieces, most};
  team->run(pieces, &Loop::work, &loop);
  if (loop.failure) std::rethrow_exception(loop.failure);
}
template <typename Body>
void parallel_for(int64_t begin, int64_t end, const Body& body) {
  parallel_for(begin, end, Sharing{}, body);
}

}  // namespace lumen
