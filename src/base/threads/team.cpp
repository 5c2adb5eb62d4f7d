// See team.h. Joining and closing a job is a handshake: a member first counts itself active, then checks whether the
// job is open; the caller first closes it, then waits for the active members. In one total order (seq_cst) either the
// member sees that the job is closed or the caller sees the member.
#include "base/threads/team.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lumen {
namespace {

constexpr auto kSpin = std::chrono::microseconds(60);

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `x` differs from `old`: a short spin, then sleep.
void await_change(std::atomic<int>& x, int old) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (x.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  x.wait(old);
}

}  // namespace

Team::Team(int count) {
  members_.reserve(std::max(0, count - 1));
  for (int i = 1; i < count; ++i) {
    Thread member = Thread::where_possible([this] { live(); });
    if (!member.is_running()) break;
    members_.push_back(std::move(member));
  }
}

Team::~Team() {
  stop_ = true;
  call_.fetch_add(1);
  call_.notify_all();
  members_.clear();  // joins them
}

void Team::live() {
  int seen = 0;
  for (;;) {
    await_change(call_, seen);
    seen = call_.load();
    if (stop_) return;
    active_.fetch_add(1);
    if (open_.load()) work_(context_, pieces_);
    if (active_.fetch_sub(1) == 1) active_.notify_all();
  }
}

void Team::run(int64_t pieces, Work work, void* context) {
  if (pieces <= 1 || members_.empty() || busy_.test_and_set(std::memory_order_acquire)) {
    Pieces all;
    all.count_ = pieces;
    work(context, all);
    return;
  }
  work_ = work;
  context_ = context;
  pieces_.count_ = pieces;
  pieces_.next_.store(0);
  open_.store(true);
  call_.fetch_add(1);
  call_.notify_all();
  work(context, pieces_);
  open_.store(false);
  for (int active = active_.load(); active != 0; active = active_.load()) await_change(active_, active);
  busy_.clear(std::memory_order_release);
}

namespace {

std::atomic<int> loop_threads = INT_MAX;

}  // namespace

void limit_loop_threads(int most) {
  loop_threads = most > 0 ? most : INT_MAX;
}

int most_loop_threads() {
  return loop_threads.load(std::memory_order_relaxed);
}

Team& loop_team() {
  // Never destroyed: members may be asleep in it when the process ends.
  static auto& team = *new Team(usable_cores());
  return team;
}

}  // namespace lumen
