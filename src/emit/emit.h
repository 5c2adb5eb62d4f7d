// The code generator's door and the only floor that sees LLVM: loop kernels in; LLVM text, assembly or objects out, for
// any target on any machine. It never sees tensors or a format's name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

enum class Output : uint8_t { llvm, assembly, object, commented_assembly };

// Calling convention on CPUs: void kernel(void* const* buffers, int64_t begin, int64_t end, int64_t* status)
//   runs iterations [begin, end) of the top parallel loop; status points to {code, detail} and is written on the first
//   guard failure.
using CpuKernel = void (*)(void* const* buffers, int64_t begin, int64_t end, int64_t* status);

// Calling convention on GPUs: symbol(ptr buffer0, ..., ptr status), 8-byte addresses in device memory, one for each
// param
//   and one of int64 {code, detail}, zeroed by the caller; the first guard failure is kept there. The launch has
//   exactly the shape launch_shape says: the code relies on it.
struct LaunchShape {
  int64_t blocks = 1;
  int threads = 1;           // of a block
  int64_t shared_bytes = 0;  // dynamic ones, beside what the module says itself
};
LaunchShape launch_shape(const loop::Kernel& k, const machine::Machine& target);  // target: a GPU

// One module with all kernels; symbols are symbol_name(kernel). An object is what the target's loader takes: a
// relocatable file of its format for CPUs, PTX text for NVIDIA, a linked code object for AMD.
std::string emit(std::span<const loop::Kernel> kernels, const machine::Machine& target, Output output);
std::string symbol_name(const loop::Kernel& k);

// Versions that decide about cache validity: LLVM and this floor.
std::string version();

// This processor, as LLVM describes it.
struct Host {
  std::string triple, cpu, features;
};
Host host();

// Loads object bytes into this process; functions live as long as the module.
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
