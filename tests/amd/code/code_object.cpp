// See code_object.h. Bits: LLVM's AMDGPU usage guide, kernel descriptor and code object V5 metadata.
#include "tests/amd/code/code_object.h"

#include <cstring>

#include "tests/amd/code/msgpack.h"
#include "tests/amd/fault.h"

namespace lumen::amd {
namespace {

struct Descriptor {
  uint32_t lds, scratch, kernarg, reserved0;
  int64_t entry;
  uint8_t reserved1[20];
  uint32_t rsrc3, rsrc1, rsrc2;
  uint16_t properties, preload;
  uint32_t reserved2;
};
static_assert(sizeof(Descriptor) == 64);

unsigned bits(unsigned word, int low, int count) {
  return word >> low & ((1U << count) - 1);
}

void take_apart(const Chip& chip, const Descriptor& d, KernelCode* k) {
  if (d.reserved0 != 0 || d.reserved2 != 0) fault("kernel {}: reserved bits of the descriptor are set", k->symbol);
  for (const uint8_t b : d.reserved1)
    if (b != 0) fault("kernel {}: reserved bits of the descriptor are set", k->symbol);
  k->lds_bytes = static_cast<int>(d.lds);
  k->private_bytes = static_cast<int>(d.scratch);
  k->kernarg_bytes = static_cast<int>(d.kernarg);
  const int registers = static_cast<int>(bits(d.rsrc1, 0, 6) + 1) * chip.vgpr_granule;
  k->vgprs = registers;
  if (chip.one_file) {
    k->vgprs = std::min(registers, static_cast<int>(bits(d.rsrc3, 0, 6) + 1) * 4);
    k->agprs = registers - k->vgprs;
  }
  if (k->vgprs > 256 || k->agprs > 256) fault("kernel {}: more than 256 vector registers", k->symbol);
  k->mode = bits(d.rsrc1, 12, 8);
  if (chip.major < 12) k->dx10_clamp = bits(d.rsrc1, 21, 1), k->ieee = bits(d.rsrc1, 23, 1);
  k->private_segment = bits(d.rsrc2, 0, 1);
  k->user_sgprs = static_cast<int>(bits(d.rsrc2, 1, 5));
  k->group_x = bits(d.rsrc2, 7, 1), k->group_y = bits(d.rsrc2, 8, 1), k->group_z = bits(d.rsrc2, 9, 1);
  k->group_info = bits(d.rsrc2, 10, 1);
  k->item_ids = static_cast<int>(bits(d.rsrc2, 11, 2));
  const unsigned p = d.properties;
  k->private_buffer = bits(p, 0, 1), k->dispatch_ptr = bits(p, 1, 1), k->queue_ptr = bits(p, 2, 1);
  k->kernarg_ptr = bits(p, 3, 1), k->dispatch_id = bits(p, 4, 1), k->flat_scratch_init = bits(p, 5, 1);
  k->private_size = bits(p, 6, 1);
  k->wave = bits(p, 10, 1) ? 32 : 64;
  k->kernarg_preload = static_cast<int>(bits(d.preload, 0, 7));
  if (k->wave != chip.wave) fault("kernel {}: waves of {} lanes on {}", k->symbol, k->wave, chip.name);
  if (k->lds_bytes > chip.lds_bytes) fault("kernel {}: {} bytes of LDS", k->symbol, k->lds_bytes);
  int needed = 4 * k->private_buffer + 2 * (k->dispatch_ptr + k->queue_ptr + k->kernarg_ptr + k->dispatch_id) +
               2 * k->flat_scratch_init + k->private_size + k->kernarg_preload;
  if (needed > k->user_sgprs)
    fault("kernel {}: {} user SGPRs where {} are asked for", k->symbol, k->user_sgprs, needed);
}

void compare(const KernelCode& k, const Packed& m) {
  const auto same = [&](const char* key, int number) {
    if (m.number(key) != static_cast<uint64_t>(number))
      fault("kernel {}: {} is {} in the metadata and {} in the descriptor", k.symbol, key, m.number(key), number);
  };
  same(".kernarg_segment_size", k.kernarg_bytes);
  same(".group_segment_fixed_size", k.lds_bytes);
  same(".private_segment_fixed_size", k.private_bytes);
  same(".wavefront_size", k.wave);
  if (m.number(".vgpr_count") > static_cast<uint64_t>(k.vgprs + k.agprs))
    fault("kernel {}: fewer vector registers than the metadata says", k.symbol);
  const Packed* arguments = m.find(".args");
  if (!arguments) return;
  for (const Packed& a : arguments->items)
    if (a.number(".offset") + a.number(".size") > static_cast<uint64_t>(k.kernarg_bytes))
      fault("kernel {}: an argument ends behind the segment of arguments", k.symbol);
}

KernelCode read_kernel(const Chip& chip, const Elf& elf, const Packed& m) {
  KernelCode k;
  k.symbol = m.word(".name");
  const std::string name = m.word(".symbol");
  const auto descriptor = elf.symbols.find(name), code = elf.symbols.find(k.symbol);
  if (descriptor == elf.symbols.end()) fault("kernel {}: no descriptor {}", k.symbol, name);
  if (code == elf.symbols.end() || !code->second.function) fault("kernel {}: no code", k.symbol);
  const uint64_t at = descriptor->second.address;
  if (descriptor->second.bytes != sizeof(Descriptor) || at % 64 != 0)
    fault("kernel {}: its descriptor is of another size or not aligned", k.symbol);
  Descriptor d;
  std::memcpy(&d, elf.memory.data() + at, sizeof d);
  k.entry = at + static_cast<uint64_t>(d.entry);
  k.code_bytes = code->second.bytes;
  if (k.entry != code->second.address || k.entry % 256 != 0) fault("kernel {}: its entry is not its code", k.symbol);
  take_apart(chip, d, &k);
  compare(k, m);
  const uint64_t most = m.number(".max_flat_workgroup_size");
  if (most == 0 || most > 1024) fault("kernel {}: work-groups of {}", k.symbol, most);
  k.most_threads = static_cast<int>(most);
  return k;
}

// A chip's own object, or its generation's generic one, which version 6 brought, with a version of its own. XNACK: not
// there, any, off, on.
void check_chip(const Chip& chip, const Elf& elf, std::optional<bool> xnack) {
  const unsigned mach = bits(elf.machine_flags, 0, 8), generic_version = bits(elf.machine_flags, 24, 8);
  const bool own = mach == chip.elf_mach && generic_version == 0;
  const bool generic = !chip.generic.empty() && mach == chip.generic_mach && elf.version == 6 && generic_version >= 1;
  if (!own && !generic)
    fault("the object is for another chip than {} (e_flags {:#x}, version {})", chip.name, elf.machine_flags,
          elf.version);
  const unsigned setting = bits(elf.machine_flags, 8, 2);
  constexpr unsigned kOff = 2, kOn = 3;
  if (xnack && (setting == kOff || setting == kOn) && *xnack != (setting == kOn))
    fault("the object is for XNACK {}, {} has it {}", setting == kOn ? "on" : "off", chip.name, *xnack ? "on" : "off");
}

}  // namespace

CodeObject read_code_object(const Chip& chip, std::span<const uint8_t> file, std::optional<bool> xnack) {
  CodeObject object;
  object.elf = read_elf(file);
  check_chip(chip, object.elf, xnack);
  const Packed metadata = read_msgpack(object.elf.metadata);
  const Packed* kernels = metadata.find("amdhsa.kernels");
  if (!kernels || kernels->kind != Packed::Kind::list) fault("metadata: no list of kernels");
  for (const Packed& m : kernels->items) {
    KernelCode k = read_kernel(chip, object.elf, m);
    const std::string symbol = k.symbol;
    object.kernels[symbol] = std::move(k);
  }
  return object;
}

}  // namespace lumen::amd
