// Needs: cpu. Processes that are started, watched, and killed: the others know within seconds, and the code is told.
#include "run/ranks/launch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

namespace lumen::run {
namespace {

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Launch, AllRanksSumTogether) {
  EXPECT_EQ(run_ranks(4,
                      [](std::unique_ptr<Communicator> own) {
                        std::vector<double> n = {1.0 + own->rank()};
                        own->all_reduce(n);
                        return n[0] == 10 && own->local_size() == 4 ? 0 : 7;
                      }),
            0);
}

TEST(Launch, TheFirstCodeThatIsNotZeroIsTheRuns) {
  EXPECT_EQ(run_ranks(2, [](std::unique_ptr<Communicator> own) { return own->rank() == 1 ? 5 : 0; }), 5);
  EXPECT_THROW(run_ranks(0, [](std::unique_ptr<Communicator>) { return 0; }), Error);
}

TEST(Launch, AKilledRankEndsAllWithinSeconds) {
  for (int killed = 0; killed < 3; ++killed) {
    int code = 0;
    const double seconds = seconds_of([&] {
      code = run_ranks(3, [&](std::unique_ptr<Communicator> own) {
        try {
          for (int i = 0;; ++i) {
            if (i == 50 && own->rank() == killed) ::kill(::getpid(), SIGKILL);
            own->barrier();
          }
        } catch (const RankLost& lost) {
          return lost.rank() == killed ? 3 : 9;
        }
        return 0;
      });
    });
    EXPECT_TRUE(code == 1 || code == 3) << code;
    EXPECT_LT(seconds, 5);
  }
}

// Whoever does not look at its process, as with ranks that somebody else has started, knows it by the kernel.
TEST(Launch, ADeadProcessIsKnownByItsMutex) {
  const int code = run_ranks(2, [](std::unique_ptr<Communicator> own) {
    own->barrier();
    if (own->rank() == 1) ::_exit(0);  // without a word
    try {
      own->barrier();
    } catch (const RankLost& lost) {
      return std::string(lost.what()).find("has died") != std::string::npos ? 0 : 8;
    }
    return 9;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace lumen::run
