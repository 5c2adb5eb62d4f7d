// See target.h.
#include "emit/target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "emit/emit.h"

namespace lumen::emit {
namespace {

// Sets an LLVM option that is only available on the command line.
void set_option(const char* name, bool value) {
  auto& options = llvm::cl::getRegisteredOptions();
  const auto found = options.find(name);
  LUMEN_CHECK(found != options.end(), "LLVM has no option {}", name);
  static_cast<llvm::cl::opt<bool>*>(found->second)->setValue(value);
}

// Loop-carried accumulators of matrix instructions stay one value: split into scalars they would be copied between
// register files in every iteration. Private memory stays memory: promoted to vectors with dynamic lanes it becomes
// chains of selects. Shared memory is allocated by the synthesizer only.
void initialize_targets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeAArch64AsmParser();
    LLVMInitializeARMTargetInfo();
    LLVMInitializeARMTarget();
    LLVMInitializeARMTargetMC();
    LLVMInitializeARMAsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
    set_option("amdgpu-codegenprepare-break-large-phis", false);
    set_option("disable-promote-alloca-to-vector", true);
    set_option("disable-promote-alloca-to-lds", true);
  });
}

}  // namespace

std::unique_ptr<llvm::TargetMachine> make_target(const machine::Machine& m, bool comments) {
  initialize_targets();
  const llvm::Triple triple(m.triple);
  std::string wrong;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, wrong);
  if (!target) throw Error(Exit::hardware, fmt::format("no code generator for {}: {}", m.triple, wrong));
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // fma only where the IR has fma
  options.MCOptions.AsmVerbose = comments;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, m.cpu, m.features, options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
  if (!machine) throw Error(Exit::hardware, fmt::format("LLVM has no machine for {}", m.triple));
  return machine;
}

Host host() {
  std::vector<std::string> features;
  for (const auto& [name, on] : llvm::sys::getHostCPUFeatures()) features.push_back((on ? "+" : "-") + name.str());
  std::sort(features.begin(), features.end());
  return {llvm::sys::getProcessTriple(), llvm::sys::getHostCPUName().str(),
          fmt::format("{}", fmt::join(features, ","))};
}

}  // namespace lumen::emit
