// See lower.h. Values of loop IR are visited in order and mapped to LLVM values; regions become basic blocks. Contract
// with the engine: params of a kernel that is not `aliased` never overlap unless they are the same read-only memory;
// bases have the alignment of the params. Proved by tests/emit/lower_test.cpp.
#include "emit/lower/lower.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "emit/lower/grid.h"
#include "emit/lower/launch.h"
#include "emit/lower/memory.h"
#include "emit/lower/row.h"
#include "emit/lower/scalar.h"
#include "emit/lower/tile.h"
#include "emit/lower/transcendental.h"
#include "emit/lower/types.h"
#include "emit/lower/wgmma.h"
#include "emit/streaming/streaming.h"
#include "kernel/loop/expand.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"
#include "kernel/loop/verify.h"

namespace lumen::emit {
namespace {

using llvm::BasicBlock;
using llvm::Value;
using loop::Instr;
using loop::Kernel;
using loop::Op;
using loop::VType;

constexpr int kScalableGranule = 128;   // bits of a scalable vector at scale 1
constexpr int64_t kUnrollLimit = 4096;  // iterations; beyond it an unroll loop stays a loop

int masks_of(const llvm::MCSubtargetInfo& features, const llvm::Triple& triple) {
  if (!triple.isX86()) return 0;
  if (features.checkFeatures("+avx512bw,+avx512vl")) return 8;
  return features.checkFeatures("+avx2") ? 32 : 0;
}

bool contains(const loop::Region& r, Op op) {
  return std::any_of(r.code.begin(), r.code.end(), [op](const Instr& instr) {
    return instr.op == op || std::any_of(instr.regions.begin(), instr.regions.end(),
                                         [op](const auto& inner) { return contains(inner, op); });
  });
}

class KernelLowering {
 public:
  KernelLowering(const Kernel& k, const machine::Machine& target, const llvm::TargetMachine& machine,
                 llvm::Module& module)
      : k_(k),
        target_(target),
        features_(*machine.getMCSubtargetInfo()),
        module_(module),
        context_(module.getContext()),
        b_(context_),
        memory_(b_, target.kind == machine::Kind::gpu ? MemoryLowering::kLanesApart
                                                      : masks_of(features_, machine.getTargetTriple())),
        transcendentals_(k, module, target.kind == machine::Kind::cpu),
        values_(k.value_count),
        buffers_(k.buffer_count) {
    streaming_ = StreamingLowering::find(b_, k, target);
    if (target.kind == machine::Kind::gpu) {
      shape_ = launch_shape(k, target);
      has_products_ = contains(k.body, Op::product_);
      copies_together_ = target.together_bytes > 0 && contains(k.body, Op::copy_together_);
      grid_.emplace(b_, machine.getTargetTriple(), target);
    }
  }

  void run(const std::string& symbol) {
    function_ = grid_ ? grid_->declare(module_, symbol, buffers(), shape_.threads) : declare(symbol);
    early_ = loop::begins_early(k_);
    if (grid_ && early_) grid_->leave_room(function_, loop::shared_bytes(k_));
    // With accumulators allowed in any register, loops do not move them between register files in every iteration.
    if (module_.getTargetTriple().isAMDGCN() && features_.checkFeatures("+gfx90a-insts"))
      function_->addFnAttr("amdgpu-agpr-alloc", "0");
    b_.SetInsertPoint(BasicBlock::Create(context_, "entry", function_));
    if (grid_) {
      grid_->let_follow();
      if (!early_) grid_->wait_kernels();
      find_instance();
      lower_body();
    } else if (k_.instances > 1) {
      lower_instances();
    } else {
      begin_ = function_->getArg(1), end_ = function_->getArg(2);
      lower_body();
    }
    b_.CreateRetVoid();
    std::string wrong;
    llvm::raw_string_ostream stream(wrong);
    LUMEN_CHECK(!llvm::verifyFunction(*function_, &stream), "kernel {}: {}", k_.name, wrong);
    if (streaming_) streaming_->extract();
  }

