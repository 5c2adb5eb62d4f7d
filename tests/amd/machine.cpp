// See machine.h. Registers at the beginning: LLVM's AMDGPU usage guide, "Initial kernel execution state".
#include "tests/amd/machine.h"

#include <cstring>

#include "tests/amd/decode/decoder.h"
#include "tests/amd/fault.h"
#include "tests/amd/planted.h"
#include "tests/amd/wave/wave.h"

namespace lumen::amd {
namespace {

constexpr uint64_t kArguments = uint64_t{1} << 43;         // where the segment of arguments lies
constexpr uint64_t kMostInstructions = uint64_t{1} << 33;  // of a work-group, before it is taken for hung

void set_registers(const Chip& chip, const KernelCode& k, unsigned group, Wave* w) {
  // What a launch passes beside the arguments keeps the untouched registers' bits: whoever uses it reaches no memory.
  if (k.kernarg_preload != 0) fault("arguments in registers are not known");
  const int before = 4 * k.private_buffer + 2 * (k.dispatch_ptr + k.queue_ptr);
  if (k.private_buffer)
    for (size_t n = 0; n < 4; ++n) w->scalar[n] = kPrivateBuffer[n];
  if (k.kernarg_ptr) w->set_wide(before, kArguments);
  auto s = static_cast<size_t>(k.user_sgprs);
  if (chip.group_in_ttmp) {
    w->scalar[kTtmp + 9] = group;
    w->scalar[kTtmp + 7] = 0;
  } else {
    if (k.group_x) w->scalar[s++] = group;
    if (k.group_y) w->scalar[s++] = 0;
    if (k.group_z) w->scalar[s++] = 0;
  }
  if (k.private_segment && !chip.flat_scratch) w->scalar[s++] = 0;  // where the wave's own begins
  if (k.group_info) fault("work-group information is not known");
  w->scalar[kM0] = 0xffffffff;
  w->mode = k.mode;
  w->ieee = k.ieee;
  if (chip.major < 12 && !k.ieee) fault("MODE.IEEE is off: minima of NaNs are not known");
  if (k.mode != 0xf0) fault("MODE {:#x}: other rounding, or denormals flushed, is not known", k.mode);
}

// No register behind those that the descriptor allocates.
void check_registers(const KernelCode& k, const std::vector<Instruction>& code) {
  for (const Instruction& i : code)
    for (const auto* spans : {&i.vector_reads, &i.vector_writes})
      for (const Span& s : *spans) {
        const bool accumulation = s.first >= kAccumulation;
        const int end = s.first + s.count - (accumulation ? kAccumulation : 0);
        if (end > (accumulation ? k.agprs : k.vgprs))
          fault("kernel {}: at {:#x}: {}: {} vector registers are allocated", k.symbol, i.address, i.text,
                accumulation ? k.agprs : k.vgprs);
      }
}

}  // namespace

std::unique_ptr<LoadedObject> Machine::load(std::span<const uint8_t> file) {
  auto loaded = std::make_unique<LoadedObject>();
  loaded->object = read_code_object(chip_, file, xnack_);
  for (const auto& [symbol, code] : loaded->object.kernels) loaded->kernels[symbol].code = code;
  loaded->base = next_base_;
  std::vector<uint8_t>& memory = loaded->object.elf.memory;
  next_base_ += (memory.size() + 0x10000) / 0x10000 * 0x10000 + 0x10000;
  memory_.add(loaded->base, memory.size(), memory.data(), false);
  return loaded;
}

void Machine::unload(LoadedObject& object) {
  memory_.remove(object.base);
}

void Machine::execute(LoadedObject& object, LoadedKernel& kernel, const Launch& launch, unsigned number) {
  const KernelCode& k = kernel.code;
  const int lanes = chip_.wave;
  const auto waves =
      static_cast<int>((launch.threads + static_cast<unsigned>(lanes) - 1) / static_cast<unsigned>(lanes));
  Group group{Lds(k.lds_bytes + static_cast<int>(launch.shared_bytes)), {}};
  for (int n = 0; n < waves; ++n) {
    Wave w(chip_, lanes, n);
    set_registers(chip_, k, number, &w);
    for (int r = 0; r < kVectors; ++r) {
      const bool allocated = r < k.vgprs || (r >= kAccumulation && r < kAccumulation + k.agprs);
      if (allocated) (*w.vector)[static_cast<size_t>(r)].fill(kUntouched);
    }
    const int rest = static_cast<int>(launch.threads) - n * lanes;
    w.set_exec(rest >= lanes ? w.all() : (uint64_t{1} << rest) - 1);
    for (int l = 0; l < lanes; ++l) (*w.vector)[0][static_cast<size_t>(l)] = static_cast<uint32_t>(n * lanes + l);
    w.memory = &memory_;
    w.counts_banks = counts_banks_;
    if (counts_) w.executed.assign(kernel.instructions.size(), 0);
    w.vectors = k.vgprs;
    w.code_base = object.base;
    w.private_bytes = k.private_bytes;
    w.private_memory.assign(static_cast<size_t>(k.private_bytes) * static_cast<size_t>(lanes), 0xff);
    group.waves.push_back(std::move(w));
  }
  uint64_t budget = kMostInstructions;
  try {
    execute_group(group, kernel.instructions, &budget);
  } catch (const Fault& f) {
    fault("kernel {}: work-group {}: {}", k.symbol, number, f.what());
  }
  executed_ += kMostInstructions - budget;
  if (counts_)
    for (Wave& w : group.waves) counts_->push_back(std::move(w.executed));
  lds_cycles_.all += group.lds.cycles().all;
  lds_cycles_.least += group.lds.cycles().least;
}

void Machine::launch(LoadedObject& object, LoadedKernel& kernel, const Launch& launch) {
  const KernelCode& k = kernel.code;
  if (launch.arguments.size() != static_cast<size_t>(k.kernarg_bytes))
    fault("kernel {}: {} bytes of arguments, {} expected", k.symbol, launch.arguments.size(), k.kernarg_bytes);
  if (launch.threads == 0 || static_cast<int>(launch.threads) > k.most_threads)
    fault("kernel {}: work-groups of {}, at most {}", k.symbol, launch.threads, k.most_threads);
  if (static_cast<uint64_t>(launch.blocks) * launch.threads > 0xffffffffU)
    fault("kernel {}: too many threads", k.symbol);
  if (k.lds_bytes + static_cast<int64_t>(launch.shared_bytes) > chip_.lds_bytes)
    fault("kernel {}: {} bytes of LDS", k.symbol, k.lds_bytes + static_cast<int64_t>(launch.shared_bytes));
  if (kernel.instructions.empty()) {
    const auto& memory = object.object.elf.memory;
    kernel.instructions = decode(chip_, std::span(memory).subspan(k.entry, k.code_bytes), k.entry);
    check_registers(k, kernel.instructions);
    if (!planted_.empty()) changed_ += static_cast<uint64_t>(amd::plant(chip_, planted_, &kernel.instructions));
  }
  std::vector<std::byte> arguments(launch.arguments.begin(), launch.arguments.end());
  memory_.add(kArguments, arguments.size(), arguments.data(), false);
  try {
    for (unsigned g = 0; g < launch.blocks; ++g) execute(object, kernel, launch, g);
  } catch (...) {
    memory_.remove(kArguments);
    throw;
  }
  memory_.remove(kArguments);
}

}  // namespace lumen::amd
