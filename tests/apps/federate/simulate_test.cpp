// Needs: cpu. A whole run in one process on made-up images: it learns, and has the same bits again.
#include "apps/federate/simulate/simulate.h"

#include "tests/model/tiny.h"

namespace lumen::federate {

using model::engine;
using model::test_library;

namespace {

SimulationSettings small_simulation() {
  SimulationSettings s;
  s.run.network.family = "small_images";
  s.run.network.size = "xs";
  s.run.network.config = {{"size", 12}, {"classes", 4}, {"hidden", 32}};
  s.run.weights = s.run.upload = "int8_row";
  s.run.activations = "int8";
  s.run.batch = 16;
  s.run.rate = 0.05;
  s.run.refresh = 1;
  s.run.rounds = 30;
  s.run.sampled = 4;
  s.run.allocation.every = 2;
  s.run.allocation.first = 2;
  s.evaluate_every = 10;
  s.tested = 200;
  return s;
}

TEST(Simulations, LearnAndHaveTheSameBitsAgain) {
  const Examples data = examples_of(apps::made_up_images(600, 12, 1), 12),
                 test = examples_of(apps::made_up_images(200, 12, 2), 12);
  const Parts parts = class_wise_parts(data.shown, 4, 6, 0.5, 1);
  Simulation simulation(engine(), *test_library(), small_simulation(), data, parts, test);
  const Simulated full = simulation.run(FederateMethod::full);
  EXPECT_GT(full.rounds.back().accuracy, 0.7) << "four kinds of shapes";
  SimulationSettings few = small_simulation();
  few.run.rounds = 5;
  Simulation beginning(engine(), *test_library(), few, data, parts, test);
  const Simulated some = beginning.run(FederateMethod::coarse), again = beginning.run(FederateMethod::coarse),
                  after = beginning.run(FederateMethod::after);
  EXPECT_EQ(some.rounds.back().loss, again.rounds.back().loss);
  EXPECT_EQ(some.rounds.back().accuracy, again.rounds.back().accuracy);
  EXPECT_EQ(after.rounds.back().aware, 0);
  EXPECT_LE(after.rounds.back().seconds, some.rounds.back().seconds) << "nothing is faster than all in P";
  EXPECT_LT(full.overhead, 0.01 * full.rounds.back().seconds);
}

}  // namespace
}  // namespace lumen::federate
