// Which rank of how many this process is, as those that start processes say it: torchrun, Slurm, Open MPI, or a person
// by the same variables. Proved by tests/run/ranks/environment_test.cpp.
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
  std::string host;  // where rank 0 listens; unused under MPI
  int port = 0;
  std::string token;  // who does not know it is no rank
  const char* starter_name() const;
};

// Nothing where no launcher has started this process, or one rank alone. `variable`: its text, or null. Error (usage)
// when variables contradict each other or are no numbers.
std::optional<RanksOfEnvironment> ranks_of_environment(const std::function<const char*(const char*)>& variable);
std::optional<RanksOfEnvironment> ranks_of_environment();

// "node[07-09,12],login" begins with "node07". Error when it is no list of hosts.
std::string first_host(const std::string& list);

// Joins the others by what the environment says: TCP, or the library of MPI.
std::unique_ptr<Communicator> join_ranks(const RanksOfEnvironment& environment);

}  // namespace lumen::run
