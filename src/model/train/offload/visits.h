// Tensors that lie outside of a device and visit it, some together (a group), in seats: pieces of the device's memory
// that are as large as the largest group. While one group is computed with, others come and go. Proved by
// tests/model/train/offload/visits_test.cpp.
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
#include "model/train/recipe/offload_settings.h"
#include "run/device/outside/ferry.h"
#include "run/device/outside/outside.h"
#include "run/engine/engine.h"

namespace lumen::model {

struct Visitor {
  std::string name;
  graph::Type type;
  int64_t at = 0;  // in its group's record
};
// The record of a group; bytes saturate.
struct VisitorGroup {
  std::vector<Visitor> visitors;
  int64_t at = 0, bytes = 0;
};
std::vector<VisitorGroup> placed(std::vector<std::vector<Visitor>> groups);
int64_t largest_bytes(const std::vector<VisitorGroup>& groups);
int64_t all_bytes(const std::vector<VisitorGroup>& groups);

class Visits {
 public:
  // `folder`: of a file, unless the place names another. Null where the host's memory is asked for and is the device's
  // own. All zeros to begin with.
  static std::unique_ptr<Visits> open(run::Engine& engine, const OffloadPlace& place,
                                      const std::filesystem::path& folder, std::vector<VisitorGroup> groups,
                                      size_t seats);
  ~Visits();

  const std::vector<VisitorGroup>& groups() const { return groups_; }
  std::string describe() const { return outside_->describe(); }
  int64_t seat_bytes() const { return largest_bytes(groups_) * std::ssize(seats_); }

  // The group will be wanted: it begins to come, if there is a seat.
  void call(size_t group);
  // It is here when this returns; its tensors are good until leave(). At most as many as there are seats are here.
  void come(size_t group);
  run::DeviceTensorRef tensor(size_t group, size_t visitor);
  run::DeviceTensorRef tensor(const std::string& name);
  // The same for a group all of which will be written: its bytes need not come.
  void claim(size_t group);
  // `changed`: it is written behind. Error, here or later, when a write fails.
  void leave(size_t group, bool changed);

  // By name, from and to this process. No group is here then: changes of one that has not left are lost.
  const Visitor* find(const std::string& name) const;
  void read(const std::string& name, std::span<uint8_t> to);
  void write(const std::string& name, std::span<const uint8_t> from);

 private:
  struct Seat {
    enum class State : uint8_t { idle, coming, here, leaving };
    std::shared_ptr<std::byte> memory;
    State state = State::idle;
    int64_t group = -1;  // whose bytes it holds
    run::Ferry::Ticket ticket = 0;
    int64_t used = 0;  // the larger, the later
  };
  Visits(run::Engine& engine, std::unique_ptr<run::Outside> outside, std::vector<VisitorGroup> groups, size_t seats);
  Seat* seat_of(size_t group);
  Seat* free_seat();
  void wait(Seat& seat);
  void settle();
  std::pair<size_t, size_t> place_of(const std::string& name) const;

  run::Engine& engine_;
  std::unique_ptr<run::Outside> outside_;
  std::vector<VisitorGroup> groups_;
  std::map<std::string, std::pair<size_t, size_t>> places_;
  std::vector<Seat> seats_;
  int64_t uses_ = 0;
  run::Ferry bringing_, taking_;  // last made, first gone
};

}  // namespace lumen::model
