#include "run/device/require.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/printable.h"
#include "run/device/available.h"
#include "run/device/memory.h"

namespace lumen::run {
namespace {

constexpr const char* kHint = "choose a smaller model, batch, context or type, or a machine with more memory";

struct Sums {
  int64_t all = 0, wanted = 0;
};

Sums sums_of(const MemoryNeeds& needs) {
  Sums out;
  for (const MemoryNeed& n : needs) {
    out.all = saturating_sum(out.all, n.bytes);
    if (!n.is_there) out.wanted = saturating_sum(out.wanted, n.bytes);
  }
  return out;
}

std::string table(const MemoryNeeds& needs, const Sums& sums) {
  std::string text;
  const auto line = [&](const std::string& what, const std::string& amount) {
    text += fmt::format("\n  {:<44} {:>14}", what, amount);
  };
  for (const MemoryNeed& n : needs)
    if (n.bytes > 0) line(n.what, size_text(n.bytes));
  if (needs.size() > 1) line("together", size_text(sums.all));
  return text;
}

Error refusal(const std::string& who, const MemoryNeeds& needs, const Sums& sums, const std::string& there,
              const std::string& hint) {
  return Error(Exit::hardware,
               fmt::format("{} needs at least {} of memory; {}{}", who, size_text(sums.all), there, table(needs, sums)),
               hint.empty() ? kHint : hint);
}

}  // namespace

int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

int64_t saturating_product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

void require_host_memory(const std::string& who, const MemoryNeeds& needs, const std::string& hint, int64_t promised) {
  const Sums sums = sums_of(needs);
  if (sums.all <= kAlwaysFits) return;
  HostRoom room = host_room();
  room.available = std::max<int64_t>(0, room.available - promised);
  if (sums.wanted <= room.available && sums.all <= room.total) return;
  throw refusal(who, needs, sums,
                fmt::format("{} are available of {}{}", size_text(room.available), size_text(room.total),
                            room.limit.empty() ? "" : fmt::format(" (by {})", room.limit)),
                hint);
}

void require_memory(const Device& device, const std::string& who, const MemoryNeeds& needs, const std::string& hint) {
  const Sums sums = sums_of(needs);
  const bool here = device.reads_host_memory();
  if (here && sums.all <= kAlwaysFits) return;
  const DeviceMemory memory = device.memory();
  if (here) return require_host_memory(who, needs, hint, std::max<int64_t>(0, memory.held - own_memory()));
  if (sums.wanted <= memory.free && sums.all <= memory.total) return;
  throw refusal(
      who, needs, sums,
      fmt::format("{} has {}, {} of them free", device.describe(), size_text(memory.total), size_text(memory.free)),
      hint.empty() ? std::string(kHint) + ", or another --device" : hint);
}

}  // namespace lumen::run
