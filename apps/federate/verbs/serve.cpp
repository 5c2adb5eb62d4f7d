// lumen federate serve -o RUN: the server of a federated run

#include "apps/federate/verbs/verbs.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "base/net/net.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

constexpr double kFarewell = 5;  // seconds in which clients may hear that it is over

struct FederateServeFlags {
  FederateFlags run;
  std::string out, listen = "127.0.0.1:7171", test;
  bool resume = false;
  int64_t tested = 1000;
  ServeLimits limits{.connections = 64, .seconds = 60, .rate = 50, .answers = 0, .most = 0};
};

std::unique_ptr<federate::FederateServer> begun(const Shared& shared, run::Engine& engine,
                                                const model::arch::Library& library, const FederateServeFlags& flags) {
  const auto say = [](const std::string& line) {
    put(line + "\n");
    finish_output();
  };
  if (flags.resume)
    return federate::FederateServer::resumed(engine, library, flags.out, flags.run.settings.rounds, say);
  if (model::file::latest_checkpoint(flags.out))
    throw Error(Exit::usage, fmt::format("{} holds a run", flags.out),
                "--resume goes on with it; or name another folder");
  if (flags.run.settings.network.family.empty())
    throw Error(Exit::usage, "no --family", "one with logits and a loss, see docs/guide/federate.md");
  federate::FederateSettings settings = flags.run.of(library);
  settings.sampled = std::min(settings.sampled, settings.clients);
  if (settings.is_secure && settings.sampled < int64_t(federate::kLeastGroup))
    throw usage_error("--secure needs {} clients in a round: a sum of fewer reveals too much", federate::kLeastGroup);
  return std::make_unique<federate::FederateServer>(engine, library, std::move(settings), flags.out, say);
}

int federate_serve(const Shared& shared, FederateServeFlags flags) {
  const model::arch::LibraryRef library = shared.library();
  const FolderLock lock(flags.out);
  run::Engine engine = shared.engine();
  const auto server = begun(shared, engine, *library, flags);
  std::optional<federate::Examples> test;
  if (!flags.test.empty()) {
    test = read_examples(flags.test, "t10k", server->settings(), *library);
    server->on_round = [&] {
      put(fmt::format("round {} | accuracy {:.4f} of {} held out\n", server->round(),
                      federate::accuracy_of(server->network(), server->weights(), *test, flags.tested),
                      std::min(flags.tested, test->count())));
      finish_output();
    };
  }
  flags.limits.most = server->most_bytes();
  catch_interrupts();
  const SavesWhenStopped rounds;
  const Address address = parse_address(flags.listen);
  std::optional<Stopwatch> over;
  const Server frames{federate::kFederate, "clients", [&](const Frame& frame) { return server->answer(frame); },
                      [&](int port) {
                        put(fmt::format("listening at {}:{} | {}: {} numbers | from round {} of {}\n", address.host,
                                        port, server->settings().network.family, server->network().trained_numbers(),
                                        server->round(), server->settings().rounds));
                        finish_output();
                      },
                      [&] {
                        server->look_at_clock();
                        if (!server->is_done()) return true;
                        if (!over) over.emplace();
                        return !server->all_know() && over->seconds() < kFarewell;
                      }};
  const ServeCounts counts = serve_frames(address, flags.limits, frames, interrupted());
  put(fmt::format("{} answers on {} connections, {} refused; {} bytes in, {} out\n", counts.answered,
                  counts.connections, counts.refused, counts.bytes_in, counts.bytes_out));
  if (!server->is_done()) {
    note(fmt::format("interrupted in round {}; --resume goes on from there", server->round() + 1));
    return exit_code(Exit::interrupted);
  }
  put(fmt::format("wrote {}\n", model::file::latest_checkpoint(flags.out)->string()));
  return 0;
}

}  // namespace

void add_federate_serve(CLI::App& app, Command& command) {
  auto flags = std::make_shared<FederateServeFlags>();
  CLI::App* sub = app.add_subcommand("serve", "Run the server: rounds, averages, a checkpoint after each");
  federate::FederateSettings& s = flags->run.settings;
  flags->run.add(*sub, true);
  add_settings(*sub, "--out", flags->out, "--clients", s.clients, "--deadline", s.deadline, "--secure", s.is_secure,
               "--listen", flags->listen, "--connections", flags->limits.connections, "--asks", flags->limits.rate,
               "--idle", flags->limits.seconds, "--test", flags->test, "--tested", flags->tested, "--resume",
               flags->resume);
  set_action(*sub, command, flags, federate_serve);
}

}  // namespace lumen::cli
