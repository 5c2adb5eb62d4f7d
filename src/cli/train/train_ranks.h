// lumen train as one of several ranks, which --ranks starts on this host, or which torchrun, srun or mpirun has
// started. Proved by tests/cli/ranks_check.py.
#pragma once

#include "cli/command.h"
#include "cli/train/train_flags.h"

namespace lumen::cli {

// Whether several processes are requested or already started.
bool has_ranks(const TrainFlags& flags);

// Runs `train` in this process alone, or as one of several ranks.
int train_by_ranks(const Shared& shared, TrainFlags& flags, int (*train)(const Shared&, TrainFlags&));

}  // namespace lumen::cli
