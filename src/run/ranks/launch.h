// Starts ranks on this host: forks, joins them by shared memory, watches them, and ends with their code. Proved by
// tests/run/ranks/launch_test.cpp.
#pragma once

#include <functional>
#include <memory>

#include "run/ranks/ranks.h"

namespace lumen::run {

// Runs `rank` in so many processes that are forked from this one, which must have no other threads. Returns what all
// have returned, or the code of the first that returned another than 0; a rank that a signal has ended is told and
// counts as 1. Signals that ask this process to end go to all ranks.
int run_ranks(int size, const std::function<int(std::unique_ptr<Communicator>)>& rank);

}  // namespace lumen::run
