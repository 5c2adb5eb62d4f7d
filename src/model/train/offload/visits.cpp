#include "model/train/offload/visits.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "run/device/require.h"

namespace lumen::model {

std::vector<VisitorGroup> placed(std::vector<std::vector<Visitor>> groups) {
  std::vector<VisitorGroup> out;
  int64_t at = 0;
  for (std::vector<Visitor>& visitors : groups) {
    VisitorGroup group{std::move(visitors), at, 0};
    for (Visitor& v : group.visitors) {
      v.at = group.bytes;
      const int64_t bytes = std::min<int64_t>(graph::byte_size(v.type), INT64_MAX - run::kOutsideAlignment);
      group.bytes = run::saturating_sum(group.bytes, run::outside_size(bytes));
    }
    at = run::saturating_sum(at, group.bytes);
    out.push_back(std::move(group));
  }
  return out;
}

int64_t largest_bytes(const std::vector<VisitorGroup>& groups) {
  int64_t most = 0;
  for (const VisitorGroup& g : groups) most = std::max(most, g.bytes);
  return most;
}

int64_t all_bytes(const std::vector<VisitorGroup>& groups) {
  return groups.empty() ? 0 : run::saturating_sum(groups.back().at, groups.back().bytes);
}

std::unique_ptr<Visits> Visits::open(run::Engine& engine, const OffloadPlace& place,
                                     const std::filesystem::path& folder, std::vector<VisitorGroup> groups,
                                     size_t seats) {
  const int64_t bytes = all_bytes(groups);
  std::unique_ptr<run::Outside> outside;
  if (place.host)
    outside = run::outside_in_memory(engine.device(), bytes);
  else
    outside = run::outside_in_file(engine.device(), place.folder.empty() ? folder : std::filesystem::path(place.folder),
                                   bytes);
  if (!outside) return nullptr;
  return std::unique_ptr<Visits>(new Visits(engine, std::move(outside), std::move(groups), seats));
}

Visits::Visits(run::Engine& engine, std::unique_ptr<run::Outside> outside, std::vector<VisitorGroup> groups,
               size_t seats)
    : engine_(engine), outside_(std::move(outside)), groups_(std::move(groups)) {
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t v = 0; v < groups_[g].visitors.size(); ++v) places_[groups_[g].visitors[v].name] = {g, v};
  for (size_t i = 0; i < std::min(seats, groups_.size()); ++i) {
    seats_.emplace_back();
    seats_.back().memory = engine_.allocate(largest_bytes(groups_));
  }
  engine_.device().synchronize();  // what makes memory zero is not in the order of what comes
}

Visits::~Visits() {
  for (Seat& seat : seats_) {
    try {
      wait(seat);
    } catch (const Error&) {
      // The run ends, and nothing of this is read again.
    }
  }
}

Visits::Seat* Visits::seat_of(size_t group) {
  for (Seat& s : seats_)
    if (s.group >= 0 && std::cmp_equal(s.group, group)) return &s;
  return nullptr;
}

// What is on its way has arrived, there or here.
void Visits::wait(Seat& seat) {
  const Seat::State was = seat.state;
  if (was == Seat::State::here) return;
  seat.state = Seat::State::idle;
  if (was == Seat::State::coming) {
    const int64_t group = std::exchange(seat.group, -1);
    bringing_.wait(seat.ticket);
    seat.group = group;
  } else if (was == Seat::State::leaving) {
    taking_.wait(seat.ticket);
  }
}

// One that holds nothing, or what was used the longest ago; null where all are in use.
Visits::Seat* Visits::free_seat() {
  Seat* best = nullptr;
  const auto rank = [](const Seat& s) { return std::tuple(s.state == Seat::State::leaving, s.group >= 0, s.used); };
  for (Seat& s : seats_)
    if ((s.state == Seat::State::idle || s.state == Seat::State::leaving) && (!best || rank(s) < rank(*best)))
      best = &s;
  if (best) wait(*best);
  return best;
}

void Visits::call(size_t group) {
  if (Seat* const known = seat_of(group)) {
    known->used = ++uses_;
    return;
  }
  Seat* const seat = free_seat();
  if (!seat) return;
  seat->used = ++uses_;
  seat->group = group;
  seat->state = Seat::State::coming;
  const VisitorGroup& g = groups_.at(group);
  seat->ticket =
      bringing_.give([this, to = seat->memory.get(), at = g.at, bytes = g.bytes] { outside_->bring(at, to, bytes); });
}

void Visits::come(size_t group) {
  call(group);
  Seat* const seat = seat_of(group);
  LUMEN_CHECK(seat, "more groups are here than there are seats");
  wait(*seat);
  seat->state = Seat::State::here;
}

void Visits::claim(size_t group) {
  Seat* seat = seat_of(group);
  if (seat)
    wait(*seat);
  else
    seat = free_seat();
  LUMEN_CHECK(seat, "more groups are here than there are seats");
  seat->used = ++uses_;
  seat->group = group;
  seat->state = Seat::State::here;
}

run::DeviceTensorRef Visits::tensor(const std::string& name) {
  const auto [group, visitor] = place_of(name);
  return tensor(group, visitor);
}

run::DeviceTensorRef Visits::tensor(size_t group, size_t visitor) {
  Seat* const seat = seat_of(group);
  LUMEN_CHECK(seat && seat->state == Seat::State::here, "group {} is not here", group);
  const Visitor& v = groups_[group].visitors.at(visitor);
  return std::make_shared<run::DeviceTensor>(engine_.device(), v.type, seat->memory, seat->memory.get() + v.at);
}

void Visits::leave(size_t group, bool changed) {
  Seat* const seat = seat_of(group);
  LUMEN_CHECK(seat && seat->state == Seat::State::here, "group {} is not here", group);
  seat->state = changed ? Seat::State::leaving : Seat::State::idle;
  if (!changed) return;
  const VisitorGroup& g = groups_[group];
  seat->ticket =
      taking_.give([this, from = seat->memory.get(), at = g.at, bytes = g.bytes] { outside_->take(at, from, bytes); });
}

void Visits::settle() {
  for (Seat& seat : seats_) {
    wait(seat);
    // Who was here when an error ended the work is gone; what is outside counts.
    if (seat.state == Seat::State::here) seat.group = -1;
    seat.state = Seat::State::idle;
  }
}

std::pair<size_t, size_t> Visits::place_of(const std::string& name) const {
  const auto place = places_.find(name);
  LUMEN_CHECK(place != places_.end(), "no visitor '{}'", name);
  return place->second;
}

const Visitor* Visits::find(const std::string& name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &groups_[place->second.first].visitors[place->second.second];
}

void Visits::read(const std::string& name, std::span<uint8_t> to) {
  const auto [group, visitor] = place_of(name);
  const Visitor& v = groups_[group].visitors[visitor];
  LUMEN_CHECK(std::ssize(to) == graph::byte_size(v.type), "{} bytes of '{}'", to.size(), name);
  settle();
  outside_->read(groups_[group].at + v.at, std::as_writable_bytes(to).data(), to.size());
}

void Visits::write(const std::string& name, std::span<const uint8_t> from) {
  const auto [group, visitor] = place_of(name);
  const Visitor& v = groups_[group].visitors[visitor];
  LUMEN_CHECK(std::ssize(from) == graph::byte_size(v.type), "{} bytes of '{}'", from.size(), name);
  settle();
  if (Seat* const seat = seat_of(group)) seat->group = -1;
  outside_->write(groups_[group].at + v.at, std::as_bytes(from).data(), from.size());
}

}  // namespace lumen::model
