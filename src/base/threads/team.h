// Threads that share the pieces of many short jobs, and loops over numbers that they share. Whoever is awake takes the
// next piece; a job never waits for a thread that has not taken one, so a busy machine costs little, and a thread that
// the system did not give is only missed. Idle threads spin for some microseconds, then sleep. Proved by
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
  // What is left of a job. Each piece is taken once.
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
  // Takes pieces until none is left. Throws nothing.
  using Work = void (*)(void* context, Pieces& pieces);

  explicit Team(int count);  // the caller of run() is one of them; fewer where the system gives fewer
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int count() const { return members_.size() + 1; }
  // Lets all who are free work on `pieces` pieces, and returns when all are done. One job at a time: a second caller,
  // or a piece of a job that comes back here, works alone.
  void run(int64_t pieces, Work work, void* context);

 private:
  void live();  // of a member

  std::vector<Thread> members_;
  std::atomic_flag busy_;

  // The open job. Written only while nobody is active.
  Work work_ = nullptr;
  void* context_ = nullptr;
  Pieces pieces_;

  alignas(64) std::atomic<int> call_ = 0;    // rises with every job; members sleep on it
  alignas(64) std::atomic<int> active_ = 0;  // members inside the job
  std::atomic<bool> open_ = false, stop_ = false;
};

// The team of all loops, with a thread for every core.
Team& loop_team();

// From now on loops of this process have at most so many threads; 0: no limit. For --threads, and for tests that bits
// do not depend on it.
void limit_loop_threads(int most);
int most_loop_threads();  // INT_MAX without a limit

// How a loop is shared. Bits must not depend on it: each number's work writes what is its own.
struct Sharing {
  int64_t grain = 0;     // numbers in a piece; 0: even shares, for work that takes equally long everywhere
  bool is_worth = true;  // false: the caller does all
  int most = INT_MAX;    // threads
};

// body(i) for begin <= i < end, or body(i, thread) with numbers of threads from 0 on, below Sharing::most. A failure is
// thrown on: that of the lowest number; pieces behind it are done all the same.
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
  constexpr int64_t kPiecesEach = 4;  // enough to even out threads of unequal speed
  struct Loop {
    const decltype(call)& body;
    int64_t begin, count, pieces;
    int most;
    std::atomic<int> threads = 0;  // that have come
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
