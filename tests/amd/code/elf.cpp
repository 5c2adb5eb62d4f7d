// See elf.h. Structures: the ELF specification; flags and notes: LLVM's AMDGPU usage guide (code object).
#include "tests/amd/code/elf.h"

#include <elf.h>

#include <cstring>

#include "tests/amd/fault.h"

namespace lumen::amd {
namespace {

constexpr int kAmdgpuMachine = 224, kAmdhsaSystem = 64, kCodeObject5 = 3,
              kCodeObject6 = 4;  // EM_AMDGPU, ELFOSABI_AMDGPU_HSA
constexpr uint64_t kMostMemory = uint64_t{16} << 20;
constexpr unsigned kMetadataNote = 32;

class File {
 public:
  explicit File(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  std::span<const uint8_t> range(uint64_t offset, uint64_t bytes, const char* what) const {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset) fault("ELF: {} lies outside the file", what);
    return bytes_.subspan(offset, bytes);
  }
  template <class T>
  T at(uint64_t offset, const char* what) const {
    T t;
    std::memcpy(&t, range(offset, sizeof(T), what).data(), sizeof(T));
    return t;
  }

 private:
  std::span<const uint8_t> bytes_;
};

void load_segment(const File& file, const Elf64_Phdr& p, Elf* elf) {
  if (p.p_filesz > p.p_memsz) fault("ELF: a segment with more bytes in the file than in memory");
  if (p.p_vaddr > kMostMemory || p.p_memsz > kMostMemory) fault("ELF: a segment lies too far");
  const auto bytes = file.range(p.p_offset, p.p_filesz, "a segment");
  const uint64_t end = p.p_vaddr + p.p_memsz;
  if (elf->memory.size() < end) elf->memory.resize(end);
  std::copy(bytes.begin(), bytes.end(), elf->memory.begin() + static_cast<std::ptrdiff_t>(p.p_vaddr));
  if (p.p_flags & PF_W) elf->writable.emplace_back(p.p_vaddr, p.p_memsz);
}

void read_notes(const File& file, const Elf64_Phdr& p, Elf* elf) {
  uint64_t at = p.p_offset;
  file.range(p.p_offset, p.p_filesz, "a note");
  const uint64_t end = p.p_offset + p.p_filesz;
  while (at + sizeof(Elf64_Nhdr) <= end) {
    const auto note = file.at<Elf64_Nhdr>(at, "a note");
    const auto padded = [](uint64_t n) { return (n + 3) / 4 * 4; };
    const uint64_t name = at + sizeof(note), text = name + padded(note.n_namesz);
    const auto owner = file.range(name, note.n_namesz, "a note's owner");
    const auto content = file.range(text, note.n_descsz, "a note's content");
    if (text + note.n_descsz > end) fault("ELF: a note ends behind its segment");
    const bool amd = owner.size() == 7 && std::memcmp(owner.data(), "AMDGPU", 7) == 0;
    if (amd && note.n_type == kMetadataNote) elf->metadata.assign(content.begin(), content.end());
    at = text + padded(note.n_descsz);
  }
}

struct Dynamic {
  uint64_t symbols = 0, strings = 0, string_bytes = 0, hash = 0, gnu_hash = 0, relocations = 0;
};

// Addresses, which are places in `memory`.
class Image {
 public:
  explicit Image(const std::vector<uint8_t>& memory) : memory_(memory) {}
  template <class T>
  T at(uint64_t address, const char* what) const {
    if (address > memory_.size() || sizeof(T) > memory_.size() - address) fault("ELF: {} lies outside memory", what);
    T t;
    std::memcpy(&t, memory_.data() + address, sizeof(T));
    return t;
  }
  std::string text(uint64_t address, uint64_t end) const {
    std::string s;
    for (uint64_t a = address; a < end && a < memory_.size(); ++a) {
      if (memory_[a] == 0) return s;
      s += static_cast<char>(memory_[a]);
    }
    fault("ELF: a symbol's name has no end");
  }

 private:
  const std::vector<uint8_t>& memory_;
};

void read_symbols(const Image& image, const Dynamic& d, Elf* elf) {
  if (d.hash == 0 || d.symbols == 0 || d.strings == 0) fault("ELF: no table of dynamic symbols");
  const auto count = image.at<uint32_t>(d.hash + 4, "the hash table");
  for (uint32_t i = 1; i < count; ++i) {
    const auto s = image.at<Elf64_Sym>(d.symbols + uint64_t{i} * sizeof(Elf64_Sym), "a symbol");
    if (s.st_name >= d.string_bytes) fault("ELF: a symbol's name lies outside the table of names");
    if (s.st_shndx == SHN_UNDEF)
      fault("ELF: symbol {} is undefined", image.text(d.strings + s.st_name, d.strings + d.string_bytes));
    if (s.st_value > elf->memory.size() || s.st_size > elf->memory.size() - s.st_value)
      fault("ELF: a symbol lies outside memory");
    elf->symbols[image.text(d.strings + s.st_name, d.strings + d.string_bytes)] = {
        s.st_value, s.st_size, ELF64_ST_TYPE(s.st_info) == STT_FUNC};
  }
}

void read_dynamic(const Elf64_Phdr& p, Elf* elf) {
  const Image image(elf->memory);
  Dynamic d;
  for (uint64_t at = p.p_vaddr; at < p.p_vaddr + p.p_memsz; at += sizeof(Elf64_Dyn)) {
    const auto entry = image.at<Elf64_Dyn>(at, "the dynamic section");
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) d.symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRTAB) d.strings = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) d.string_bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_HASH) d.hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_RELASZ || entry.d_tag == DT_RELSZ) d.relocations += entry.d_un.d_val;
  }
  if (d.relocations != 0) fault("ELF: relocations are not known to the loader");
  read_symbols(image, d, elf);
}

}  // namespace

Elf read_elf(std::span<const uint8_t> bytes) {
  const File file(bytes);
  const auto header = file.at<Elf64_Ehdr>(0, "the header");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) fault("ELF: this is no ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    fault("ELF: not of 64 bits, little-endian");
  if (header.e_machine != kAmdgpuMachine) fault("ELF: not for AMD GPUs");
  const int version = header.e_ident[EI_ABIVERSION];
  if (header.e_ident[EI_OSABI] != kAmdhsaSystem || (version != kCodeObject5 && version != kCodeObject6))
    fault("ELF: not a code object of version 5 or 6 for HSA");
  if (header.e_type != ET_DYN) fault("ELF: not linked");
  if (header.e_phentsize != sizeof(Elf64_Phdr)) fault("ELF: segments of another size");
  Elf elf;
  elf.machine_flags = header.e_flags;
  elf.version = version == kCodeObject5 ? 5 : 6;
  std::vector<Elf64_Phdr> segments;
  for (unsigned i = 0; i < header.e_phnum; ++i)
    segments.push_back(file.at<Elf64_Phdr>(header.e_phoff + uint64_t{i} * sizeof(Elf64_Phdr), "a segment's header"));
  for (const Elf64_Phdr& p : segments)
    if (p.p_type == PT_LOAD) load_segment(file, p, &elf);
  bool dynamic = false;
  for (const Elf64_Phdr& p : segments) {
    if (p.p_type == PT_NOTE) read_notes(file, p, &elf);
    if (p.p_type == PT_DYNAMIC) read_dynamic(p, &elf), dynamic = true;
  }
  if (!dynamic) fault("ELF: no dynamic section");
  if (elf.metadata.empty()) fault("ELF: no metadata");
  return elf;
}

}  // namespace lumen::amd
