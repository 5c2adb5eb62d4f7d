// The code generator and the only user of LLVM: loop kernels in; LLVM text, assembly or objects out (PTX for NVIDIA),
// for any target on any host. It never sees tensors or a format's name.
//
// May include: base, base/file, emit/lower, kernel/loop, kernel/machine.
// Offers: report.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emit/lower/launch.h"
#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

enum class Output : uint8_t { llvm, assembly, object, commented_assembly };

// Calling convention on CPUs: void kernel(void* const* buffers, int64_t begin, int64_t end, int64_t* status)
//   runs iterations [begin, end) of the top parallel loop. A second instance's iterations follow the first's, and its
// buffers follow the first's buffers. status points to {code, detail} and is written on the first guard failure.
using CpuKernel = void (*)(void* const* buffers, int64_t begin, int64_t end, int64_t* status);

// One module with all kernels; symbols are symbol_name(kernel). An object is the input of the target's loader: a
// relocatable file of its format for CPUs, PTX text for NVIDIA, a linked code object for AMD.
std::string emit(std::span<const loop::Kernel> kernels, const machine::Machine& target, Output output);

// Versions that determine cache validity: LLVM and this code generator.
std::string version();

// This processor, as LLVM describes it.
struct Host {
  std::string triple, cpu, features;
};
Host host();

// Loads object bytes into this process; functions are valid while the module exists.
class LoadedModule {
 public:
  explicit LoadedModule(std::span<const uint8_t> object);
  LoadedModule(LoadedModule&&) noexcept;
  LoadedModule& operator=(LoadedModule&&) noexcept;
  ~LoadedModule();
  CpuKernel find(const std::string& symbol) const;  // LUMEN_CHECK when missing

 private:
  struct State;
  State* state_ = nullptr;
};

}  // namespace lumen::emit
