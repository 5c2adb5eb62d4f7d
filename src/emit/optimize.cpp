// See optimize.h. The synthesizer decides vectorizing, unrolling and tiling; LLVM only promotes private allocs to
// registers, eliminates common subexpressions, hoists loop invariants, and removes dead code.
#include "emit/optimize.h"

#include <llvm/Passes/PassBuilder.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/DCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/InferAlignment.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopStrengthReduce.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include "emit/scratch.h"
#include "emit/tile_phis.h"
#include "emit/whole_words.h"

namespace lumen::emit {

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  const Scratch<llvm::LoopAnalysisManager> loops;
  const Scratch<llvm::FunctionAnalysisManager> functions;
  const Scratch<llvm::CGSCCAnalysisManager> graphs;
  const Scratch<llvm::ModuleAnalysisManager> modules;
  const Scratch<llvm::PassBuilder> builder(&machine);
  builder->registerModuleAnalyses(*modules);
  builder->registerCGSCCAnalyses(*graphs);
  builder->registerFunctionAnalyses(*functions);
  builder->registerLoopAnalyses(*loops);
  builder->crossRegisterProxies(*loops, *functions, *graphs, *modules);

  const Scratch<llvm::FunctionPassManager> passes;
  passes->addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes->addPass(llvm::EarlyCSEPass(true));
  passes->addPass(llvm::SimplifyCFGPass());
  passes->addPass(llvm::InstCombinePass());
  passes->addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), true));
  passes->addPass(llvm::GVNPass());
  passes->addPass(llvm::InstCombinePass());
  passes->addPass(llvm::InferAlignmentPass());
  passes->addPass(llvm::SimplifyCFGPass());
  const bool aligned_loads = machine.getTargetTriple().isNVPTX();
  const Scratch<llvm::FunctionPassManager> after;
  after->addPass(llvm::EarlyCSEPass());
  after->addPass(llvm::InstCombinePass());
  after->addPass(llvm::InferAlignmentPass());
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    passes->run(f, *functions);
    if (machine.getTargetTriple().getArch() == llvm::Triple::x86_64) make_tile_phis(f);
    if (!aligned_loads) continue;
    load_whole_words(f);
    functions->clear(f, f.getName());
    after->run(f, *functions);
  }
}

}  // namespace lumen::emit
