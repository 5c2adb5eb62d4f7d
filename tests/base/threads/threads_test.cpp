// needs: none. Threads are refused by a pthread_create of this file, which stands before the library's in this program.
#include "base/threads/threads.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/threads/team.h"

namespace {

std::atomic<int> threads_left{1 << 30};  // that the system still gives

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*),
                              void* context) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.fetch_sub(1) <= 0) return EAGAIN;
  return create(thread, attributes, work, context);
}

namespace lumen {
namespace {

// While it lives the system gives so many threads and no more.
class Limit {
 public:
  explicit Limit(int threads) { threads_left = threads; }
  ~Limit() { threads_left = 1 << 30; }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
};

TEST(Threads, WhatCannotBeDoneWithoutOneIsAnError) {
  const Limit none(0);
  try {
    const Thread thread("for the test", [] {});
    FAIL() << "a thread where there is none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::hardware);
    EXPECT_NE(std::string(error.what()).find("no thread for the test"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("ulimit -u"), std::string::npos) << error.hint();
  }
  EXPECT_FALSE(start_detached([] {}));
  EXPECT_FALSE(Thread::where_possible([] {}).is_running());
}

TEST(Threads, AreWaitedFor) {
  std::atomic<int> done{0};
  {
    Thread one("for the test", [&] { ++done; });
    Thread other;
    other = Thread::where_possible([&] { ++done; });
    one = std::move(other);  // the first has ended by then
    EXPECT_GE(done, 1);
  }
  EXPECT_EQ(done, 2);
}

TEST(Threads, WorkTogetherGoesOnWithFewer) {
  for (const int given : {0, 1, 2, 100}) {
    const Limit limit(given);
    std::atomic<int> next{0}, sum{0};
    std::mutex mutex;
    std::set<int> numbers;
    work_together(4, [&](int number) {
      {
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(numbers.insert(number).second) << "two threads with one number";
      }
      for (int i = next++; i < 1000; i = next++) sum += i;
    });
    EXPECT_EQ(sum, 499500);
    EXPECT_EQ(numbers.size(), std::min(given, 3) + 1U);
    EXPECT_TRUE(numbers.contains(0));
  }
}

TEST(Threads, WorkTogetherThrowsWhatFails) {
  for (const int given : {0, 3}) {
    const Limit limit(given);
    std::atomic<int> came{0};
    EXPECT_THROW(work_together(4,
                               [&](int) {
                                 ++came;
                                 throw user_error("no");
                               }),
                 Error);
    EXPECT_EQ(came, given + 1);
  }
}

// Each piece once, at any number of threads, and with as many callers as there may be.
TEST(Threads, ATeamWithFewerDoesAll) {
  struct Job {
    std::vector<std::atomic<int>> seen = std::vector<std::atomic<int>>(1000);
    static void work(void* context, Team::Pieces& pieces) {
      for (int64_t i = pieces.take(); i >= 0; i = pieces.take()) ++static_cast<Job*>(context)->seen[i];
    }
  };
  for (const int given : {0, 1, 3}) {
    const Limit limit(given);
    Team team(4);
    EXPECT_EQ(team.count(), given + 1);
    for (int round = 0; round < 50; ++round) {
      Job job;
      team.run(1000, &Job::work, &job);
      for (const std::atomic<int>& seen : job.seen) ASSERT_EQ(seen, 1);
    }
  }
  Team team(3);
  work_together(3, [&](int) {
    for (int round = 0; round < 50; ++round) {
      Job job;
      team.run(1000, &Job::work, &job);
      for (const std::atomic<int>& seen : job.seen) ASSERT_EQ(seen, 1);
    }
  });
}

TEST(Threads, LoopsDoEachNumberOnce) {
  for (const Sharing sharing : {Sharing{}, Sharing{.grain = 1}, Sharing{.grain = 7}, Sharing{.is_worth = false},
                                Sharing{.grain = 1, .most = 2}}) {
    for (const int64_t count : {0, 1, 2, 63, 1000}) {
      std::vector<int> seen(count + 10);
      parallel_for(5, 5 + count, sharing, [&](int64_t i) { ++seen[i]; });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), count);
      for (int64_t i = 5; i < 5 + count; ++i) ASSERT_EQ(seen[i], 1);
    }
  }
}

TEST(Threads, LoopsNumberTheirThreads) {
  for (const int most : {1, 2, 100}) {
    std::atomic<int> highest{0};
    std::vector<std::atomic<int>> inside(100);
    parallel_for(0, 2000, {.grain = 1, .most = most}, [&](int64_t, int thread) {
      EXPECT_EQ(inside[thread]++, 0) << "two threads with one number";
      int seen = highest;
      while (thread > seen && !highest.compare_exchange_weak(seen, thread)) continue;
      --inside[thread];
    });
    EXPECT_LT(highest, most);
  }
}

TEST(Threads, LoopsKeepToTheLimitOfTheProcess) {
  const auto threads_of_a_loop = [] {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    parallel_for(0, 64, {.grain = 1}, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    return seen.size();
  };
  limit_loop_threads(1);
  EXPECT_EQ(threads_of_a_loop(), 1U);
  limit_loop_threads(2);
  EXPECT_LE(threads_of_a_loop(), 2U);
  limit_loop_threads(0);
  EXPECT_EQ(most_loop_threads(), INT_MAX);
}

TEST(Threads, LoopsWithinLoopsAndBesideEachOther) {
  std::vector<std::atomic<int>> seen(100 * 100);
  parallel_for(0, 100, {.grain = 1}, [&](int64_t i) { parallel_for(0, 100, [&](int64_t j) { ++seen[i * 100 + j]; }); });
  work_together(3, [&](int) { parallel_for(0, 10000, [&](int64_t i) { ++seen[i]; }); });
  for (const std::atomic<int>& one : seen) ASSERT_EQ(one, 4);
}

TEST(Threads, LoopsThrowTheFailureOfTheLowestNumber) {
  for (const int64_t grain : {0, 1}) {
    std::atomic<int> done{0};
    try {
      parallel_for(0, 1000, {.grain = grain}, [&](int64_t i) {
        if (i % 100 == 37) throw user_error("at {}", i);
        ++done;
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "at 37");
    }
  }
}

}  // namespace
}  // namespace lumen
