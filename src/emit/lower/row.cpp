// See row.h. Proved by tests/emit/gpu_test.cpp.
#include "emit/lower/row.h"

#include <llvm/IR/Intrinsics.h>

#include <charconv>
#include <sstream>

#include "base/check.h"

namespace lumen::emit {

using llvm::Value;

namespace {

unsigned bits_of(llvm::Type* t) {
  return t->getPrimitiveSizeInBits().getFixedValue();
}

// One word of Row::arguments.
struct Argument {
  int operand = -1;  // or a constant
  int part = -1;     // of the operand; -1: all
  int64_t constant = 0;
  bool half = false;  // the constant: which half of its word the call's part uses
  std::string type;   // "": the intrinsic's type; "word": the 32 bits that contain the call's part of the operand
};

std::vector<Argument> arguments_of(const machine::Row& row) {
  std::vector<Argument> out;
  std::istringstream words(row.arguments);
  for (std::string word; words >> word;) {
    Argument a;
    const size_t colon = word.find(':');
    if (colon != std::string::npos) a.type = word.substr(colon + 1);
    const size_t first = word[0] == '=' ? 1 : 0;
    int64_t number = 0;
    std::from_chars(word.data() + first, word.data() + std::min(colon, word.size()), number);
    if (first == 1) a.constant = number;
    a.half = word == "=half";
    if (first == 0) a.operand = number;
    const size_t dot = std::min(word.find('.'), word.size());
    if (dot < word.size()) std::from_chars(word.data() + dot + 1, word.data() + word.size(), a.part);
    out.push_back(std::move(a));
  }
  return out;
}

// "i32", "v8bf16"
llvm::Type* type_named(llvm::LLVMContext& context, const std::string& name) {
  size_t at = 0;
  unsigned lanes = 0;
  if (name[0] == 'v') {
    const auto [stop, error] = std::from_chars(name.data() + 1, name.data() + name.size(), lanes);
    at = stop - name.data();
  }
  const std::string scalar = name.substr(at);
  llvm::Type* type = scalar == "f16"    ? llvm::Type::getHalfTy(context)
                     : scalar == "bf16" ? llvm::Type::getBFloatTy(context)
                     : scalar == "f32"  ? llvm::Type::getFloatTy(context)
                                        : nullptr;
  if (!type) {
    unsigned bits = 0;
    std::from_chars(scalar.data() + 1, scalar.data() + scalar.size(), bits);
    LUMEN_CHECK(scalar[0] == 'i' && bits > 0, "no type '{}'", name);
    type = llvm::IntegerType::get(context, bits);
  }
  return lanes > 0 ? llvm::FixedVectorType::get(type, lanes) : type;
}

llvm::Function* declaration(Ir& b, const machine::Row& row, llvm::Intrinsic::ID id,
                            const std::vector<Argument>& arguments, const std::vector<Value*>& operands,
                            llvm::Type* result) {
  llvm::Module* module = b.GetInsertBlock()->getModule();
  if (!llvm::Intrinsic::isOverloaded(id)) return llvm::Intrinsic::getOrInsertDeclaration(module, id);
  std::vector<llvm::Type*> types;
  for (const Argument& a : arguments) {
    if (!a.type.empty()) {
      types.push_back(type_named(b.getContext(), a.type));
    } else {
      types.push_back(a.operand < 0 ? b.getInt32Ty() : operands[a.operand]->getType());
    }
  }
  llvm::Function* f = llvm::Intrinsic::getOrInsertDeclaration(module, id, result, types);
  LUMEN_CHECK(f, "row {}: {} has no such types", row.name, row.llvm);
  return f;
}

// The result of a call as one value, also if it is returned in parts.
Value* as_one(Ir& b, Value* out, llvm::Type* result) {
  if (!out->getType()->isStructTy()) return b.CreateBitCast(out, result);
  std::vector<Value*> parts;
  for (unsigned i = 0; i < out->getType()->getStructNumElements(); ++i) parts.push_back(b.CreateExtractValue(out, i));
  return join_bits(b, parts, result);
}

// One call; operands have exactly the sizes it takes. `words`: the operands of all calls, of which this is number
// `part`.
Value* call_once(Ir& b, llvm::Function* callee, const std::vector<Argument>& arguments,
                 const std::vector<Value*>& operands, llvm::Type* result, const std::vector<Value*>& words,
                 unsigned part) {
  constexpr unsigned kWord = 32;
  std::vector<Value*> passed;
  const auto wanted = [&] { return callee->getFunctionType()->getParamType(passed.size()); };
  for (const Argument& a : arguments) {
    if (a.operand < 0) {
      passed.push_back(llvm::ConstantInt::get(wanted(), a.half ? part % 2 : a.constant));
      continue;
    }
    Value* x = operands[a.operand];
    if (a.type == "word") {
      Value* const whole = words[a.operand];
      const unsigned bits = bits_of(whole->getType());
      passed.push_back(bits < kWord ? b.CreateZExt(b.CreateBitCast(whole, b.getIntNTy(bits)), b.getInt32Ty())
                                    : b.CreateBitCast(split_bits(b, whole, bits / kWord).at(part / 2), b.getInt32Ty()));
      continue;
    }
    if (a.part >= 0) {
      const std::vector<Value*> parts = split_bits(b, x, bits_of(x->getType()) / bits_of(wanted()));
      passed.push_back(b.CreateBitCast(parts.at(a.part), wanted()));
      continue;
    }
    for (Value* own : split_bits(b, x, std::max(1U, bits_of(x->getType()) / bits_of(wanted()))))
      passed.push_back(b.CreateBitCast(own, wanted()));
  }
  LUMEN_CHECK(passed.size() == callee->arg_size(), "{} takes {} arguments, not {}", callee->getName().str(),
              callee->arg_size(), passed.size());
  return as_one(b, b.CreateCall(callee, passed), result);
}

}  // namespace

std::vector<Value*> split_bits(Ir& b, Value* x, unsigned parts) {
  if (parts <= 1) return {x};
  const unsigned bits = bits_of(x->getType()) / parts;
  Value* vector = b.CreateBitCast(x, llvm::FixedVectorType::get(b.getIntNTy(bits), parts));
  std::vector<Value*> out;
  for (unsigned i = 0; i < parts; ++i) out.push_back(b.CreateExtractElement(vector, uint64_t{i}));
  return out;
}

Value* join_bits(Ir& b, const std::vector<Value*>& parts, llvm::Type* type) {
  if (parts.size() == 1) return b.CreateBitCast(parts[0], type);
  llvm::Type* whole = b.getIntNTy(bits_of(parts[0]->getType()));
  Value* vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(whole, static_cast<unsigned>(parts.size())));
  for (size_t i = 0; i < parts.size(); ++i)
    vector = b.CreateInsertElement(vector, b.CreateBitCast(parts[i], whole), uint64_t{i});
  return b.CreateBitCast(vector, type);
}

