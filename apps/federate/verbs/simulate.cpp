// lumen federate simulate DATA: all clients in one process, time reckoned
#include "apps/federate/simulate/simulate.h"

#include "apps/federate/verbs/verbs.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

struct SimulateFlags {
  FederateFlags run;
  std::string data, how = "dir:0.5";
  int64_t clients = 20, examples = 0;
  federate::SimulationSettings simulation;
  double measure = 0;
};

int simulate(const Shared& shared, SimulateFlags flags) {
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  const federate::FederateSettings plain = flags.run.of(*library);
  const federate::Examples all =
      some_examples(read_examples(flags.data, "train", plain, *library), flags.examples, plain.seed);
  const federate::Examples test = read_examples(flags.data, "t10k", plain, *library);
  flags.simulation.run = flags.run.of(*library, all);
  const federate::Parts parts = parts_named(flags.how, all, flags.clients, flags.simulation.run.seed);
  federate::Simulation simulation(engine, *library, flags.simulation, all, parts, test);
  put(fmt::format("{}: {} numbers; {} clients with {} examples, {}; {} bytes down, {} up in P and Q\n",
                  flags.simulation.run.network.family, simulation.network().trained_numbers(), parts.size(),
                  all.count(), flags.how, 4 * simulation.network().trained_numbers(),
                  federate::change_bytes(simulation.network(), simulation.trainer().settings().formats.upload)));
  if (flags.measure > 0)
    put(fmt::format("on this machine a step of Q takes {:.2f} of one in float; the simulation takes {:.2f}\n",
                    1 + simulation.measured_fake_share(flags.measure), 1 + flags.simulation.fake_share));
  catch_interrupts();
  const auto method = flags.simulation.run.method;
  const federate::Simulated done = simulation.run(
      method,
      [&](int64_t round, const federate::SimulatedRound& r) {
        const std::string line = fmt::format("round {}/{} | {:.1f} s simulated | loss {:.4f} | {:.0f} % in Q",
                                             round + 1, flags.simulation.run.rounds, r.seconds, r.loss, 100 * r.aware);
        if (r.is_evaluated)
          put(line +
              fmt::format(" | accuracy {:.4f}, {:.4f} with weights in their format\n", r.accuracy, r.coded_accuracy));
      },
      &interrupted());
  if (interrupted()) return exit_code(Exit::interrupted);
  const double each = done.overhead / double(done.rounds.size()), simulated = done.rounds.back().seconds;
  put(fmt::format("choosing took {:.3f} ms in all, {:.4f} ms a round: {:.5f} % of the simulated time; {} real\n",
                  done.overhead * 1e3, each * 1e3, 100 * done.overhead / simulated, format_duration(done.wall)));
  return 0;
}

}  // namespace

federate::Examples some_examples(federate::Examples all, int64_t count, uint64_t seed) {
  if (count <= 0 || count >= all.count()) return all;
  const federate::Parts drawn = federate::even_parts(all.count(), all.count() / count, seed);
  return federate::chosen(all, std::span(drawn[0]).first(std::min<size_t>(drawn[0].size(), size_t(count))));
}

void add_simulation_flags(CLI::App& app, federate::SimulationSettings& s) {
  add_settings(app, "--hide-labels", s.hides_labels, "--speed", s.float_rate, "--fake-share", s.fake_share, "--tested",
               s.tested, "--eval-every", s.evaluate_every);
}

void add_federate_simulate(CLI::App& app, Command& command) {
  auto flags = std::make_shared<SimulateFlags>();
  flags->run.settings.sampled = 10;
  CLI::App* sub = app.add_subcommand("simulate", "A federated run in one process, in simulated seconds");
  add_setting(*sub, "data", flags->data);
  flags->run.add(*sub, true);
  add_settings(*sub, "--how", flags->how, "--clients", flags->clients, "--examples", flags->examples, "--measure",
               flags->measure);
  add_simulation_flags(*sub, flags->simulation);
  set_action(*sub, command, flags, simulate);
}

}  // namespace lumen::cli
