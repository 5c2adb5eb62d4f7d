// A stand-in for NCCL among threads of one process: work of streams, as the library's is; what one sends waits until
// the other takes it, as bytes of the host. Symbols are the library's own.
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
  bool has_left = false;
};
std::mutex members_mutex;
std::map<void*, std::shared_ptr<Member>> members;

// What a group of calls has asked for.
struct Asked {
  bool sends;
  void* memory;
  size_t bytes;
  int peer;
  std::shared_ptr<Member> member;
  void* stream;
};
thread_local std::vector<Asked> asked;

std::shared_ptr<Member> member_of(void* communicator) {
  const std::scoped_lock lock(members_mutex);
  return members.at(communicator);
}

int send(const Asked& a) {
  const char* bytes = view(a.memory, a.bytes);
  if (!bytes) return 4;
  const std::scoped_lock lock(a.member->group->mutex);
  a.member->group->waiting[{a.member->rank, a.peer}].emplace_back(bytes, a.bytes);
  return 0;
}

// Others have to send it first.
int take(const Asked& a) {
  const auto arrived = [&](std::string* bytes) {
    const std::scoped_lock lock(a.member->group->mutex);
    auto& queue = a.member->group->waiting[{a.peer, a.member->rank}];
    if (queue.empty()) return false;
    *bytes = std::move(queue.front());
    queue.pop_front();
    return true;
  };
  if (a.member->has_left) return 0;
  std::string bytes;
  if (!arrived(&bytes)) {
    advance_others();
    if (!arrived(&bytes)) return kBlocked;
  }
  char* const to = view(a.memory, a.bytes);
  if (!to || bytes.size() != a.bytes) return 5;
  std::memcpy(to, bytes.data(), bytes.size());
  return 0;
}

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
  const auto member = std::make_shared<Member>(Member{nullptr, rank, size});
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
  *communicator = member.get();
  const std::scoped_lock members_lock(members_mutex);
  members[member.get()] = member;
  return 0;
}
int ncclCommDestroy(void* communicator) {
  const std::scoped_lock lock(members_mutex);
  const auto found = members.find(communicator);
  if (found == members.end()) return 4;
  found->second->has_left = true;
  members.erase(found);
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
  asked.push_back({true, const_cast<void*>(from), count, peer, member_of(communicator), stream});
  return 0;
}
int ncclRecv(void* to, size_t count, int type, int peer, void* communicator, void* stream) {
  if (type != 0) return 4;
  asked.push_back({false, to, count, peer, member_of(communicator), stream});
  return 0;
}
int ncclGroupEnd() {
  // Work of a stream, as the library's kernels are, and captured with it: all that is sent before anything is taken.
  for (const bool sends : {true, false})
    for (const Asked& a : asked)
      if (a.sends == sends)
        if (const int error = push(a.stream, 0.25, [a] { return a.sends ? send(a) : take(a); })) return error;
  asked.clear();
  return 0;
}
}
