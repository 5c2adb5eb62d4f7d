// Ranks that mpirun or srun has started, by Open MPI's library (libmpi.so.40: Open MPI 3 to 5, Debian's libopenmpi3),
// opened at run time. The binary interface is Open MPI's: handles are pointers, and the world and the type of bytes are
// objects of the library. MPICH's is another.
#pragma once

#include <memory>

#include "run/ranks/ranks.h"

namespace lumen::run {

std::unique_ptr<Transport> join_mpi(const RankPlace& place);

}  // namespace lumen::run