Value* call_on_memory(Ir& b, const machine::Row& row, Value* place, llvm::Type* result) {
  const llvm::Intrinsic::ID id = llvm::Intrinsic::lookupIntrinsicID(row.llvm);
  LUMEN_CHECK(id != llvm::Intrinsic::not_intrinsic, "row {}: LLVM does not have {}", row.name, row.llvm);
  llvm::Module* module = b.GetInsertBlock()->getModule();
  llvm::CallInst* out = b.CreateCall(llvm::Intrinsic::getOrInsertDeclaration(module, id, {place->getType()}), {place});
  out->setConvergent();
  return as_one(b, out, result);
}

Value* call_spelled(Ir& b, const machine::Row& row, const std::vector<Value*>& operands, llvm::Type* result) {
  const llvm::Intrinsic::ID id = llvm::Intrinsic::lookupIntrinsicID(row.llvm);
  LUMEN_CHECK(id != llvm::Intrinsic::not_intrinsic, "row {}: LLVM does not have {}", row.name, row.llvm);
  const std::vector<Argument> arguments = arguments_of(row);
  llvm::Function* callee = declaration(b, row, id, arguments, operands, result);
  llvm::Type* returned = callee->getReturnType();
  const unsigned parts = returned->isStructTy() ? 1 : bits_of(result) / bits_of(returned);
  if (parts <= 1) return call_once(b, callee, arguments, operands, result, operands, 0);
  std::vector<std::vector<Value*>> pieces;
  for (Value* x : operands) pieces.push_back(split_bits(b, x, parts));
  std::vector<Value*> out;
  for (unsigned p = 0; p < parts; ++p) {
    std::vector<Value*> part;
    for (const auto& piece : pieces) part.push_back(piece[p]);
    out.push_back(call_once(b, callee, arguments, part, returned, operands, p));
  }
  return join_bits(b, out, result);
}

}  // namespace lumen::emit
