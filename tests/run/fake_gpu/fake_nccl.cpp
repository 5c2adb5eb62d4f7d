// A stand-in for NCCL among threads of one process: what one sends waits until the other takes it, as bytes of the
// host that the driver's stand-in has copied. Symbols are the library's own.
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stream.h"

namespace lumen::fake {
namespace {

struct Id {
  char bytes[128];
};

struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::string>> waiting;  // by sender and taker
  int joined = 0;
};
std::mutex groups_mutex;
std::map<std::string, std::shared_ptr<Group>> groups;
int ids = 0;

struct Member {
  std::shared_ptr<Group> group;
  int rank, size;
};

// What a group of calls has asked for.
struct Asked {
  bool sends;
  void* memory;
  size_t bytes;
  int peer;
  Member* member;
  void* stream;
};
thread_local std::vector<Asked> asked;

}  // namespace
}  // namespace lumen::fake

using namespace lumen::fake;  // NOLINT

extern "C" {
int ncclGetVersion(int* version) {
  *version = 22304;
  return 0;
}
int ncclGetUniqueId(Id* id) {
  const std::scoped_lock lock(groups_mutex);
  std::memset(id, 0, sizeof *id);
  const std::string number = std::to_string(++ids);
  std::memcpy(id->bytes, number.c_str(), number.size());
  return 0;
}
int ncclCommInitRank(void** communicator, int size, Id id, int rank) {
  auto* member = new Member{nullptr, rank, size};
  {
    const std::scoped_lock lock(groups_mutex);
    auto& group = groups[id.bytes];
    if (!group) group = std::make_shared<Group>();
    member->group = group;
  }
  std::unique_lock lock(member->group->mutex);
  ++member->group->joined;
  member->group->changed.notify_all();
  member->group->changed.wait(lock, [&] { return member->group->joined >= size; });
  *communicator = member;
  return 0;
}
int ncclCommDestroy(void* communicator) {
  delete static_cast<Member*>(communicator);
  return 0;
}
int ncclCommAbort(void* communicator) {
  return ncclCommDestroy(communicator);
}
int ncclCommGetAsyncError(void*, int* error) {
  *error = 0;
  return 0;
}
const char* ncclGetErrorString(int) {
  return "a failure";
}
int ncclGroupStart() {
  asked.clear();
  return 0;
}
int ncclSend(const void* from, size_t count, int type, int peer, void* communicator, void* stream) {
  if (type != 0) return 4;
  asked.push_back({true, const_cast<void*>(from), count, peer, static_cast<Member*>(communicator), stream});
  return 0;
}
int ncclRecv(void* to, size_t count, int type, int peer, void* communicator, void* stream) {
  if (type != 0) return 4;
  asked.push_back({false, to, count, peer, static_cast<Member*>(communicator), stream});
  return 0;
}
int ncclGroupEnd() {
  // Work of a stream, as the library's kernels are: done when somebody waits. All that is sent before anything is
  // taken.
  for (const bool sends : {true, false})
    for (const Asked& a : asked) {
      if (a.sends != sends) continue;
      Member* const m = a.member;
      if (sends) {
        const char* bytes = view(a.memory, a.bytes);
        if (!bytes) return 4;
        const std::scoped_lock lock(m->group->mutex);
        m->group->waiting[{m->rank, a.peer}].emplace_back(bytes, a.bytes);
        m->group->changed.notify_all();
        continue;
      }
      std::unique_lock lock(m->group->mutex);
      auto& queue = m->group->waiting[{a.peer, m->rank}];
      m->group->changed.wait(lock, [&] { return !queue.empty(); });
      const std::string bytes = std::move(queue.front());
      queue.pop_front();
      char* const to = view(a.memory, a.bytes);
      if (!to || bytes.size() != a.bytes) return 5;
      std::memcpy(to, bytes.data(), bytes.size());
    }
  asked.clear();
  return 0;
}
}
