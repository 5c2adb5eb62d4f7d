#include "model/arch/in_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/file/cut.h"
#include "base/file/leave.h"
#include "base/log.h"
#include "base/threads/threads.h"
#include "model/arch/bytes.h"

namespace lumen::model::arch {
namespace {

constexpr size_t kPart = size_t{4} << 20;  // bytes copied at once

struct Part {
  std::span<const uint8_t> from;
  uint8_t* to = nullptr;
};

// Threads take parts in order. Copied pages are released to the file, so that the process never holds the model twice.
void copy(const std::vector<Part>& parts, const std::function<void(int64_t, int64_t)>& told, int64_t all) {
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> done = 0;
  const auto work = [&](bool tells) {
    for (size_t i = next++; i < parts.size(); i = next++) {
      bring_from_file(parts[i].from);
      std::memcpy(parts[i].to, parts[i].from.data(), parts[i].from.size());
      leave_to_file(parts[i].from);
      done += std::ssize(parts[i].from);
      if (tells) told(done, all);
    }
  };
  work_together(std::min<size_t>(usable_cores(), parts.size()), [&](int thread) { work(thread == 0); });
  told(all, all);
}

}  // namespace

void copy_into_memory(Model* model, const std::function<void(int64_t, int64_t)>& told) {
  const auto aligned = [](size_t size) {
    return (size + Bytes::kAlignment - 1) / Bytes::kAlignment * Bytes::kAlignment;
  };
  std::vector<Weight*> mapped;
  size_t size = 0;
  int64_t all = 0;
  for (auto& [name, weight] : model->weights) {
    if (!is_in_file({weight.bytes.data(), weight.bytes.size()})) continue;
    mapped.push_back(&weight);
    size += aligned(weight.bytes.size());
    all += std::ssize(weight.bytes);
  }
  if (mapped.empty()) return;
  Room room(size, "a copy of the weights");
  std::vector<Part> parts;
  std::vector<Bytes> copies;
  size_t at = 0;
  for (const Weight* weight : mapped) {
    const std::span<const uint8_t> from(weight->bytes.data(), weight->bytes.size());
    for (size_t i = 0; i < from.size(); i += kPart)
      parts.push_back({from.subspan(i, std::min(kPart, from.size() - i)), room.data() + at + i});
    copies.push_back(room.bytes(at, from.size()));
    at += aligned(from.size());
  }
  copy(parts, told, all);
  require_whole_files(Look::size);
  for (size_t i = 0; i < mapped.size(); ++i) mapped[i]->bytes = std::move(copies[i]);
}

}  // namespace lumen::model::arch
