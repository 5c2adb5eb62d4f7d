#include "model/train/offload/tensor_pager.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "run/device/require.h"

namespace lumen::model::train {

std::vector<PageGroup> placed(std::vector<std::vector<PagedTensor>> groups) {
  std::vector<PageGroup> out;
  int64_t at = 0;
  for (std::vector<PagedTensor>& tensors : groups) {
    PageGroup group{std::move(tensors), at, 0};
    for (PagedTensor& v : group.tensors) {
      v.at = group.bytes;
      const int64_t bytes = std::min<int64_t>(graph::byte_size(v.type), INT64_MAX - run::kOutsideAlignment);
      group.bytes = run::saturating_sum(group.bytes, run::outside_size(bytes));
    }
    at = run::saturating_sum(at, group.bytes);
    out.push_back(std::move(group));
  }
  return out;
}

int64_t largest_bytes(const std::vector<PageGroup>& groups) {
  int64_t most = 0;
  for (const PageGroup& g : groups) most = std::max(most, g.bytes);
  return most;
}

int64_t all_bytes(const std::vector<PageGroup>& groups) {
  return groups.empty() ? 0 : run::saturating_sum(groups.back().at, groups.back().bytes);
}

std::unique_ptr<TensorPager> TensorPager::open(run::Engine& engine, const recipe::OffloadPlace& place,
                                               const std::filesystem::path& folder, std::vector<PageGroup> groups,
                                               size_t slots) {
  const int64_t bytes = all_bytes(groups);
  std::unique_ptr<run::Outside> outside;
  if (place.host)
    outside = run::outside_in_memory(engine.device(), bytes);
  else
    outside = run::outside_in_file(engine.device(), place.folder.empty() ? folder : std::filesystem::path(place.folder),
                                   bytes);
  if (!outside) return nullptr;
  return std::unique_ptr<TensorPager>(new TensorPager(engine, std::move(outside), std::move(groups), slots));
}

TensorPager::TensorPager(run::Engine& engine, std::unique_ptr<run::Outside> outside, std::vector<PageGroup> groups,
                         size_t slots)
    : engine_(engine), outside_(std::move(outside)), groups_(std::move(groups)) {
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t v = 0; v < groups_[g].tensors.size(); ++v) places_[groups_[g].tensors[v].name] = {g, v};
  for (size_t i = 0; i < std::min(slots, groups_.size()); ++i) {
    slots_.emplace_back();
    slots_.back().memory = engine_.allocate(largest_bytes(groups_));
  }
  engine_.device().synchronize();  // clearing memory is not ordered with the transfers
}

TensorPager::~TensorPager() {
  for (Slot& slot : slots_) {
    try {
      wait(slot);
    } catch (const Error&) {
      // The run ends, and this memory is not read again.
    }
  }
}

TensorPager::Slot* TensorPager::slot_of(size_t group) {
  for (Slot& s : slots_)
    if (s.group >= 0 && std::cmp_equal(s.group, group)) return &s;
  return nullptr;
}

// Waits until the slot's transfer is done.
void TensorPager::wait(Slot& slot) {
  const Slot::State was = slot.state;
  if (was == Slot::State::resident) return;
  slot.state = Slot::State::idle;
  if (was == Slot::State::loading) {
    const int64_t group = std::exchange(slot.group, -1);
    loads_.wait(slot.ticket);
    slot.group = group;
  } else if (was == Slot::State::storing) {
    stores_.wait(slot.ticket);
  }
}

// An empty slot, or else the one used least recently; null where all are in use.
TensorPager::Slot* TensorPager::free_slot() {
  Slot* best = nullptr;
  const auto rank = [](const Slot& s) { return std::tuple(s.state == Slot::State::storing, s.group >= 0, s.used); };
  for (Slot& s : slots_)
    if ((s.state == Slot::State::idle || s.state == Slot::State::storing) && (!best || rank(s) < rank(*best)))
      best = &s;
  if (best) wait(*best);
  return best;
}

