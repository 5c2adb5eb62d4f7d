// A recipe with several phases: each is trained as a run of its own, in a subfolder of the run, and starts from the
// result of the phase before. Proved by tests/cli/phases_check.py.
#pragma once

#include <filesystem>

#include "cli/command.h"
#include "cli/train/train_flags.h"

namespace lumen::cli {

// Whether these options start or resume a run in phases.
bool trains_in_phases(const Shared& shared, const TrainFlags& flags);

// `train` trains one phase; a nonzero exit code ends the run.
int train_phases(const Shared& shared, const TrainFlags& flags, int (*train)(const Shared&, TrainFlags&));

}  // namespace lumen::cli
