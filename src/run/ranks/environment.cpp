#include "run/ranks/environment.h"

#include <charconv>
#include <cstdlib>

#include "run/ranks/mpi.h"
#include "run/ranks/tcp.h"

namespace lumen::run {
namespace {

using Starter = RanksOfEnvironment::Starter;
constexpr int kMostRanks = 4096;

// Variable names of each launcher; the first with both a rank and a size is used.
struct Names {
  Starter starter;
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Names kNames[] = {
    {Starter::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {Starter::mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Starter::slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
};

class Variables {
 public:
  explicit Variables(const std::function<const char*(const char*)>& get) : get_(get) {}
  std::string text(const char* name) const {
    const char* value = *name ? get_(name) : nullptr;
    return value ? value : "";
  }
  int number(const char* name, int least, int most, int otherwise) const {
    const std::string value = text(name);
    if (value.empty()) return otherwise;
    int n = 0;
    const char* end = value.data() + value.size();
    const auto [at, wrong] = std::from_chars(value.data(), end, n);
    if (wrong != std::errc() || at != end || n < least || n > most)
      throw usage_error("the variable {} must be {} to {}, not '{}'", name, least, most, value);
    return n;
  }

 private:
  const std::function<const char*(const char*)>& get_;
};

// "4(x2),3": tasks per node, here 4 on each of two nodes and 3 on the next. Returns the first.
int first_count(const std::string& tasks) {
  int n = 0;
  const auto [at, wrong] = std::from_chars(tasks.data(), tasks.data() + tasks.size(), n);
  return wrong == std::errc() && n > 0 ? n : 1;
}

}  // namespace

const char* RanksOfEnvironment::starter_name() const {
  return starter == Starter::torchrun ? "torchrun" : starter == Starter::slurm ? "Slurm" : "Open MPI";
}

std::string first_host(const std::string& list) {
  const auto wrong = [&] { return usage_error("'{}' is no list of hosts", list); };
  const size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end != std::string::npos && list[end] == '[') {
    const size_t number = end + 1, stop = list.find_first_of("-,]", number);
    if (stop == std::string::npos || stop == number) throw wrong();
    host += list.substr(number, stop - number);
    const size_t close = list.find(']', stop);
    if (close == std::string::npos) throw wrong();
    host += list.substr(close + 1, list.find(',', close) - close - 1);
  }
  if (host.empty() || host.find_first_of(" []/\n") != std::string::npos) throw wrong();
  return host;
}

std::optional<RanksOfEnvironment> ranks_of_environment(const std::function<const char*(const char*)>& variable) {
  const Variables variables(variable);
  for (const Names& names : kNames) {
    if (variables.text(names.rank).empty() || variables.text(names.size).empty()) continue;
    // A batch script has these variables, too, but is not a task of a step.
    if (names.starter == Starter::slurm && variables.text("SLURM_STEP_NODELIST").empty()) continue;
    RanksOfEnvironment out;
    out.starter = names.starter;
    out.place.size = variables.number(names.size, 1, kMostRanks, 1);
    if (out.place.size == 1) continue;
    out.place.rank = variables.number(names.rank, 0, out.place.size - 1, 0);
    const int on_host = names.starter == Starter::slurm ? first_count(variables.text("SLURM_STEP_TASKS_PER_NODE"))
                                                        : variables.number(names.local_size, 1, kMostRanks, 1);
    out.place.local_rank = variables.number(names.local_rank, 0, kMostRanks, 0);
    out.place.local_size = std::max(on_host, out.place.local_rank + 1);
    out.host = variables.text("MASTER_ADDR");
    const std::string job = variables.text("SLURM_JOB_ID");
    if (names.starter == Starter::slurm && out.host.empty())
      out.host = first_host(variables.text("SLURM_STEP_NODELIST"));
    if (out.host.empty()) out.host = "127.0.0.1";
    // The port depends on the job number, because several jobs may share a host.
    constexpr int kFirstPort = 29500, kPorts = 10000;
    const int by_job = kFirstPort + (job.empty() ? 0 : variables.number("SLURM_JOB_ID", 0, 2147483647, 0) % kPorts);
    out.port = variables.number("MASTER_PORT", 1, 65534, by_job);
    // torchrun's own store uses this port.
    if (!variables.text("TORCHELASTIC_RUN_ID").empty()) ++out.port;
    out.port = variables.number("LUMEN_PORT", 1, 65535, out.port);
    out.token = variables.text("LUMEN_TOKEN");
    if (out.token.empty()) out.token = variables.text("TORCHELASTIC_RUN_ID") + "/" + job;
    return out;
  }
  return std::nullopt;
}

std::optional<RanksOfEnvironment> ranks_of_environment() {
  return ranks_of_environment([](const char* name) -> const char* { return std::getenv(name); });
}

std::unique_ptr<Communicator> join_ranks(const RanksOfEnvironment& e) {
  if (e.starter == Starter::mpi) return std::make_unique<Communicator>(e.place, join_mpi(e.place));
  return std::make_unique<Communicator>(e.place, join_tcp({e.host, e.port, e.token}, e.place.rank, e.place.size));
}

}  // namespace lumen::run
