// Loads object bytes into this process, without a compiler: sections go into one mapping (so that relative distances
// are small), relocations are resolved against it and the C library, then code becomes executable and read-only. Proved
// by tests/emit/emit_test.cpp.
#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/Error.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "emit/emit.h"
#include "emit/scratch.h"

namespace lumen::emit {
namespace {

// One mapping: code, then read-only data, then data, each on its own pages.
class Sections : public llvm::RTDyldMemoryManager {
 public:
  ~Sections() override {
    if (base_) ::munmap(base_, size_);
  }
  bool needsToReserveAllocationSpace() override { return true; }

  void reserveAllocationSpace(uintptr_t code, llvm::Align code_align, uintptr_t constants, llvm::Align, uintptr_t data,
                              llvm::Align) override {
    const uintptr_t page = ::sysconf(_SC_PAGESIZE);
    LUMEN_CHECK(code_align.value() <= page, "code aligned to {}", code_align.value());
    const auto pages = [&](uintptr_t bytes) { return (bytes + 2 * page - 1) / page * page; };
    code_bytes_ = pages(code);
    size_ = code_bytes_ + pages(constants + data);
    void* p = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw Error(Exit::hardware, fmt::format("no memory for {} bytes of machine code", size_));
    base_ = static_cast<uint8_t*>(p);
    code_at_ = 0;
    data_at_ = code_bytes_;
  }
  uint8_t* allocateCodeSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef) override {
    return take(code_at_, code_bytes_, size, align);
  }
  uint8_t* allocateDataSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef, bool) override {
    return take(data_at_, size_, size, align);
  }
  bool finalizeMemory(std::string* wrong) override {
    if (::mprotect(base_, code_bytes_, PROT_READ | PROT_EXEC) == 0) {
      __builtin___clear_cache(reinterpret_cast<char*>(base_), reinterpret_cast<char*>(base_ + code_bytes_));
      return false;
    }
    if (wrong) *wrong = "memory cannot be made executable";
    return true;
  }
  void registerEHFrames(uint8_t*, uint64_t, size_t) override {}  // kernels never throw
  void deregisterEHFrames() override {}

 private:
  uint8_t* take(uintptr_t& at, uintptr_t end, uintptr_t size, unsigned align) {
    const uintptr_t mask = std::max(align, 1U) - 1;
    at = (at + mask) & ~mask;
    LUMEN_CHECK(base_ && at + size <= end, "sections need more than they announced");
    uint8_t* p = base_ + at;
    at += size;
    return p;
  }

  uint8_t* base_ = nullptr;
  uintptr_t size_ = 0, code_bytes_ = 0, code_at_ = 0, data_at_ = 0;
};

}  // namespace

struct LoadedModule::State {
  Sections sections;
  llvm::RuntimeDyld linker{sections, sections};
};

LoadedModule::LoadedModule(std::span<const uint8_t> object) {
  throw_without_memory();
  state_ = new State;
  const llvm::StringRef bytes(reinterpret_cast<const char*>(object.data()), object.size());
  const auto fail = [&](const std::string& why) -> Error {
    delete state_;
    state_ = nullptr;
    return Error(Exit::hardware, fmt::format("machine code cannot be loaded: {}", why));
  };
  const Scratch<llvm::Expected<std::unique_ptr<llvm::object::ObjectFile>>> read(
      llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(bytes, "kernels")));
  auto& file = *read;
  if (!file) throw fail(llvm::toString(file.takeError()));
  state_->linker.loadObject(**file);
  if (!state_->linker.hasError()) state_->linker.resolveRelocations();
  if (state_->linker.hasError()) throw fail(state_->linker.getErrorString().str());
  std::string wrong;
  if (state_->sections.finalizeMemory(&wrong)) throw fail(wrong);
}

LoadedModule::LoadedModule(LoadedModule&& other) noexcept {
  *this = std::move(other);
}
LoadedModule& LoadedModule::operator=(LoadedModule&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
LoadedModule::~LoadedModule() {
  delete state_;
}

CpuKernel LoadedModule::find(const std::string& symbol) const {
  LUMEN_CHECK(state_, "an empty module");
  const uint64_t address = state_->linker.getSymbol(symbol).getAddress();
  LUMEN_CHECK(address != 0, "no symbol {}", symbol);
  return reinterpret_cast<CpuKernel>(address);
}

}  // namespace lumen::emit
