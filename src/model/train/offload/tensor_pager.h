// Pages groups of tensors between a device and the host's memory or a file. A slot is a piece of the device's memory
// that holds one group and is as large as the largest; while one group is used, others are loaded and stored. Proved by
// tests/model/train/offload/tensor_pager_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/ir/type.h"
#include "model/recipe/offload_settings.h"
#include "run/device/outside/outside.h"
#include "run/device/outside/serial_thread.h"
#include "run/engine/engine.h"

namespace lumen::model::train {

struct PagedTensor {
  std::string name;
  graph::Type type;
  int64_t at = 0;  // offset in its group
};
// Offset and size in the storage outside; bytes saturate.
struct PageGroup {
  std::vector<PagedTensor> tensors;
  int64_t at = 0, bytes = 0;
};
std::vector<PageGroup> placed(std::vector<std::vector<PagedTensor>> groups);
int64_t largest_bytes(const std::vector<PageGroup>& groups);
int64_t all_bytes(const std::vector<PageGroup>& groups);

class TensorPager {
 public:
  // `folder`: for a file whose place names no folder. Null for host memory on a device that uses the host's memory. All
  // tensors are zeros at first.
  static std::unique_ptr<TensorPager> open(run::Engine& engine, const recipe::OffloadPlace& place,
                                           const std::filesystem::path& folder, std::vector<PageGroup> groups,
                                           size_t slots);
  ~TensorPager();

  const std::vector<PageGroup>& groups() const { return groups_; }
  std::string describe() const { return outside_->describe(); }
  int64_t slot_bytes() const { return largest_bytes(groups_) * std::ssize(slots_); }

  // Begins to load the group, if a slot is free.
  void prefetch(size_t group);
  // The group is resident, and its tensors are valid, from here to release(). At most one group per slot is resident.
  void acquire(size_t group);
  run::DeviceTensorRef tensor(size_t group, size_t index);
  run::DeviceTensorRef tensor(const std::string& name);
  // The same for a group that will be wholly overwritten: skips loading.
  void acquire_for_write(size_t group);
  // `changed`: it is stored in the background. Error, here or later, when that fails.
  void release(size_t group, bool changed);

  // Copies by name. No group may be resident: changes of an unreleased group are lost.
  const PagedTensor* find(const std::string& name) const;
  void read(const std::string& name, std::span<uint8_t> to);
  void write(const std::string& name, std::span<const uint8_t> from);

 private:
  struct Slot {
    enum class State : uint8_t { idle, loading, resident, storing };
    std::shared_ptr<std::byte> memory;
    State state = State::idle;
    int64_t group = -1;  // whose bytes it holds
    run::SerialThread::Ticket ticket = 0;
    int64_t used = 0;  // time of the last use
  };
  TensorPager(run::Engine& engine, std::unique_ptr<run::Outside> outside, std::vector<PageGroup> groups, size_t slots);
  Slot* slot_of(size_t group);
  Slot* free_slot();
  void wait(Slot& slot);
  void settle();
  std::pair<size_t, size_t> place_of(const std::string& name) const;

  run::Engine& engine_;
  std::unique_ptr<run::Outside> outside_;
  std::vector<PageGroup> groups_;
  std::map<std::string, std::pair<size_t, size_t>> places_;
  std::vector<Slot> slots_;
  int64_t uses_ = 0;
  run::SerialThread loads_, stores_;  // destroyed first
};

}  // namespace lumen::model::train
