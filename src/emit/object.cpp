// The entry point of code generation: kernels in, text or object bytes out. One LLVM context per call, so calls may run
// in parallel. Proved by tests/emit/emit_test.cpp.
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <set>

#include "base/check.h"
#include "emit/emit.h"
#include "emit/link.h"
#include "emit/lower/lower.h"
#include "emit/optimize.h"
#include "emit/scratch.h"
#include "emit/target.h"

namespace lumen::emit {
namespace {

// Incremented with every change in this folder that changes code; tests/emit/emit_test.cpp checks it.
constexpr int kRevision = 11;

// AMD code object versions, in hundreds: the one supported by the loaders of both ROCm 6 and 7, and the first one that
// supports a generation's generic code.
constexpr uint32_t kCodeObjectVersion = 500, kGenericCodeObjectVersion = 600;

std::string machine_text(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  const Scratch<llvm::SmallVector<char, 0>> bytes;
  const Scratch<llvm::raw_svector_ostream> stream(*bytes);
  const Scratch<llvm::legacy::PassManager> passes;
  const bool failed = machine.addPassesToEmitFile(*passes, *stream, nullptr, type);
  LUMEN_CHECK(!failed, "{} emits no such file", machine.getTargetTriple().str());
  passes->run(module);
  return {bytes->begin(), bytes->end()};
}

}  // namespace

std::string emit(std::span<const loop::Kernel> kernels, const machine::Machine& target, Output output) {
  throw_without_memory();
  const Scratch<llvm::LLVMContext> context;
  const Scratch<std::unique_ptr<llvm::TargetMachine>> made(make_target(target, output == Output::commented_assembly));
  llvm::TargetMachine* const machine = made->get();
  const Scratch<llvm::Module> owned("lumen", *context);
  llvm::Module& module = *owned;
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  if (target.kind == machine::Kind::cpu) module.setPICLevel(llvm::PICLevel::SmallPIC);
  if (machine->getTargetTriple().isAMDGCN())
    module.addModuleFlag(llvm::Module::Error, "amdhsa_code_object_version",
                         target.cpu.ends_with("-generic") ? kGenericCodeObjectVersion : kCodeObjectVersion);
  std::set<std::string> symbols;
  for (const loop::Kernel& k : kernels) {
    const std::string symbol = symbol_name(k);
    if (symbols.insert(symbol).second) lower_kernel(k, symbol, target, *machine, module);
  }
  optimize(module, *machine);
  if (output == Output::llvm) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module.print(stream, nullptr);
    return text;
  }
  // NVIDIA's loader takes PTX, which is text.
  const bool text = output != Output::object || machine->getTargetTriple().isNVPTX();
  std::string bytes =
      machine_text(module, *machine, text ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile);
  return output == Output::object && machine->getTargetTriple().isAMDGCN() ? link_shared(bytes) : bytes;
}

std::string version() {
  return fmt::format("llvm {} emit {}", LLVM_VERSION_STRING, kRevision);
}

}  // namespace lumen::emit
