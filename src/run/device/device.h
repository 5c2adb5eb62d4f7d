// Where code runs. A device owns memory and launches kernels; it never sees graphs or formats.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernel/machine/machine.h"

namespace lumen::run {

// First failed guard of a launch list: {GuardCode, detail}; code 0 when all is well.
struct LaunchStatus {
  int64_t code = 0;
  int64_t detail = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const machine::Machine& machine() const = 0;
  virtual std::string describe() const = 0;    // one line for people
  virtual bool reads_host_memory() const = 0;  // kernels can be handed addresses of this process
  virtual void* allocate(int64_t bytes) = 0;   // 64-byte aligned, zeroed; Error (exit 3) when it does not fit
  virtual void release(void* memory) = 0;
  virtual void copy_in(void* to, const void* from, int64_t bytes) = 0;
  virtual void copy_out(void* to, const void* from, int64_t bytes) = 0;
  // `kernel` is what the engine got from loading an object for this device. Tasks are split over threads; same bits for
  // any count. `small`: too little work to wake other threads for.
  virtual void launch(void* kernel, void* const* buffers, int64_t tasks, LaunchStatus* status, bool small = false) = 0;
  virtual void synchronize() = 0;
};

std::unique_ptr<Device> open_cpu(machine::MachineRef machine, int threads);  // threads 0: all cores of this process
std::unique_ptr<Device> open_null();                                         // accepts everything, computes nothing

}  // namespace lumen::run
