// See transcendental.h. Inlined code and calls compute the same bits; proved by tests/emit/scalar_test.cpp.
#include "emit/lower/transcendental.h"

#include <algorithm>

#include "emit/lower/scalar.h"
#include "kernel/loop/expand.h"
#include "kernel/loop/rules.h"

namespace lumen::emit {
namespace {

using llvm::Value;
using loop::VType;

constexpr int64_t kInPlace = 8;  // most sites of one operation that are inlined; a call spills some registers

Value* write_out(Ir& b, const Formula& f, int lanes, const std::vector<Value*>& x) {
  std::vector<Value*> values;
  for (const ScalarNode& node : f.nodes) {
    const VType type{node.type, lanes};
    if (node.op == ScalarOp::input) {
      values.push_back(x[node.index]);
    } else if (node.op == ScalarOp::constant) {
      values.push_back(is_float(node.type) ? splat_real(b.getContext(), type, node.real)
                                           : splat_integer(b.getContext(), type, node.integer));
    } else {
      std::vector<Value*> operands;
      for (const int a : node.args)
        if (a >= 0) operands.push_back(values[a]);
      const int typed = node.args[node.op == ScalarOp::select_ ? 1 : 0];
      values.push_back(lower_scalar(b, node.op, {f.type(typed), lanes}, type, operands));
    }
  }
  return values[f.outputs[0]];
}

}  // namespace

Transcendentals::Transcendentals(const loop::Kernel& k, llvm::Module& module, bool calls)
    : module_(module), calls_(calls) {
  count(k.body, 1);
}

void Transcendentals::count(const loop::Region& r, int64_t times) {
  for (const loop::Instr& instr : r.code) {
    if (instr.op == loop::Op::constant_ && instr.integers.size() == 1) constants_[instr.result] = instr.integers[0];
    if (instr.op == loop::Op::op_ && loop::is_transcendental(instr.scalar_op))
      sites_[{instr.scalar_op, {instr.type.scalar, instr.type.lanes}}] += times;
    int64_t inner = times;
    if (instr.op == loop::Op::loop_ && instr.kind == loop::LoopKind::unroll) {
      const auto from = constants_.find(instr.operands[0]), to = constants_.find(instr.operands[1]);
      if (from != constants_.end() && to != constants_.end())
        inner *= std::min<int64_t>(loop::trip_count(from->second, to->second, instr.step), kInPlace + 1);
    }
    for (const loop::Region& region : instr.regions) count(region, std::min(inner, kInPlace + 1));
  }
}

llvm::Function* Transcendentals::function(ScalarOp op, VType type) {
  const std::string name = fmt::format("lumen.{}.{}", scalar_op_info(op).name, loop::print(type));
  if (llvm::Function* known = module_.getFunction(name)) return known;
  llvm::LLVMContext& context = module_.getContext();
  llvm::Type* result = register_type(context, type);
  const std::vector<llvm::Type*> operands(scalar_op_info(op).arity, result);
  auto* f = llvm::Function::Create(llvm::FunctionType::get(result, operands, false), llvm::Function::InternalLinkage,
                                   name, module_);
  f->setDoesNotThrow();
  f->setDoesNotAccessMemory();
  f->addFnAttr(llvm::Attribute::NoInline);
  f->addFnAttr(llvm::Attribute::WillReturn);
  Ir b(llvm::BasicBlock::Create(context, "entry", f));
  std::vector<Value*> x;
  for (llvm::Argument& a : f->args()) x.push_back(&a);
  b.CreateRet(write_out(b, loop::expansion(op, type.scalar), type.lanes, x));
  return f;
}

Value* Transcendentals::lower(Ir& b, ScalarOp op, VType type, const std::vector<Value*>& x) {
  if (!calls_ || sites_[{op, {type.scalar, type.lanes}}] <= kInPlace)
    return write_out(b, loop::expansion(op, type.scalar), type.lanes, x);
  return b.CreateCall(function(op, type), x);
}

}  // namespace lumen::emit
