#include "cli/train/train_ranks.h"

#include <sched.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/messages/log_rank.h"
#include "run/device/gpu/gpu.h"
#include "run/ranks/environment.h"
#include "run/ranks/launch.h"

namespace lumen::cli {
namespace {

int usable_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// "cuda" stands for one GPU per rank of this host.
std::string device_of_rank(const std::string& device, int local_rank) {
  if (device == "cuda" || device == "hip") return fmt::format("{}:{}", device, local_rank);
  if (device != "auto") {
    if (device.find(':') != std::string::npos)
      throw Error(Exit::usage, fmt::format("--device {} is one GPU, but there are several ranks", device),
                  "leave out the number: each rank takes the GPU with its own on the host");
    return device;
  }
  for (const run::GpuVendor vendor : {run::GpuVendor::cuda, run::GpuVendor::hip})
    if (std::ssize(run::survey_gpus(vendor).gpus) > local_rank)
      return fmt::format("{}:{}", run::vendor_name(vendor), local_rank);
  return "cpu";
}

int as_rank(const Shared& shared, const TrainFlags& flags, std::shared_ptr<run::Communicator> ranks,
            int (*train)(const Shared&, TrainFlags&)) {
  set_log_rank(ranks->rank());
  if (is_secondary_rank()) set_verbosity(Verbosity::quiet);
  note(fmt::format("{}", ranks->describe()));
  try {
    Shared own = shared;
    own.device = device_of_rank(shared.device, ranks->local_rank());
    if (own.threads == 0) own.threads = std::max(1, usable_cores() / ranks->local_size());
    own.tune =
        shared.tune && ranks->local_rank() == 0;  // only local rank 0 tunes kernels; the others use its cached results
    TrainFlags mine = flags;
    mine.ranks = ranks;
    return train(own, mine);
  } catch (const run::RankLost& lost) {
    ranks->abort(lost.what());
    // Only one of the remaining ranks reports it.
    if (ranks->rank() == (lost.rank() == 0 ? 1 : 0) && !(lost.rank() == 0 && lost.has_told())) throw;
    return exit_code(lost.code());
  } catch (const Error& error) {
    ranks->abort(error.what());
    if (ranks->rank() == 0) throw;
    return exit_code(error.code());  // the first rank reports the error, or has the same one
  } catch (const std::exception& error) {
    ranks->abort(error.what());
    throw;
  }
}

}  // namespace

bool has_ranks(const TrainFlags& flags) {
  return flags.ranks_here > 1 || run::ranks_of_environment().has_value();
}

int train_by_ranks(const Shared& shared, TrainFlags& flags, int (*train)(const Shared&, TrainFlags&)) {
  if (flags.print_config || flags.plan) return train(shared, flags);
  if (const auto environment = run::ranks_of_environment()) {
    if (flags.ranks_here > 1 && flags.ranks_here != environment->place.size)
      throw usage_error("--ranks {} contradicts {}, which has started {} processes", flags.ranks_here,
                        environment->starter_name(), environment->place.size);
    return as_rank(shared, flags, run::join_ranks(*environment), train);
  }
  if (flags.ranks_here <= 1) {
    if (flags.has("ranks.tensor_parallel") && flags.text("ranks.tensor_parallel") != "1")
      throw Error(Exit::usage,
                  fmt::format("--tensor-parallel {}: there is one process", flags.text("ranks.tensor_parallel")),
                  "--ranks starts as many, or more");
    for (const char* key : {"ranks.shard", "ranks.reduce_type", "ranks.gather_type", "ranks.sequence_parallel"})
      if (flags.has(key) && flags.text(key) != "none" && flags.text(key) != "f32" && flags.text(key) != "false")
        note(fmt::format("{} = {} changes nothing: there is only one process", key, flags.text(key)));
    return train(shared, flags);
  }
  if (is_guest())
    throw Error(Exit::usage, "--ranks starts processes, which a command inside another program does not",
                "run `lumen train` (or `python -m lumen_compiler train`) as a program of its own");
  return run::run_ranks(flags.ranks_here, [&](std::unique_ptr<run::Communicator> ranks) {
    return report_errors([&] { return as_rank(shared, flags, std::move(ranks), train); });
  });
}

}  // namespace lumen::cli
