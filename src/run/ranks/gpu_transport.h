// Transport between GPUs by the vendor's library: NCCL or RCCL, loaded at run time (gpu_transport_symbols.def). It
// transfers bytes only; the engine computes sums, so that they have the same bits as with other transports. Proved by
// tests/run/ranks/gpu_transport_test.cpp against a mock.
#pragma once

#include <memory>
#include <string>

#include "run/ranks/transport.h"

namespace lumen::run {

class Communicator;
class Device;

// Null with a message to the user if there is no such library: GPU memory is then transferred through the host. Either
// all ranks have it or none. `title` becomes its name and version.
std::unique_ptr<Transport> open_gpu_transport(Communicator& ranks, Device& device, const std::string& name,
                                              std::string* title);

}  // namespace lumen::run
