#include "run/device/available.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace lumen::run {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
constexpr int kDeepest = 64;  // nested control groups

// The number after `name`, for instance "MemAvailable:", in bytes.
int64_t system_memory(const fs::path& root, std::string_view name) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == name && file >> kilobytes) return kilobytes * 1024;
  }
  return kUnknown;
}

// The single number in a file; "max", and equivalent huge values, give kUnknown.
int64_t read_number(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number && number >= 0 && number < (int64_t{1} << 62) ? number : kUnknown;
}

int64_t statistic(const fs::path& file, std::string_view wanted) {
  std::ifstream in(file);
  std::string name;
  for (int64_t value = 0; in >> name >> value;)
    if (name == wanted) return value;
  return 0;
}

// One version of control groups: its mount point and the names of its files.
struct Groups {
  const char* mount;
  const char* limits[2];
  const char* used;
  const char *cached, *shared;  // page cache, and the part of it that is not backed by a disk
};
constexpr Groups kSecond{"sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", "file", "shmem"};
constexpr Groups kFirst{
    "sys/fs/cgroup/memory", {"memory.limit_in_bytes", nullptr}, "memory.usage_in_bytes", "total_cache", "total_shmem"};

void lower(HostRoom& room, int64_t total, int64_t available, const std::string& limit) {
  room.total = std::min(room.total, total);
  if (available >= room.available) return;
  room.available = std::max<int64_t>(0, available);
  room.limit = limit;
}

// A group's limit applies to all groups inside it, so all of them up to the outermost count. A group's page cache can
// be dropped, so it counts as available.
void within_groups(const fs::path& root, const Groups& groups, fs::path group, HostRoom& room) {
  const fs::path mount = root / groups.mount;
  for (int depth = 0; depth < kDeepest; ++depth) {
    const fs::path folder = group.empty() ? mount : mount / group;
    const int64_t used = read_number(folder / groups.used);
    if (used != kUnknown) {
      const fs::path statistics = folder / "memory.stat";
      const int64_t cached =
          std::max<int64_t>(0, statistic(statistics, groups.cached) - statistic(statistics, groups.shared));
      for (const char* name : groups.limits) {
        if (!name) continue;
        const int64_t limit = read_number(folder / name);
        if (limit != kUnknown) lower(room, limit, limit - used + std::min(cached, used), "its control group");
      }
    }
    if (group.empty()) return;
    group = group.parent_path();
  }
}

// Lines "0::/path" of the second version, "N:controllers:/path" of the first.
void within_control_groups(const fs::path& root, HostRoom& room) {
  fs::path first, second;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t a = line.find(':'), b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos || line.size() < b + 2 || line[b + 1] != '/') continue;
    const std::string controllers = "," + line.substr(a + 1, b - a - 1) + ",";
    const std::string path = line.substr(b + 2);
    if (path.find("..") != std::string::npos) continue;  // outside of this mount
    if (controllers == ",,") second = path;
    if (controllers.find(",memory,") != std::string::npos) first = path;
  }
  within_groups(root, kSecond, second, room);
  within_groups(root, kFirst, first, room);
}

// Field `index` of /proc/self/statm, in bytes.
int64_t own_pages(int index) {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  for (int i = 0; i <= index; ++i)
    if (!(file >> pages)) return 0;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void within_process_limits(HostRoom& room) {
  const auto below = [&](auto resource, int64_t used) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const int64_t most = std::min<rlim_t>(limit.rlim_cur, kUnknown);
    lower(room, most, most - used, "a limit of the process (ulimit)");
  };
  below(RLIMIT_AS, own_pages(0));
  below(RLIMIT_DATA, own_pages(5));
}

}  // namespace

int64_t own_memory() {
  return std::max<int64_t>(0, own_pages(1) - own_pages(2));
}

HostRoom host_room(const fs::path& root) {
  HostRoom room{system_memory(root, "MemTotal:"), system_memory(root, "MemAvailable:"), ""};
  within_control_groups(root, room);
  if (root != "/") return room;
  within_process_limits(room);
  if (const char* own = std::getenv("LUMEN_MEMORY"); own && *own) {
    const int64_t most = parse_amount(own, "LUMEN_MEMORY");
    lower(room, most, most - own_memory(), "LUMEN_MEMORY");
  }
  return room;
}

int64_t parse_amount(const std::string& text, const std::string& what) {
  constexpr std::string_view kUnits = "KMGT";
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string_view unit(end);
  double factor = 1;
  if (!unit.empty()) {
    const size_t at = kUnits.find(static_cast<char>(unit[0] & ~0x20));
    for (size_t i = 0; at != std::string_view::npos && i <= at; ++i) factor *= 1024;
    unit = at == std::string_view::npos ? unit : unit.substr(1);
    if (unit == "iB" || unit == "B") unit = {};
  }
  const double bytes = number * factor;
  if (end == text.c_str() || !unit.empty() || !(bytes >= 0) || bytes > 9e18)
    throw usage_error("{} is '{}', which is no amount of memory; give bytes, or a number with K, M, G or T", what,
                      text);
  return static_cast<int64_t>(bytes);
}

}  // namespace lumen::run
