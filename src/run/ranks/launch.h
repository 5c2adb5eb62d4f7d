// Starts ranks on this host: forks, connects them by shared memory, watches them, and exits with their code. Proved by
// tests/run/ranks/launch_test.cpp.
#pragma once

#include <functional>
#include <memory>

#include "run/ranks/ranks.h"

namespace lumen::run {

// Runs `rank` in `size` processes forked from this one, which must have no other threads. Returns the common result, or
// the first result other than 0; a rank killed by a signal is reported and counts as 1. Signals that ask this process
// to end are forwarded to all ranks.
int run_ranks(int size, const std::function<int(std::unique_ptr<Communicator>)>& rank);

}  // namespace lumen::run
