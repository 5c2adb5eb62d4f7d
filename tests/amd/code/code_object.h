// Kernels of a code object: what the hardware's loader and the runtime read before a launch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "tests/amd/chip.h"
#include "tests/amd/code/elf.h"

namespace lumen::amd {

// The kernel descriptor, 64 bytes, taken apart, and what the metadata says of the same kernel.
struct KernelCode {
  std::string symbol;
  uint64_t entry = 0, code_bytes = 0;  // in the object's memory
  int lds_bytes = 0, private_bytes = 0, kernarg_bytes = 0;
  int vgprs = 0, agprs = 0;  // allocated
  int user_sgprs = 0;
  bool group_x = false, group_y = false, group_z = false, group_info = false, private_segment = false;
  bool private_buffer = false, dispatch_ptr = false, queue_ptr = false, kernarg_ptr = false, dispatch_id = false,
       flat_scratch_init = false, private_size = false;
  int kernarg_preload = 0;
  int wave = 64, item_ids = 0;
  unsigned mode = 0xf0;  // the MODE register: 0..3 rounding, 4..7 denormals
  bool ieee = false, dx10_clamp = false;
  int most_threads = 0;
};

struct CodeObject {
  Elf elf;
  std::map<std::string, KernelCode> kernels;
};

// Faults where a loader would refuse, and where descriptor and metadata differ.
// `xnack`: whether the chip repeats accesses that faulted; nothing: it has no such setting.
CodeObject read_code_object(const Chip& chip, std::span<const uint8_t> file, std::optional<bool> xnack = {});

}  // namespace lumen::amd
