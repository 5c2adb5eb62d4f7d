// A recipe of several phases: each is trained as a run of its own, in a folder below the run's, and begins with what
// the one before it left. Proved by tests/cli/phases_check.py.
#pragma once

#include <filesystem>

#include "cli/command.h"
#include "cli/train/train_flags.h"

namespace lumen::cli {

// Whether these flags ask for, or resume, a run in phases.
bool trains_in_phases(const Shared& shared, const TrainFlags& flags);

// `train` trains one phase; its exit code ends the run when it is not 0.
int train_phases(const Shared& shared, const TrainFlags& flags, int (*train)(const Shared&, TrainFlags&));

}  // namespace lumen::cli
