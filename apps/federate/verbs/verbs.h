// Commands of federated training: data parted, a server, clients, runs in one process, a comparison of all methods.
//
// May include: apps/federate/rounds, apps/federate/simulate, apps/spread, base, base/file, base/net, base/structured,
// cli, cli/settings, model/file, model/report.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/federate/rounds/rounds.h"
#include "apps/federate/simulate/simulate.h"
#include "cli/command.h"
#include "cli/settings/settings.h"

namespace lumen::cli {

// Adds `lumen federate` to the program (apps/CMakeLists.txt), whose options are these rows of the table.
void add_federate(CLI::App& app, Command& command);
std::span<const Setting> federate_rows();
// Each adds a command to `lumen federate`.
void add_federate_partition(CLI::App& app, Command& command);
void add_federate_serve(CLI::App& app, Command& command);
void add_federate_join(CLI::App& app, Command& command);
void add_federate_simulate(CLI::App& app, Command& command);
void add_federate_study(CLI::App& app, Command& command);

// What a run is, as flags.
struct FederateFlags {
  federate::FederateSettings settings;
  std::string method = "full";
  std::vector<std::string> config;
  void add(CLI::App& app, bool has_method);
  // The settings of a run on such data: the family's numbers of classes and channels follow from them.
  federate::FederateSettings of(const model::arch::Library& library, const federate::Examples& data) const;
  // The same where the server has no data.
  federate::FederateSettings of(const model::arch::Library& library) const;
};

// Examples of a folder: images and labels (IDX), or text.txt; of a part ("train", "t10k"). `span`: of the family, that
// reads letters; `side`: of images.
federate::Examples read_examples(const std::string& folder, const std::string& part, int64_t side, int64_t span);
// The same as the family reads them.
federate::Examples read_examples(const std::string& folder, const std::string& part,
                                 const federate::FederateSettings& s, const model::arch::Library& library);

// So many of them, drawn; 0: all.
federate::Examples some_examples(federate::Examples all, int64_t count, uint64_t seed);
void add_simulation_flags(CLI::App& app, federate::SimulationSettings& settings);

// "iid", "dir:0.5", "client:0.5": even, Dirichlet by class, Dirichlet by client. Error (usage).
federate::Parts parts_named(const std::string& text, const federate::Examples& data, int64_t clients, uint64_t seed);

}  // namespace lumen::cli