void TensorPager::prefetch(size_t group) {
  if (Slot* const known = slot_of(group)) {
    known->used = ++uses_;
    return;
  }
  Slot* const slot = free_slot();
  if (!slot) return;
  slot->used = ++uses_;
  slot->group = group;
  slot->state = Slot::State::loading;
  const PageGroup& g = groups_.at(group);
  slot->ticket =
      loads_.submit([this, to = slot->memory.get(), at = g.at, bytes = g.bytes] { outside_->bring(at, to, bytes); });
}

void TensorPager::acquire(size_t group) {
  prefetch(group);
  Slot* const slot = slot_of(group);
  LUMEN_CHECK(slot, "more groups are resident than there are slots");
  wait(*slot);
  slot->state = Slot::State::resident;
}

void TensorPager::acquire_for_write(size_t group) {
  Slot* slot = slot_of(group);
  if (slot)
    wait(*slot);
  else
    slot = free_slot();
  LUMEN_CHECK(slot, "more groups are resident than there are slots");
  slot->used = ++uses_;
  slot->group = group;
  slot->state = Slot::State::resident;
}

run::DeviceTensorRef TensorPager::tensor(const std::string& name) {
  const auto [group, index] = place_of(name);
  return tensor(group, index);
}

run::DeviceTensorRef TensorPager::tensor(size_t group, size_t index) {
  Slot* const slot = slot_of(group);
  LUMEN_CHECK(slot && slot->state == Slot::State::resident, "group {} is not resident", group);
  const PagedTensor& v = groups_[group].tensors.at(index);
  return std::make_shared<run::DeviceTensor>(engine_.device(), v.type, slot->memory, slot->memory.get() + v.at);
}

void TensorPager::release(size_t group, bool changed) {
  Slot* const slot = slot_of(group);
  LUMEN_CHECK(slot && slot->state == Slot::State::resident, "group {} is not resident", group);
  slot->state = changed ? Slot::State::storing : Slot::State::idle;
  if (!changed) return;
  const PageGroup& g = groups_[group];
  slot->ticket = stores_.submit(
      [this, from = slot->memory.get(), at = g.at, bytes = g.bytes] { outside_->take(at, from, bytes); });
}

void TensorPager::settle() {
  for (Slot& slot : slots_) {
    wait(slot);
    // After an error, resident groups are dropped: the copy outside is authoritative.
    if (slot.state == Slot::State::resident) slot.group = -1;
    slot.state = Slot::State::idle;
  }
}

std::pair<size_t, size_t> TensorPager::place_of(const std::string& name) const {
  const auto place = places_.find(name);
  LUMEN_CHECK(place != places_.end(), "no paged tensor '{}'", name);
  return place->second;
}

const PagedTensor* TensorPager::find(const std::string& name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &groups_[place->second.first].tensors[place->second.second];
}

void TensorPager::read(const std::string& name, std::span<uint8_t> to) {
  const auto [group, index] = place_of(name);
  const PagedTensor& v = groups_[group].tensors[index];
  LUMEN_CHECK(std::ssize(to) == graph::byte_size(v.type), "{} bytes of '{}'", to.size(), name);
  settle();
  outside_->read(groups_[group].at + v.at, std::as_writable_bytes(to).data(), to.size());
}

void TensorPager::write(const std::string& name, std::span<const uint8_t> from) {
  const auto [group, index] = place_of(name);
  const PagedTensor& v = groups_[group].tensors[index];
  LUMEN_CHECK(std::ssize(from) == graph::byte_size(v.type), "{} bytes of '{}'", from.size(), name);
  settle();
  if (Slot* const slot = slot_of(group)) slot->group = -1;
  outside_->write(groups_[group].at + v.at, std::as_bytes(from).data(), from.size());
}

}  // namespace lumen::model::train
