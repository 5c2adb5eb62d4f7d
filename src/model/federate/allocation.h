// Who trains how: the choice of a strategy for each client from measured speeds and from what its data look like. A
// coarse choice is made before the first round, and adjusted by what is seen while rounds go on (FedHQ; what its
// abstract leaves open is ours, docs/guide/federate.md). Proved by tests/model/federate/allocation_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "model/federate/federate.h"

namespace lumen::model {

// What is known of a client; arrays by strategy.
struct ClientFacts {
  int64_t examples = 0;
  double share = 0;                                              // of all examples, 0 .. 1
  double distance = 0;                                           // of its labels from everybody's, 0 .. ln 2
  std::array<double, kStrategies> rate{}, set_up{}, bytes_up{};  // examples a second, seconds, bytes
  std::array<double, kStrategies> off{0, 1, 0.5};                // |w - Q(w)|^2 / |w|^2; before it is measured a guess
  std::array<double, kStrategies> memory{};                      // bytes at the peak
  double memory_there = std::numeric_limits<double>::infinity();
  double bytes_down = 0, link = 1;  // bytes, bytes a second

  // The time of a round, with so many passes over the examples.
  double seconds(ClientStrategy s, int64_t epochs) const;
  bool has_memory(ClientStrategy s) const { return memory[size_t(s)] <= memory_there; }
};

using Allocation = std::vector<ClientStrategy>;  // by client

struct AllocationSettings {
  int64_t epochs = 1;
  double kappa = 2;         // how much more an error counts where labels are skewed
  double slack = 0.05;      // of the unavoidable time: who needs no more may take Q
  double lambda = 0.5;      // what a share of that time costs, in shares of the error of all in P
  int64_t every = 5;        // rounds of a window
  int64_t first = 6;        // windows in which allocations are tried at random
  double greed = 0.1;       // how often a candidate is taken at random
  double better = 0.02;     // how much better a candidate must look
  int64_t remembered = 40;  // windows that are learned from
};

// Jensen and Shannon's divergence of two histograms, in nats; 1e-3 is added to each class's share.
double label_distance(std::span<const double> own, std::span<const double> all);
// 1 - cos of two changes: the distance where labels are nobody's business.
double change_distance(const Weights& own, const Weights& mean);

// The time of a round that nobody's strategy avoids: the slowest in P. And of an allocation: the slowest.
double unavoidable_seconds(std::span<const ClientFacts> clients, const AllocationSettings& settings);
double round_seconds(std::span<const ClientFacts> clients, const Allocation& allocation,
                     const AllocationSettings& settings);
// The error of the average, in shares of that of all in P, and that less what the time costs.
double relative_error(std::span<const ClientFacts> clients, const Allocation& allocation,
                      const AllocationSettings& settings);
double allocation_score(std::span<const ClientFacts> clients, const Allocation& allocation,
                        const AllocationSettings& settings);
// Whether a client is on Q's side of the boundary, whatever others do.
bool is_worth_aware(std::span<const ClientFacts> clients, size_t client, const AllocationSettings& settings);

// Q for whom it costs nothing, then for those for whom it gains most by the second, while the score rises. More than
// 100 clients are taken in at most 8 groups of like speed and distance.
Allocation coarse_allocation(std::span<const ClientFacts> clients, const AllocationSettings& settings);
// Without any measurement: Q for those whose data count more than the median's and whose `speed` is above the 30th
// percentile.
Allocation cold_allocation(std::span<const ClientFacts> clients, std::span<const double> speed);

// Allocations to compare with: so many in Q, drawn; those for whom Q costs no time; the so many whose data count most.
Allocation drawn_allocation(size_t clients, size_t aware, uint64_t seed);
Allocation speed_allocation(std::span<const ClientFacts> clients, const AllocationSettings& settings);
Allocation data_allocation(std::span<const ClientFacts> clients, size_t aware, const AllocationSettings& settings);
size_t aware_count(const Allocation& allocation);

// Linear least squares with a penalty on the coefficients, features scaled by their deviation.
class Ridge {
 public:
  Ridge(const std::vector<std::vector<double>>& x, const std::vector<double>& y, double penalty);
  double at(std::span<const double> x) const;

 private:
  std::vector<double> mean_, deviation_, coefficient_;
  double level_ = 0;
};

// Adjusts an allocation behind every window of rounds by what windows have shown: loss that fell and time that passed.
class FineAdjuster {
 public:
  FineAdjuster(AllocationSettings settings, Allocation coarse, uint64_t seed);
  const Allocation& current() const { return current_; }

  struct Window {
    double loss_before = 0, loss_after = 0, seconds = 0;  // the loss at its ends, the mean time of its rounds
    double done = 0;                                      // share of all rounds, at its begin
  };
  // Learns from the window that ended; what comes next is current().
  void finish(const Window& window, std::span<const ClientFacts> clients);
  int64_t windows() const { return windows_; }

  nlohmann::json state() const;
  void set_state(const nlohmann::json& state, const std::string& where);  // Error when it is none

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
  Allocation current_, coarse_, before_;  // `before_`: what stood before the last change
  uint64_t seed_;
  int64_t windows_ = 0;
  int worse_ = 0;           // windows in a row that were worse than before the last change
  double rate_before_ = 0;  // loss a second, of the window before the last change
  double last_loss_ = 0, last_drop_ = 0, done_ = 0;
  std::vector<Record> records_;
};

}  // namespace lumen::model