 private:
  llvm::Function* declare(const std::string& symbol) {
    llvm::Type* pointer = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, b_.getInt64Ty(), b_.getInt64Ty(), pointer}, false);
    auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
    f->setDoesNotThrow();
    if (target_.scalable) {  // the length is known: fixed-width vectors may use the whole register
      const unsigned granules = target_.vector_bits / kScalableGranule;
      f->addFnAttr(llvm::Attribute::getWithVScaleRangeArgs(context_, granules, granules));
    }
    return f;
  }

  void lower_body() {
    bind_params();
    const Instr* top = loop::top_loop(k_);
    for (const Instr& instr : k_.body.code)
      if (&instr != top) lower(instr);
    if (top) lower_top(*top);
  }

  // A CPU thread: runs its share of the iterations of each instance in turn.
  void lower_instances() {
    BasicBlock *before = b_.GetInsertBlock(), *instance = block("instance"), *work = block("work"),
               *next = block("next"), *after = block("done");
    b_.CreateBr(instance);
    b_.SetInsertPoint(instance);
    llvm::PHINode* number = b_.CreatePHI(b_.getInt64Ty(), 2);
    number->addIncoming(b_.getInt64(0), before);
    instance_ = number;
    Value *none = b_.getInt64(0), *all = b_.getInt64(k_.tasks), *first = b_.CreateMul(number, all);
    const auto within = [&](unsigned argument) {
      Value* at = b_.CreateSub(function_->getArg(argument), first);
      at = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, at, none);
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, at, all);
    };
    begin_ = within(1), end_ = within(2);
    b_.CreateCondBr(b_.CreateICmpSLT(begin_, end_), work, next);
    b_.SetInsertPoint(work);
    lower_body();
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    Value* later = b_.CreateAdd(number, b_.getInt64(1));
    number->addIncoming(later, next);
    b_.CreateCondBr(b_.CreateICmpSLT(later, b_.getInt64(k_.instances)), instance, after);
    b_.SetInsertPoint(after);
  }

  size_t buffers() const { return k_.params.size() * size_t(k_.instances); }

  // Computes the block's instance, and its number among the blocks of that instance.
  void find_instance() {
    block_ = grid_->block();
    const int64_t each = shape_.blocks / k_.instances;
    for (int i = 1; i < k_.instances; ++i) {
      Value* is_later = b_.CreateICmpUGE(grid_->block(), b_.getInt64(i * each));
      instances_.push_back(is_later);
      block_ = b_.CreateSub(block_, b_.CreateSelect(is_later, b_.getInt64(each), b_.getInt64(0)));
    }
  }

  Value* address_of(size_t param) {
    if (grid_) {
      Value* address = function_->getArg(unsigned(param));
      for (size_t i = 0; i < instances_.size(); ++i)
        address =
            b_.CreateSelect(instances_[i], function_->getArg(unsigned(param + (i + 1) * k_.params.size())), address);
      return address;
    }
    Value* slot = b_.CreateConstGEP1_64(b_.getPtrTy(), function_->getArg(0), param);
    if (instance_)
      slot = b_.CreateGEP(b_.getPtrTy(), slot, b_.CreateMul(instance_, b_.getInt64(int64_t(k_.params.size()))));
    return b_.CreateLoad(b_.getPtrTy(), slot, k_.params[param].name);
  }
  Value* status() const { return function_->getArg(grid_ ? static_cast<unsigned>(buffers()) : 3); }

  void bind_params() {
    llvm::MDBuilder metadata(context_);
    llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain(k_.name);
    std::vector<llvm::Metadata*> scopes;
    for (const loop::BufferParam& p : k_.params) scopes.push_back(metadata.createAnonymousAliasScope(domain, p.name));
    const bool all_settled = !target_.follows || loop::begins_in_whole(k_);
    for (size_t i = 0; i < k_.params.size(); ++i) {
      buffers_[i].base = address_of(i);
      buffers_[i].align = k_.params[i].align;
      if (grid_) {  // LLVM derives load alignments from it
        const llvm::Align align(static_cast<uint64_t>(k_.params[i].align));
        for (size_t at = i; at < buffers(); at += k_.params.size())
          function_->addParamAttr(unsigned(at), llvm::Attribute::getWithAlignment(context_, align));
      }
      // With programmatic dependent launch, only memory that the whole program never writes is constant
      // (loop/verify.h).
      const bool is_settled = all_settled || k_.params[i].constant;
      buffers_[i].constant = grid_ && !k_.aliased && !k_.params[i].written && is_settled;
      if (k_.aliased) continue;
      std::vector<llvm::Metadata*> others = scopes;
      others.erase(others.begin() + i);
      buffers_[i].scope = llvm::MDNode::get(context_, {scopes[i]});
      buffers_[i].others = llvm::MDNode::get(context_, others);
    }
    if (!copies_together_) return;
    // Waits and barriers in the kernel order cooperative copies and the lanes' own shared memory accesses. Without
    // these scopes LLVM would wait for all copies before each load.
    copied_ = llvm::MDNode::get(context_, {metadata.createAnonymousAliasScope(domain, "copied together")});
    touched_ = llvm::MDNode::get(context_, {metadata.createAnonymousAliasScope(domain, "touched by lanes")});
  }

  VType type(loop::ValueId v) const { return k_.value_types[v]; }
  Value* value(loop::ValueId v) const { return values_[v]; }
  Value* operand(const Instr& instr, size_t i) const { return value(instr.operands[i]); }
  Value* optional_operand(const Instr& instr, size_t i) const {
    return i < instr.operands.size() ? operand(instr, i) : nullptr;
  }
  const Memory& buffer(const Instr& instr) const { return buffers_[instr.buffer]; }
  BasicBlock* block(const char* name) { return BasicBlock::Create(context_, name, function_); }

  // The thread's share [begin, end) of the iterations.
  void lower_top(const Instr& instr) {
    if (grid_ && instr.kind == loop::LoopKind::grid) return lower_block(instr);
    if (grid_) return lower_tasks(instr);
    LUMEN_CHECK(instr.kind == loop::LoopKind::parallel, "grid kernels need a GPU, {} is none", target_.name);
    Value* step = b_.getInt64(instr.step);
    const auto bound = [&](Value* at) { return b_.CreateNSWAdd(operand(instr, 0), b_.CreateNSWMul(at, step)); };
    Value* from = bound(begin_);
    rolled(instr, from, bound(end_));
  }

  void lower_block(const Instr& instr) {
    for (const loop::SharedPlace& p : loop::shared_places(k_)) shared_at_[p.buffer] = p.offset;
    if (!shared_at_.empty()) {
      constexpr int kAlign = 1024;  // required by swizzled operands of products
      shared_ =
          grid_->shared(module_, function_->getName().str(), loop::shared_bytes(k_), kAlign, shape_.shared_bytes > 0);
    }
    thread_ = grid_->thread();
    if (copies_together_) grid_->begin_copies_together();
    Value* steps = b_.CreateNSWMul(block_, b_.getInt64(instr.step));
    values_[instr.regions[0].counter] = b_.CreateNSWAdd(operand(instr, 0), steps);
    region(instr.regions[0]);
  }

  // On a GPU each thread runs one iteration, or, if a launch has too few threads, a strided loop over them.
  void lower_tasks(const Instr& instr) {
    Value* first = b_.CreateNSWAdd(b_.CreateNSWMul(block_, b_.getInt64(shape_.threads)), grid_->thread());
    const auto in_steps = [&](Value* tasks) {
      return b_.CreateNSWAdd(operand(instr, 0), b_.CreateNSWMul(tasks, b_.getInt64(instr.step)));
    };
    const int64_t all = shape_.blocks / k_.instances * shape_.threads;
    if (all < k_.tasks) return rolled(instr, in_steps(first), in_steps(b_.getInt64(k_.tasks)), all);
    BasicBlock* body = block("task");
    BasicBlock* after = block("done");
    b_.CreateCondBr(b_.CreateICmpSLT(first, b_.getInt64(k_.tasks)), body, after);
    b_.SetInsertPoint(body);
    values_[instr.regions[0].counter] = in_steps(first);
    region(instr.regions[0]);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  // The exit test is at the bottom, so that loop-invariant code can be hoisted in front of the loop.
  void rolled(const Instr& instr, Value* from, Value* to, int64_t stride = 1) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock* body = block("loop");
    BasicBlock* after = block("after");
    b_.CreateCondBr(b_.CreateICmpSLT(from, to), body, after);
    b_.SetInsertPoint(body);
    llvm::PHINode* counter = b_.CreatePHI(b_.getInt64Ty(), 2);
    counter->addIncoming(from, before);
    values_[instr.regions[0].counter] = counter;
    region(instr.regions[0]);
    Value* next = b_.CreateNSWAdd(counter, b_.getInt64(instr.step * stride));
    counter->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
    b_.SetInsertPoint(after);
  }

  void lower_loop(const Instr& instr) {
    if (thread_ && instr.kind == loop::LoopKind::lane) {  // the block has exactly as many threads
      values_[instr.regions[0].counter] = thread_;
      return region(instr.regions[0]);
    }
    LUMEN_CHECK(instr.kind == loop::LoopKind::serial || instr.kind == loop::LoopKind::unroll,
                "{} loops need a GPU, {} is none", loop::name_of(instr.kind), target_.name);
    const auto* from = llvm::dyn_cast<llvm::ConstantInt>(operand(instr, 0));
    const auto* to = llvm::dyn_cast<llvm::ConstantInt>(operand(instr, 1));
    if (from && to) {
      const int64_t trips = loop::trip_count(from->getSExtValue(), to->getSExtValue(), instr.step);
      if (trips <= 1 || (instr.kind == loop::LoopKind::unroll && trips <= kUnrollLimit)) {
        for (int64_t i = 0; i < trips; ++i) {
          values_[instr.regions[0].counter] = b_.getInt64(from->getSExtValue() + i * instr.step);
          region(instr.regions[0]);
        }
        return;
      }
    }
    rolled(instr, operand(instr, 0), operand(instr, 1));
  }

  void lower_branch(const Instr& instr) {
    BasicBlock* then = block("then");
    BasicBlock* otherwise = block("else");
    BasicBlock* join = block("join");
    b_.CreateCondBr(operand(instr, 0), then, otherwise);
    b_.SetInsertPoint(then);
    region(instr.regions[0]);
    b_.CreateBr(join);
    b_.SetInsertPoint(otherwise);
    region(instr.regions[1]);
    b_.CreateBr(join);
    b_.SetInsertPoint(join);
  }

  // The code of a guard, offset by the instance that it failed in.
  Value* code_of(const Instr& instr) {
    Value* code = b_.getInt64(instr.code);
    constexpr int64_t kEach = loop::kInstanceCodes;
    if (instance_) code = b_.CreateAdd(code, b_.CreateMul(instance_, b_.getInt64(kEach)));
    for (Value* is_later : instances_)
      code = b_.CreateAdd(code, b_.CreateSelect(is_later, b_.getInt64(kEach), b_.getInt64(0)));
    return code;
  }

  // Keeps the first failure of this call in status = {code, detail}.
  void lower_guard(const Instr& instr) {
    BasicBlock* failed = block("failed");
    BasicBlock* first = grid_ ? nullptr : block("first");
    BasicBlock* join = block("ok");
    llvm::MDNode* likely = llvm::MDBuilder(context_).createBranchWeights(1 << 20, 1);
    b_.CreateCondBr(operand(instr, 0), join, failed, likely);
    b_.SetInsertPoint(failed);
    if (grid_) {
      grid_->fail(status(), code_of(instr), operand(instr, 1));
    } else {
      b_.CreateCondBr(b_.CreateICmpEQ(b_.CreateLoad(b_.getInt64Ty(), status()), b_.getInt64(0)), first, join);
      b_.SetInsertPoint(first);
      b_.CreateStore(code_of(instr), status());
      b_.CreateStore(operand(instr, 1), b_.CreateConstGEP1_64(b_.getInt64Ty(), status(), 1));
    }
    b_.CreateBr(join);
    b_.SetInsertPoint(join);
  }

  void lower_alloc(const Instr& instr) {
    Memory& m = buffers_[instr.buffer];
    if (instr.space == loop::Space::shared) {
      LUMEN_CHECK(shared_, "shared memory needs a GPU, {} is none", target_.name);
      m.base = b_.CreateConstGEP1_64(b_.getInt8Ty(), shared_, shared_at_.at(instr.buffer));
      m.align = instr.align;
      m.scope = touched_, m.others = copied_;
      return;
    }
    if (m.base) return;  // an unrolled copy of the region; content is undefined at its start, so the slot can be shared
    BasicBlock& entry = function_->getEntryBlock();
    Ir at_entry(&entry, entry.begin());
    auto* slot = at_entry.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), instr.bytes));
    slot->setAlignment(llvm::Align(static_cast<uint64_t>(instr.align)));
    m.base = slot;
    m.align = instr.align;
  }

  void region(const loop::Region& r) {
    const Op* before = nullptr;
    for (size_t i = 0; i < r.code.size(); ++i) {
      const Instr& instr = r.code[i];
      follows_product_ = before && *before == Op::product_;
      if (streaming_) streaming_->enter(r, i);
      lower(instr);
      if (streaming_) streaming_->leave(r, i);
      before = &instr.op;
    }
  }

  void lower_copy_together(const Instr& instr) {
    llvm::CallInst* copy =
        grid_->copy_together(place(instr.buffer, operand(instr, 0)), place(instr.from, operand(instr, 1)), instr.bytes);
    if (!copy) return;
    copy->setMetadata(llvm::LLVMContext::MD_alias_scope, copied_);
    copy->setMetadata(llvm::LLVMContext::MD_noalias, touched_);
  }

  Value* place(loop::BufferId buffer, Value* offset) { return memory_.place(buffers_[buffer], offset); }

  Value* lower_load_matrix(const Instr& instr) {
    const machine::Row* row = target_.find_row(instr.row);
    if (!row) throw Error(Exit::hardware, fmt::format("machine {} has no instruction '{}'", target_.name, instr.row));
    return call_on_memory(b_, *row, place(instr.buffer, operand(instr, 0)), register_type(context_, instr.type));
  }

  Value* lower_product(const Instr& instr) {
    const machine::Row* row = target_.find_row(instr.row);
    const auto matrix = std::find_if(target_.matrices.begin(), target_.matrices.end(),
                                     [&](const machine::MatrixRow& r) { return r.row == instr.row; });
    if (!row || matrix == target_.matrices.end() || !matrix->in_shared)
      throw Error(Exit::hardware, fmt::format("machine {} has no instruction '{}'", target_.name, instr.row));
    return begin_product(b_, *row, *matrix, operand(instr, 0),
                         instr.buffer < 0 ? operand(instr, 1) : place(instr.buffer, operand(instr, 1)),
                         place(instr.from, operand(instr, 2)), follows_product_);
  }

  // Tiles of outer products are lowered for the matrix unit; other code of the kernel is not.
  bool lower_streaming(const Instr& instr) {
    if (!streaming_) return false;
    if (!streaming_->handles(instr)) {
      if (instr.op == Op::store_ || instr.op == Op::scatter_) streaming_->note_store();
      return false;
    }
    const auto address = [&] { return place(instr.buffer, operand(instr, instr.op == Op::store_ ? 1 : 0)); };
    streaming_->lower(instr, streaming_->has_address(instr) ? address() : nullptr);
    return true;
  }

  void lower(const Instr& instr) {
    if (lower_streaming(instr)) return;
    switch (instr.op) {
      case Op::loop_:
        return lower_loop(instr);
      case Op::branch_:
        return lower_branch(instr);
      case Op::guard_:
        return lower_guard(instr);
      case Op::alloc_:
        return lower_alloc(instr);
      case Op::store_:
        if (is_tile_in_memory(instr, type(instr.operands[0])))
          return store_tile(b_, operand(instr, 0), memory_.place(buffer(instr), operand(instr, 1)));
        return memory_.store(buffer(instr), type(instr.operands[0]), operand(instr, 0), operand(instr, 1), instr.align,
                             optional_operand(instr, 2));
      case Op::scatter_:
        return memory_.scatter(buffer(instr), type(instr.operands[0]), operand(instr, 0), operand(instr, 1));
      case Op::prefetch_:  // lanes of a GPU hide each other's latency
        if (target_.kind == machine::Kind::cpu) memory_.prefetch(buffer(instr), operand(instr, 0), instr.cache);
        return;
      case Op::barrier_:
        LUMEN_CHECK(grid_, "barriers need a GPU, {} is none", target_.name);
        if (has_products_) publish_to_products(b_);
        return grid_->barrier();
      case Op::wave_barrier_:
        LUMEN_CHECK(grid_, "lanes meet on a GPU, {} is none", target_.name);
        return grid_->wave_barrier();
      case Op::copy_:
        return grid_->copy(place(instr.buffer, operand(instr, 0)), place(instr.from, operand(instr, 1)), instr.bytes,
                           optional_operand(instr, 2));
      case Op::copy_together_:
        return lower_copy_together(instr);
      case Op::commit_:
        return instr.flow == loop::Flow::copies ? grid_->commit_copies() : commit_products(b_);
      case Op::wait_:
        if (instr.flow == loop::Flow::kernels) return grid_->wait_kernels();
        return instr.flow == loop::Flow::copies ? grid_->wait_copies(instr.groups) : wait_products(b_, instr.groups);
      default:
        values_[instr.result] = compute(instr);
        return;
    }
  }

  // Tiles in private buffers of exactly their size stay in registers: the optimizer must see plain loads and stores.
  bool is_tile_in_memory(const Instr& instr, VType t) {
    if (!is_tile(target_, t) || optional_operand(instr, instr.op == Op::store_ ? 2 : 1)) return false;
    const auto* slot = llvm::dyn_cast<llvm::AllocaInst>(buffer(instr).base);
    return !slot || slot->getAllocatedType()->getArrayNumElements() != static_cast<uint64_t>(kTileBytes);
  }

  Value* compute(const Instr& instr) {
    switch (instr.op) {
      case Op::constant_: {
        Value* value = constant(context_, instr);
        const bool zero = llvm::cast<llvm::Constant>(value)->isNullValue();
        return zero && is_tile(target_, instr.type) ? zero_tile(b_, value->getType()) : value;
      }
      case Op::op_: {
        std::vector<Value*> x;
        for (size_t i = 0; i < instr.operands.size(); ++i) x.push_back(operand(instr, i));
        if (loop::is_transcendental(instr.scalar_op)) return transcendentals_.lower(b_, instr.scalar_op, instr.type, x);
        const size_t typed = instr.scalar_op == ScalarOp::select_ ? 1 : 0;
        return lower_scalar(b_, instr.scalar_op, type(instr.operands[typed]), instr.type, x);
      }
      case Op::splat_:
        return instr.type.lanes == 1 ? operand(instr, 0)
                                     : b_.CreateVectorSplat(static_cast<unsigned>(instr.type.lanes), operand(instr, 0));
      case Op::extract_:
        return type(instr.operands[0]).lanes == 1
                   ? operand(instr, 0)
                   : b_.CreateExtractElement(operand(instr, 0), static_cast<uint64_t>(instr.lane));
      case Op::insert_:
        return instr.type.lanes == 1
                   ? operand(instr, 1)
                   : b_.CreateInsertElement(operand(instr, 0), operand(instr, 1), static_cast<uint64_t>(instr.lane));
      case Op::shuffle_:
        return shuffle(instr);
      case Op::fold_:
        return fold(instr);
      case Op::load_:
        if (is_tile_in_memory(instr, instr.type))
          return load_tile(b_, register_type(context_, instr.type), memory_.place(buffer(instr), operand(instr, 0)));
        return memory_.load(buffer(instr), instr.type, operand(instr, 0), instr.align, optional_operand(instr, 1));
      case Op::gather_:
        return memory_.gather(buffer(instr), instr.type, operand(instr, 0));
      case Op::inst_:
        return call_row(instr);
      case Op::lane_id_:
        return grid_->lane();
      case Op::wave_shuffle_:
        return grid_->wave_shuffle(operand(instr, 0), operand(instr, 1));
      case Op::load_matrix_:
        return lower_load_matrix(instr);
      case Op::product_:
        return lower_product(instr);
      case Op::ready_:
        return ready_sums(b_, operand(instr, 0));
      default:
        LUMEN_UNREACHABLE("{} is not for {}", loop::print(instr), target_.name);
    }
  }

  // A few lanes repeated over and over become a broadcast of one wider number, which machines load from memory.
  Value* repeated(const Instr& instr) {
    const VType from = type(instr.operands[0]);
    const int bits = from.lanes * scalar_bits(from.scalar), copies = instr.type.lanes / from.lanes;
    if (instr.operands.size() != 1 || from.lanes == 1 || copies < 2 || instr.type.lanes % from.lanes != 0)
      return nullptr;
    if (from.scalar == Scalar::boolean || (bits != 16 && bits != 32 && bits != 64)) return nullptr;
    for (size_t i = 0; i < instr.mask.size(); ++i)
      if (instr.mask[i] != static_cast<int>(i) % from.lanes) return nullptr;
    Value* word = b_.CreateBitCast(operand(instr, 0), b_.getIntNTy(bits));
    return b_.CreateBitCast(b_.CreateVectorSplat(static_cast<unsigned>(copies), word),
                            register_type(context_, instr.type));
  }

  Value* shuffle(const Instr& instr) {
    if (Value* splat = repeated(instr)) return splat;
    const int lanes = type(instr.operands[0]).lanes;
    const auto as_vector = [&](Value* x) { return lanes == 1 ? b_.CreateVectorSplat(1, x) : x; };
    Value* a = as_vector(operand(instr, 0));
    const bool two = instr.operands.size() == 2;
    bool zeros = false;
    for (const int lane : instr.mask) zeros = zeros || lane < 0;
    Value* none = llvm::Constant::getNullValue(a->getType());
    Value* c = two ? as_vector(operand(instr, 1)) : none;
    std::vector<int> mask = instr.mask;
    for (int& lane : mask)
      if (lane < 0)
        lane = two ? -1 : lanes;  // lane `lanes` is the first of `none`; for two vectors zeros are inserted below
    Value* out = b_.CreateShuffleVector(a, c, mask);
    if (two && zeros) {
      const int n = mask.size();
      for (int i = 0; i < n; ++i) mask[i] = instr.mask[i] < 0 ? n : i;
      out = b_.CreateShuffleVector(out, llvm::Constant::getNullValue(out->getType()), mask);
    }
    return instr.type.lanes == 1 ? b_.CreateExtractElement(out, uint64_t{0}) : out;
  }

  // Tree reduction: (x0 op x[n/2]), ... until one lane is left.
  Value* fold(const Instr& instr) {
    Value* x = operand(instr, 0);
    const Scalar s = instr.type.scalar;
    for (int lanes = type(instr.operands[0]).lanes; lanes > 1;) {
      const int half = lanes / 2;
      const auto part = [&](int first) -> Value* {
        if (half == 1) return b_.CreateExtractElement(x, static_cast<uint64_t>(first));
        std::vector<int> mask;
        for (int i = 0; i < half; ++i) mask.push_back(first + i);
        return b_.CreateShuffleVector(x, mask);
      };
      x = lower_scalar(b_, instr.scalar_op, {s, half}, {s, half}, {part(0), part(half)});
      lanes = half;
    }
    return x;
  }

  // A machine instruction by its LLVM intrinsic. Vectors of equal size but a different lane count are bitcast.
  Value* call_row(const Instr& instr) {
    const machine::Row* row = target_.find_row(instr.row);
    if (!row) throw Error(Exit::hardware, fmt::format("machine {} has no instruction '{}'", target_.name, instr.row));
    if (!row->needs.empty() && !features_.checkFeatures("+" + row->needs))
      throw Error(Exit::hardware, fmt::format("instruction '{}' needs {}, which machine {} lacks", instr.row,
                                              row->needs, target_.name));
    if (!row->arguments.empty()) {
      std::vector<Value*> operands;
      for (size_t i = 0; i < instr.operands.size(); ++i) operands.push_back(operand(instr, i));
      return call_spelled(b_, *row, operands, register_type(context_, instr.type));
    }
    const llvm::Intrinsic::ID id = llvm::Intrinsic::lookupIntrinsicID(row->llvm);
    LUMEN_CHECK(id != llvm::Intrinsic::not_intrinsic, "row {}: LLVM does not have {}", row->name, row->llvm);
    const bool scalable = target_.scalable && llvm::Intrinsic::getBaseName(id).starts_with("llvm.aarch64.sve.");
    std::vector<Value*> arguments;
    std::vector<llvm::Type*> types;
    for (size_t i = 0; i < instr.operands.size(); ++i) {
      arguments.push_back(scalable ? to_scalable(operand(instr, i)) : operand(instr, i));
      types.push_back(arguments.back()->getType());
    }
    if (is_tile_intrinsic(row->llvm)) return call_tile(b_, row->llvm, arguments);
    llvm::Type* result = register_type(context_, instr.type);
    llvm::Type* returned = scalable ? scalable_type(result) : result;
    llvm::Function* callee = llvm::Intrinsic::isOverloaded(id)
                                 ? llvm::Intrinsic::getOrInsertDeclaration(&module_, id, returned, types)
                                 : llvm::Intrinsic::getOrInsertDeclaration(&module_, id);
    LUMEN_CHECK(callee->arg_size() == arguments.size(), "row {}: {} takes {} operands", row->name, row->llvm,
                callee->arg_size());
    for (size_t i = 0; i < arguments.size(); ++i)
      arguments[i] = b_.CreateBitCast(arguments[i], callee->getArg(i)->getType());
    Value* out = b_.CreateCall(callee, arguments);
    if (scalable) return b_.CreateExtractVector(result, out, b_.getInt64(0));
    return b_.CreateBitCast(out, result);
  }

  // The scalable type that contains a fixed-width vector at this machine's length.
  llvm::Type* scalable_type(llvm::Type* fixed) const {
    auto* vector = llvm::cast<llvm::FixedVectorType>(fixed);
    const unsigned granules = target_.vector_bits / kScalableGranule;
    return llvm::ScalableVectorType::get(vector->getElementType(), vector->getNumElements() / granules);
  }
  Value* to_scalable(Value* x) {
    llvm::Type* type = scalable_type(x->getType());
    return b_.CreateInsertVector(type, llvm::PoisonValue::get(type), x, b_.getInt64(0));
  }

  const Kernel& k_;
  const machine::Machine& target_;
  const llvm::MCSubtargetInfo& features_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  Ir b_;
  MemoryLowering memory_;
  Transcendentals transcendentals_;
  std::optional<Grid> grid_;  // GPUs only
  std::unique_ptr<StreamingLowering> streaming_;
  LaunchShape shape_;
  Value* thread_ = nullptr;                  // within the block, in grid kernels
  Value* block_ = nullptr;                   // of a GPU kernel, among the blocks of its instance
  Value *begin_ = nullptr, *end_ = nullptr;  // of a CPU kernel: the requested iterations
  Value* instance_ = nullptr;                // .. and their instance, if there are several
  std::vector<Value*> instances_;            // whether the block's instance is at least the second, the third, ..
  Value* shared_ = nullptr;
  std::map<loop::BufferId, int64_t> shared_at_;
  bool has_products_ = false;
  bool copies_together_ = false;                         // cooperative copies, by an instruction
  llvm::MDNode *copied_ = nullptr, *touched_ = nullptr;  // alias scopes of shared memory for cooperative copies
  bool follows_product_ = false;                         // the current instruction
  bool early_ = false;                                   // the kernel has its own wait for the previous kernels
  llvm::Function* function_ = nullptr;
  std::vector<Value*> values_;
  std::vector<Memory> buffers_;
};

}  // namespace

void lower_kernel(const Kernel& k, const std::string& symbol, const machine::Machine& target,
                  const llvm::TargetMachine& machine, llvm::Module& module) {
  KernelLowering(k, target, machine, module).run(symbol);
}

}  // namespace lumen::emit
