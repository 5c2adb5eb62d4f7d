// GPUs of several ranks by the library of their vendor: NCCL or RCCL, opened at run time (gpu_transport_symbols.def).
// It carries bytes alone; sums are the engine's, so that they have the bits that other transports give. Proved by
// tests/run/ranks/gpu_transport_test.cpp against a stand-in.
#pragma once

#include <memory>
#include <string>

#include "run/ranks/transport.h"

namespace lumen::run {

class Communicator;
class Device;

// Null, and people are told why, where there is no such library: memory of GPUs then goes through the host. All ranks
// have it or none. `title` becomes its name and version.
std::unique_ptr<Transport> open_gpu_transport(Communicator& ranks, Device& device, const std::string& name,
                                              std::string* title);

}  // namespace lumen::run
