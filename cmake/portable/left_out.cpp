// Parts of LLVM and its linker that Lumen never reaches, answered here so that their code stays out of the program. The
// linker takes the first definition, which is this file's.
#include <llvm/LTO/LTO.h>

// The linker's link-time optimization: it would bring every pass of LLVM. Lumen links objects of machine code.
namespace llvm::lto {
Expected<std::unique_ptr<InputFile>> InputFile::create(MemoryBufferRef) {
  return createStringError("this linker takes no bitcode");
}
InputFile::~InputFile() = default;
StringRef InputFile::getName() const {
  return {};
}
SmallVector<const char*> LTO::getRuntimeLibcallSymbols(const Triple&) {
  return {};
}
}  // namespace llvm::lto

// As src/ELF/LTO.h of the linker declares it, which is no header of the package. The linker allocates what its class
// needs; nothing here looks at that.
namespace lld::elf {
struct Ctx;
class BitcodeFile;
class InputFile;
class BitcodeCompiler {
 public:
  explicit BitcodeCompiler(Ctx&);
  ~BitcodeCompiler();
  void add(BitcodeFile&);
  llvm::SmallVector<std::unique_ptr<InputFile>, 0> compile();
};
class InputFile {
 public:
  ~InputFile() {}
};
BitcodeCompiler::BitcodeCompiler(Ctx&) {}
BitcodeCompiler::~BitcodeCompiler() {}
void BitcodeCompiler::add(BitcodeFile&) {}
llvm::SmallVector<std::unique_ptr<InputFile>, 0> BitcodeCompiler::compile() {
  return {};
}
}  // namespace lld::elf
