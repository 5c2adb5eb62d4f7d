// Rank and size of this process from the environment of its launcher: torchrun, Slurm, Open MPI, or the same variables
// set by the user. Proved by tests/run/ranks/environment_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/ranks/ranks.h"

namespace lumen::run {

struct RanksOfEnvironment {
  enum class Starter : uint8_t { torchrun, slurm, mpi } starter = Starter::torchrun;
  RankPlace place;
  std::string host;  // host that rank 0 listens on; unused under MPI
  int port = 0;
  std::string token;  // shared secret of the ranks
  const char* starter_name() const;
};

// nullopt if no launcher has started this process, or it is the only rank. `variable`: returns a variable's text, or
// null. Error (usage) when variables contradict each other or are not numbers.
std::optional<RanksOfEnvironment> ranks_of_environment(const std::function<const char*(const char*)>& variable);
std::optional<RanksOfEnvironment> ranks_of_environment();

// "node[07-09,12],login" starts with "node07". Error if it is not a list of hosts.
std::string first_host(const std::string& list);

// Joins the other ranks as the environment specifies: by TCP, or by the MPI library.
std::unique_ptr<Communicator> join_ranks(const RanksOfEnvironment& environment);

}  // namespace lumen::run
