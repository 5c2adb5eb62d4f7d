// Assigns a training strategy to each client from measured speeds and label distributions. A coarse assignment is made
// before the first round, and adjusted from observations during the rounds (FedHQ; details that its abstract leaves
// open are ours, docs/guide/federate.md). Proved by tests/apps/federate/allocation_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "apps/federate/federate.h"

namespace lumen::federate {

// Facts about a client; arrays by strategy.
struct ClientFacts {
  int64_t examples = 0;
  double share = 0;     // of all examples, 0 .. 1
  double distance = 0;  // distance of its label shares from everybody's, 0 .. ln 2
  std::array<double, kStrategies> rate{}, set_up{}, bytes_up{};  // examples a second, seconds, bytes
  std::array<double, kStrategies> off{0, 1, 0.5};                // |w - Q(w)|^2 / |w|^2; a guess until measured
  std::array<double, kStrategies> memory{};                      // bytes at the peak
  double memory_there = std::numeric_limits<double>::infinity();
  double bytes_down = 0, link = 1;  // bytes, bytes a second

  // The time of a round with this many epochs.
  double seconds(ClientStrategy s, int64_t epochs) const;
  bool has_memory(ClientStrategy s) const { return memory[size_t(s)] <= memory_there; }
};

using Allocation = std::vector<ClientStrategy>;  // by client

struct AllocationSettings {
  int64_t epochs = 1;
  double kappa = 2;         // additional weight of an error under label skew
  double slack = 0.05;      // of the unavoidable time: clients within it may use Q
  double lambda = 0.5;      // cost of relative time, in units of the error of all clients in P
  int64_t every = 5;        // rounds per window
  int64_t first = 6;        // windows with random allocations
  double greed = 0.1;       // probability of a random candidate
  double better = 0.02;     // required improvement of a candidate
  int64_t remembered = 40;  // windows kept for regression
};

// The Jensen-Shannon divergence of two histograms, in nats; 1e-3 is added to each class's share.
double label_distance(std::span<const double> own, std::span<const double> all);
// 1 - cos of two changes: the distance for clients with private labels.
double change_distance(const Weights& own, const Weights& mean);

// The unavoidable time of a round: the slowest client in P. And the time of an allocation: its slowest client.
double unavoidable_seconds(std::span<const ClientFacts> clients, const AllocationSettings& settings);
double round_seconds(std::span<const ClientFacts> clients, const Allocation& allocation,
                     const AllocationSettings& settings);
// The error of the average, relative to that of all in P; and the score: minus the error, minus the weighted time.
double relative_error(std::span<const ClientFacts> clients, const Allocation& allocation,
                      const AllocationSettings& settings);
double allocation_score(std::span<const ClientFacts> clients, const Allocation& allocation,
                        const AllocationSettings& settings);
// Whether Q is worth it for a client, whatever the others use.
bool is_worth_aware(std::span<const ClientFacts> clients, size_t client, const AllocationSettings& settings);

// Q for all clients whom it costs no time, then for those with the best ratio of gain to time, while the score rises.
// More than 100 clients are clustered into at most 8 groups by speed and distance.
Allocation coarse_allocation(std::span<const ClientFacts> clients, const AllocationSettings& settings);
// Without any measurement: Q for clients whose data weigh more than the median's and whose `speed` is above the 30th
// percentile.
Allocation cold_allocation(std::span<const ClientFacts> clients, std::span<const double> speed);

// Baselines: `aware` random clients in Q; those whom Q costs no time; the `aware` clients whose data weigh most.
Allocation drawn_allocation(size_t clients, size_t aware, uint64_t seed);
Allocation speed_allocation(std::span<const ClientFacts> clients, const AllocationSettings& settings);
Allocation data_allocation(std::span<const ClientFacts> clients, size_t aware, const AllocationSettings& settings);
size_t aware_count(const Allocation& allocation);

// Ridge regression, with standardized features.
class Ridge {
 public:
  Ridge(const std::vector<std::vector<double>>& x, const std::vector<double>& y, double penalty);
  double at(std::span<const double> x) const;

 private:
  std::vector<double> mean_, deviation_, coefficient_;
  double level_ = 0;
};

// Adjusts an allocation after every window of rounds, from the windows' decrease of loss and time.
class FineAdjuster {
 public:
  FineAdjuster(AllocationSettings settings, Allocation coarse, uint64_t seed);
  const Allocation& current() const { return current_; }

  struct Window {
    double loss_before = 0, loss_after = 0, seconds = 0;  // loss at its start and end, mean time of its rounds
    double done = 0;                                      // share of all rounds done at its start
  };
  // Learns from a finished window; the next allocation is current().
  void finish(const Window& window, std::span<const ClientFacts> clients);
  int64_t windows() const { return windows_; }

  nlohmann::json state() const;
  void set_state(const nlohmann::json& state, const std::string& where);  // Error when malformed

 private:
  struct Record {
    std::vector<double> features;
    double drop = 0, seconds = 0;
  };
  std::vector<double> features(std::span<const ClientFacts> clients, const Allocation& allocation) const;
  std::vector<Allocation> candidates(std::span<const ClientFacts> clients) const;
  Allocation drawn_near(const Allocation& allocation, std::span<const ClientFacts> clients) const;
  void propose(std::span<const ClientFacts> clients);

  AllocationSettings settings_;
  Allocation current_, coarse_, before_;  // before_: before the last change
  uint64_t seed_;
  int64_t windows_ = 0;
  int worse_ = 0;           // consecutive windows that were worse than before the last change
  double rate_before_ = 0;  // loss decrease per second, in the window before the last change
  double last_loss_ = 0, last_drop_ = 0, done_ = 0;
  std::vector<Record> records_;
};

}  // namespace lumen::federate
