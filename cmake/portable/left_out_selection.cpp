// More parts of LLVM that stay out, by the names that their functions have in LLVM's archives, for no header declares them.
// Lumen generates code by the older pass manager, at the default level, with the selector of SelectionDAG: what selects
// instructions at level 0 (FastISel) and the other selector (GlobalISel), with its tables for each processor, is never run.
// Each definition is one of:
//   NONE    a function that makes an object: there is none. Owners take null for that.
//   SKIP    a function that registers a pass: it is not registered.
//   NEVER   a function that is not called: it ends the program.
#include <llvm/CodeGen/GlobalISel/InstructionSelector.h>

#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

[[noreturn]] void is_left_out(const char* name) {
  std::fprintf(stderr, "lumen: a part of LLVM that is left out was called: %s\n", name);
  std::abort();
}

struct NoSelector final : llvm::InstructionSelector {
  void setupGeneratedPerFunctionState(llvm::MachineFunction&) override { is_left_out("GlobalISel"); }
  bool select(llvm::MachineInstr&) override { is_left_out("GlobalISel"); }
};

}  // namespace

#define NONE(name) \
  void* name() {   \
    return nullptr; \
  }
#define SKIP(name) \
  void name() {}
#define NEVER(name)     \
  void name() {         \
    is_left_out(#name); \
  }

extern "C" {

// AMDGPUInstructionSelector's constructor: a subtarget owns one, and destroys it by the virtual destructor.
void _ZN4llvm25AMDGPUInstructionSelectorC1ERKNS_12GCNSubtargetERKNS_22AMDGPURegisterBankInfoERKNS_19AMDGPUTargetMachineE(
    void* self) {
  new (self) NoSelector;
}
NONE(_ZN4llvm28createX86InstructionSelectorERKNS_16X86TargetMachineERKNS_12X86SubtargetERKNS_19X86RegisterBankInfoE)
NONE(_ZN4llvm32createAArch64InstructionSelectorERKNS_20AArch64TargetMachineERKNS_16AArch64SubtargetERKNS_23AArch64RegisterBankInfoE)
NONE(_ZN4llvm28createARMInstructionSelectorERKNS_20ARMBaseTargetMachineERKNS_12ARMSubtargetERKNS_19ARMRegisterBankInfoE)
NONE(_ZN4llvm3X8614createFastISelERNS_20FunctionLoweringInfoEPKNS_17TargetLibraryInfoE)
NONE(_ZN4llvm3ARM14createFastISelERNS_20FunctionLoweringInfoEPKNS_17TargetLibraryInfoE)
NONE(_ZN4llvm7AArch6414createFastISelERNS_20FunctionLoweringInfoEPKNS_17TargetLibraryInfoE)

// The passes of GlobalISel.
SKIP(_ZN4llvm35initializeAMDGPURegBankCombinerPassERNS_12PassRegistryE)
SKIP(_ZN4llvm35initializeAMDGPURegBankLegalizePassERNS_12PassRegistryE)
SKIP(_ZN4llvm33initializeAMDGPURegBankSelectPassERNS_12PassRegistryE)
SKIP(_ZN4llvm40initializeAMDGPUPreLegalizerCombinerPassERNS_12PassRegistryE)
SKIP(_ZN4llvm41initializeAMDGPUPostLegalizerCombinerPassERNS_12PassRegistryE)
SKIP(_ZN4llvm48initializeAMDGPUGlobalISelDivergenceLoweringPassERNS_12PassRegistryE)
SKIP(_ZN4llvm43initializeAArch64O0PreLegalizerCombinerPassERNS_12PassRegistryE)
SKIP(_ZN4llvm41initializeAArch64PreLegalizerCombinerPassERNS_12PassRegistryE)
SKIP(_ZN4llvm42initializeAArch64PostLegalizerCombinerPassERNS_12PassRegistryE)
SKIP(_ZN4llvm42initializeAArch64PostLegalizerLoweringPassERNS_12PassRegistryE)
SKIP(_ZN4llvm37initializeX86PreLegalizerCombinerPassERNS_12PassRegistryE)
NEVER(_ZN4llvm27createAMDGPURegBankCombinerEb)
NEVER(_ZN4llvm31createAMDGPURegBankLegalizePassEv)
NEVER(_ZN4llvm29createAMDGPURegBankSelectPassEv)
NEVER(_ZN4llvm31createAMDGPUPreLegalizeCombinerEb)
NEVER(_ZN4llvm32createAMDGPUPostLegalizeCombinerEb)
NEVER(_ZN4llvm44createAMDGPUGlobalISelDivergenceLoweringPassEv)
NEVER(_ZN4llvm35createAArch64O0PreLegalizerCombinerEv)
NEVER(_ZN4llvm33createAArch64PreLegalizerCombinerEv)
NEVER(_ZN4llvm34createAArch64PostLegalizerCombinerEb)
NEVER(_ZN4llvm34createAArch64PostLegalizerLoweringEv)
NEVER(_ZN4llvm29createX86PreLegalizerCombinerEv)

// Pipelines of the newer pass manager.
NEVER(_ZN4llvm16GCNTargetMachine20buildCodeGenPipelineERNS_11PassManagerINS_6ModuleENS_15AnalysisManagerIS2_JEEEJEEERNS_17raw_pwrite_streamEPS7_NS_15CodeGenFileTypeERKNS_19CGPassBuilderOptionEPNS_28PassInstrumentationCallbacksE)
NEVER(_ZN4llvm17R600TargetMachine20buildCodeGenPipelineERNS_11PassManagerINS_6ModuleENS_15AnalysisManagerIS2_JEEEJEEERNS_17raw_pwrite_streamEPS7_NS_15CodeGenFileTypeERKNS_19CGPassBuilderOptionEPNS_28PassInstrumentationCallbacksE)
NEVER(_ZN4llvm16X86TargetMachine20buildCodeGenPipelineERNS_11PassManagerINS_6ModuleENS_15AnalysisManagerIS2_JEEEJEEERNS_17raw_pwrite_streamEPS7_NS_15CodeGenFileTypeERKNS_19CGPassBuilderOptionEPNS_28PassInstrumentationCallbacksE)

}  // extern "C"
