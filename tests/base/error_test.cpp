// needs: none. Errors: while a signal ends the process none is reported, since its cause may be that end.
#include "base/error.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace lumen {
namespace {

constexpr useconds_t kLongEnough = 200'000;
constexpr int kMade = 3, kWaited = 9;

// Whether a thread of a process that may be ending makes an Error: in a process of its own.
int status_of_a_process(bool is_ending) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (is_ending) begin_ending();
    std::atomic<bool> is_made{false};
    std::thread other([&] {
      const Error error = user_error("a file is gone");
      is_made = true;
    });
    other.detach();
    ::usleep(kLongEnough);
    ::_exit(is_made ? kMade : kWaited);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Error, NoneIsMadeWhileASignalEndsTheProcess) {
  EXPECT_EQ(status_of_a_process(false), kMade);
  EXPECT_EQ(status_of_a_process(true), kWaited);
}

}  // namespace
}  // namespace lumen
