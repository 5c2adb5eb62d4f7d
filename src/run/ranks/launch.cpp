#include "run/ranks/launch.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "run/ranks/shared_memory.h"

namespace lumen::run {
namespace {

constexpr int kMostHere = 256;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Read by the signal handler.
std::atomic<pid_t> children[kMostHere];
std::atomic<int> asked{0};

extern "C" void hand_on(int number) {
  const int error = errno;
  asked = number;
  // Ctrl-C reaches the ranks anyway: they are in the terminal's process group.
  for (const auto& child : children)
    if (number != SIGINT && child > 0) ::kill(child, number);
  errno = error;
}

class Watch {
 public:
  Watch() {
    asked = 0;
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction action{};
      action.sa_handler = hand_on;
      action.sa_flags = SA_RESTART;
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN || kSignals[i] == SIGINT) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~Watch() { restore(); }
  void restore() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  struct sigaction before_[std::size(kSignals)];
};

[[noreturn]] void be_rank(int r, int size, pid_t parent, std::shared_ptr<SharedMemory> memory,
                          const std::function<int(std::unique_ptr<Communicator>)>& rank) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // the parent has died: save and exit
  if (::getppid() != parent) ::raise(SIGTERM);
  int code = 0;
  {
    auto transport = join_shared_memory(std::move(memory), r);
    code = rank(std::make_unique<Communicator>(RankPlace{r, size, r, size}, std::move(transport)));
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

int run_ranks(int size, const std::function<int(std::unique_ptr<Communicator>)>& rank) {
  if (size < 1 || size > kMostHere) throw usage_error("--ranks must be 1 to {}, not {}", kMostHere, size);
  const auto memory = std::make_shared<SharedMemory>(size);
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  std::vector<pid_t> pids(size, -1);
  Watch watch;
  for (int r = 0; r < size; ++r) {
    pids[r] = ::fork();
    if (pids[r] == 0) {
      for (auto& child : children) child = 0;
      watch.restore();
      be_rank(r, size, parent, memory, rank);
    }
    if (pids[r] < 0) {
      memory->report_lost(r, std::strerror(errno));
      warn(fmt::format("rank {} could not be started: {}", r, std::strerror(errno)));
      break;
    }
    children[r] = pids[r];
  }
  int code = pids.back() < 0 ? 1 : 0;
  for (int left = size; left > 0;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) break;
    const auto found = std::find(pids.begin(), pids.end(), ended);
    if (found == pids.end()) continue;
    const int r = found - pids.begin();
    children[r] = 0;
    --left;
    const int own = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (WIFSIGNALED(status)) {
      const std::string why =
          fmt::format("signal {} ({}) has ended its process", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
      memory->report_lost(r, why);
      if (code == 0) warn(fmt::format("rank {}: {}", r, why));
    }
    // Code 1 can mean that other ranks were lost; the rank with the original error may have a more specific code, which
    // wins in any order of exits.
    if (code == 0 || (code == 1 && own > 1)) code = own;
  }
  return code;
}

}  // namespace lumen::run
