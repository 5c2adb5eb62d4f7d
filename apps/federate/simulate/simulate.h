// A federated run in one process: the clients' training is real, their time is computed from each device's class.
// Proved by tests/apps/federate/simulate_test.cpp.
//
// May include: apps/draws, apps/federate/rounds, base.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "apps/federate/rounds/rounds.h"

namespace lumen::federate {

struct DeviceClass {
  double speed = 1;  // of float training, relative to the fastest class
  double gain = 1;   // of 8-bit integers over float
  double link = 1;   // bytes per second
};

struct SimulationSettings {
  FederateSettings run;
  std::vector<DeviceClass> classes = {{1, 3, 50e6 / 8}, {0.5, 2, 20e6 / 8}, {0.2, 1.5, 5e6 / 8}};
  double float_rate = 200;   // examples per second at speed 1
  double fake_share = 0.25;  // additional time of a step of Q, relative to float
  int64_t tested = 1000;     // examples per evaluation
  int64_t evaluate_every = 1;
  bool hides_labels = false;  // labels are private: distances follow from the clients' changes
};

struct SimulatedRound {
  double seconds = 0;                        // simulated, since the start
  double accuracy = 0, coded_accuracy = 0;   // of the average, and of the average in the weights' format
  double loss = 0;                           // mean of the clients' last epochs
  double aware = 0;                          // share of clients in Q
  double compute = 0, link = 0, set_up = 0;  // of the round's slowest client
  bool is_evaluated = false;
};
struct Simulated {
  std::vector<SimulatedRound> rounds;
  double overhead = 0;  // real seconds spent on choosing
  double wall = 0;      // real seconds in total
  Allocation last;
};

class Simulation {
 public:
  Simulation(run::Engine& engine, const model::arch::Library& library, SimulationSettings settings,
             const Examples& data, Parts parts, const Examples& test);
  // The facts about the clients before the first round.
  std::vector<ClientFacts> facts() const;
  // Starts from the same weights, with the same clients in each round, for any method. `told` is called after each
  // round. Stops early when `stop` becomes true.
  Simulated run(FederateMethod method, const std::function<void(int64_t, const SimulatedRound&)>& told = {},
                const std::atomic<bool>* stop = nullptr);
  apps::Network& network() { return network_; }
  LocalTrainer& trainer() { return trainer_; }
  const Weights& initial() const { return initial_; }
  // Additional time of a step of Q on this machine, relative to float, measured for about `seconds`.
  double measured_fake_share(double seconds);

 private:
  run::Engine& engine_;
  SimulationSettings settings_;
  const Examples& data_;
  Parts parts_;
  const Examples& test_;
  apps::Network network_;
  LocalTrainer trainer_;
  Weights initial_;
};

}  // namespace lumen::federate
