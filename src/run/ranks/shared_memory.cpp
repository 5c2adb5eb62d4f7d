#include "run/ranks/shared_memory.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <vector>

#include "base/check.h"

namespace lumen::run {
namespace {

constexpr int64_t kAllBoxes = int64_t{64} << 20;  // bytes reserved; only used pages are allocated
constexpr int64_t kLeastBox = 16 << 10, kMostBox = 2 << 20;
constexpr long kLookNanoseconds = 100'000'000;  // interval of a waiting rank's liveness checks

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

struct alignas(64) RankState {
  pthread_mutex_t alive;  // held by the rank's process
  Word joined, left, bell;
};

struct alignas(64) Channel {
  Word put, taken;    // number of boxes so far
  int64_t in_all[2];  // size of the box's exchange, to check that both ranks agree
  int64_t box_bytes[2];
};

struct Head {
  Word lost;  // 0: no rank, 1: being written, 2: complete
  int32_t lost_rank;
  bool has_told;
  char why[kLongestReason + 1];
};

int64_t box_size(int ranks) {
  const int64_t pairs = int64_t{2} * ranks * ranks;
  return std::clamp(kAllBoxes / pairs / 4096 * 4096, kLeastBox, kMostBox);
}

// Offsets of the objects in the shared memory.
struct Map {
  std::byte* at;
  int ranks;
  Head& head() const { return *reinterpret_cast<Head*>(at); }
  static int64_t states_at() { return (sizeof(Head) + 63) / 64 * 64; }
  static int64_t channels_at(int n) { return states_at() + n * int64_t{sizeof(RankState)}; }
  static int64_t boxes_at(int n) {
    return (channels_at(n) + int64_t{n} * n * int64_t{sizeof(Channel)} + 4095) / 4096 * 4096;
  }
  static int64_t bytes(int n) { return boxes_at(n) + int64_t{2} * n * n * box_size(n); }
  RankState& state_of(int r) const { return reinterpret_cast<RankState*>(at + states_at())[r]; }
  Channel& channel(int from, int to) const {
    return reinterpret_cast<Channel*>(at + channels_at(ranks))[from * ranks + to];
  }
  std::byte* box(int from, int to, uint32_t number) const {
    return at + boxes_at(ranks) + (int64_t{2} * (from * ranks + to) + number % 2) * box_size(ranks);
  }
};

void wait_for(Word& word, uint32_t seen) {
  const timespec limit{0, kLookNanoseconds};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void ring(Word& word) {
  word.fetch_add(1);
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void say_lost(const Map& map, int rank, const std::string& why, bool has_told = false) noexcept {
  uint32_t nobody = 0;
  if (!map.head().lost.compare_exchange_strong(nobody, 1)) return;
  map.head().lost_rank = rank;
  map.head().has_told = has_told;
  const size_t length = std::min<size_t>(why.size(), kLongestReason);
  std::memcpy(map.head().why, why.data(), length);
  map.head().why[length] = 0;
  map.head().lost = 2;
  for (int r = 0; r < map.ranks; ++r) ring(map.state_of(r).bell);
}

class SharedMemoryTransport : public Transport {
 public:
  SharedMemoryTransport(std::shared_ptr<SharedMemory> memory, int rank)
      : memory_(std::move(memory)),
        map_{reinterpret_cast<std::byte*>(memory_->memory()), memory_->size()},
        rank_(rank) {
    LUMEN_CHECK(rank >= 0 && rank < map_.ranks);
    LUMEN_CHECK(pthread_mutex_lock(&map_.state_of(rank).alive) == 0, "two processes are rank {}", rank);
    map_.state_of(rank).joined = 1;
  }
  ~SharedMemoryTransport() override {
    map_.state_of(rank_).left = 1;
    pthread_mutex_unlock(&map_.state_of(rank_).alive);
    for (int r = 0; r < map_.ranks; ++r) ring(map_.state_of(r).bell);
  }

  std::string describe() const override { return "shared memory"; }

  void abort(const std::string& why) noexcept override { say_lost(map_, rank_, why, true); }

  void check() override {
    for (int r = 0; r < map_.ranks; ++r) require(r);
  }

  void exchange(const SentPieces& to, const TakenPieces& from) override {
    std::vector<PieceWalk<SentPiece>> sent;
    std::vector<PieceWalk<TakenPiece>> taken;
    std::vector<int64_t> out, in;
    for (int r = 0; r < map_.ranks; ++r) {
      out.push_back(sent.emplace_back(to[r]).left());
      in.push_back(taken.emplace_back(from[r]).left());
    }
    Word& bell = map_.state_of(rank_).bell;
    while (true) {
      const uint32_t heard = bell;
      bool moved = false, done = true;
      for (int step = 1; step < map_.ranks; ++step) {
        const int r = (rank_ + step) % map_.ranks;
        while (sent[r].left() > 0 && put(r, sent[r], out[r])) moved = true;
        while (taken[r].left() > 0 && take(r, taken[r], in[r])) moved = true;
        done = done && sent[r].left() == 0 && taken[r].left() == 0;
      }
      if (done) return;
      if (moved) continue;
      throw_if_told();
      wait_for(bell, heard);
      if (bell == heard)
        for (int r = 0; r < map_.ranks; ++r)
          if (sent[r].left() > 0 || taken[r].left() > 0) require(r, sent[r].left() > 0, taken[r].left() > 0);
    }
  }

 private:
  bool put(int to, PieceWalk<SentPiece>& walk, int64_t in_all) {
    Channel& c = map_.channel(rank_, to);
    const uint32_t number = c.put;
    if (number - c.taken >= 2) return false;
    std::byte* box = map_.box(rank_, to, number);
    int64_t filled = 0;
    while (filled < box_size(map_.ranks) && walk.left() > 0) {
      const SentPiece next = walk.next();
      const int64_t step = std::min(next.bytes, box_size(map_.ranks) - filled);
      std::memcpy(box + filled, next.data, step);
      walk.advance(step);
      filled += step;
    }
    c.in_all[number % 2] = in_all;
    c.box_bytes[number % 2] = filled;
    c.put = number + 1;
    ring(map_.state_of(to).bell);
    return true;
  }

  bool take(int from, PieceWalk<TakenPiece>& walk, int64_t in_all) {
    Channel& c = map_.channel(from, rank_);
    const uint32_t number = c.taken;
    if (c.put == number) return false;
    LUMEN_CHECK(c.in_all[number % 2] == in_all && c.box_bytes[number % 2] <= walk.left(),
                "rank {} sends {} bytes, rank {} takes {}", from, c.in_all[number % 2], rank_, in_all);
    const std::byte* box = map_.box(from, rank_, number);
    for (int64_t done = 0; done < c.box_bytes[number % 2];) {
      const TakenPiece next = walk.next();
      const int64_t step = std::min(next.bytes, c.box_bytes[number % 2] - done);
      std::memcpy(next.data, box + done, step);
      walk.advance(step);
      done += step;
    }
    c.taken = number + 1;
    ring(map_.state_of(from).bell);
    return true;
  }

  void throw_if_told() const {
    if (map_.head().lost == 2 && map_.head().lost_rank != rank_)
      throw RankLost(map_.head().lost_rank, map_.head().why, map_.head().has_told);
  }

  // `sends`, `takes`: whether the exchange with that rank is incomplete.
  void require(int r, bool sends = false, bool takes = false) const {
    throw_if_told();
    if (r == rank_) return;
    RankState& own = map_.state_of(r);
    if (own.joined == 0) return;  // its parent process reports when it has ended
    const int state = pthread_mutex_trylock(&own.alive);
    if (state == EBUSY) return;
    if (state == EOWNERDEAD) pthread_mutex_consistent(&own.alive);
    if (state == EOWNERDEAD || state == 0) pthread_mutex_unlock(&own.alive);
    const bool has_left_all = map_.channel(r, rank_).put != map_.channel(r, rank_).taken;
    if (own.left == 1 && !sends && (!takes || has_left_all)) return;
    const std::string why = own.left == 1 ? "it has ended before the others" : "its process has died";
    say_lost(map_, r, why);
    throw RankLost(r, why);
  }

  std::shared_ptr<SharedMemory> memory_;
  Map map_;
  int rank_;
};

}  // namespace

SharedMemory::SharedMemory(int size) : size_(size), bytes_(Map::bytes(size)) {
  LUMEN_CHECK(size >= 1);
  memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED)
    throw Error(Exit::hardware, fmt::format("no memory that {} ranks could share: {}", size, std::strerror(errno)),
                "start fewer ranks");
  const Map map{reinterpret_cast<std::byte*>(memory_), size};
  new (&map.head()) Head();
  for (int r = 0; r < size; ++r) {
    RankState& own = *new (&map.state_of(r)) RankState();
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&own.alive, &attributes);
    pthread_mutexattr_destroy(&attributes);
    for (int s = 0; s < size; ++s) new (&map.channel(r, s)) Channel();
  }
}

SharedMemory::~SharedMemory() {
  ::munmap(memory_, bytes_);
}

void SharedMemory::report_lost(int rank, const std::string& why) noexcept {
  say_lost({reinterpret_cast<std::byte*>(memory_), size_}, rank, why);
}

std::unique_ptr<Transport> join_shared_memory(std::shared_ptr<SharedMemory> memory, int rank) {
  return std::make_unique<SharedMemoryTransport>(std::move(memory), rank);
}

}  // namespace lumen::run
