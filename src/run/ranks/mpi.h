// Ranks started by mpirun or srun, through Open MPI's library (libmpi.so.40: Open MPI 3 to 5, Debian's libopenmpi3),
// loaded at run time. It uses Open MPI's ABI: handles are pointers, and the world communicator and the byte type are
// objects of the library. MPICH's ABI differs.
#pragma once

#include <memory>

#include "run/ranks/ranks.h"

namespace lumen::run {

std::unique_ptr<Transport> join_mpi(const RankPlace& place);

}  // namespace lumen::run
