// See scalar.h. Every operation here equals eval_scalar_op bit for bit; proved by tests/emit/scalar_test.cpp.
#include "emit/lower/scalar.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PatternMatch.h>

#include <bit>
#include <cmath>
#include <optional>

#include "base/check.h"

namespace lumen::emit {
namespace {

using llvm::Value;
using llvm::Intrinsic::ID;
using loop::VType;

class ScalarLowering {
 public:
  ScalarLowering(Ir& builder, int lanes) : b_(builder), lanes_(lanes) {}

  Value* integer(Scalar s, int64_t x) { return splat_integer(b_.getContext(), {s, lanes_}, x); }
  Value* real(Scalar s, double x) { return splat_real(b_.getContext(), {s, lanes_}, x); }
  llvm::Type* type(Scalar s) { return register_type(b_.getContext(), {s, lanes_}); }
  Value* bits_of(Value* x, Scalar s) { return b_.CreateBitCast(x, type(s)); }

  static bool is_small(Scalar s) { return s == Scalar::f16 || s == Scalar::bf16; }

  // f16 and bf16 to f32: exact.
  Value* widen(Value* x, Scalar s) {
    if (s == Scalar::f16) return b_.CreateFPExt(x, type(Scalar::f32));
    Value* high = b_.CreateShl(b_.CreateZExt(x, type(Scalar::u32)), integer(Scalar::u32, 16));
    return b_.CreateBitCast(high, type(Scalar::f32));
  }

  // f32 to f16 or bf16, nearest even, NaN kept quiet.
  Value* narrow(Value* x, Scalar s) {
    if (s == Scalar::f16) return b_.CreateFPTrunc(x, type(Scalar::f16));
    if (b_.GetInsertBlock()->getModule()->getTargetTriple().isNVPTX()) {  // an instruction of all supported generations
      llvm::Type* half = llvm::Type::getBFloatTy(b_.getContext());
      return b_.CreateBitCast(b_.CreateFPTrunc(x, with_lanes(half, lanes_)), type(Scalar::u16));
    }
    Value* bits = bits_of(x, Scalar::u32);
    Value* odd = b_.CreateAnd(b_.CreateLShr(bits, integer(Scalar::u32, 16)), integer(Scalar::u32, 1));
    Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, integer(Scalar::u32, 0x7fff)));
    Value* quiet = b_.CreateOr(bits, integer(Scalar::u32, 0x400000));
    Value* chosen = b_.CreateSelect(b_.CreateFCmpUNO(x, x), quiet, rounded);
    return b_.CreateTrunc(b_.CreateLShr(chosen, integer(Scalar::u32, 16)), type(Scalar::u16));
  }

  // f64 to f16 or bf16 with one rounding: through f32 rounded to odd, which preserves the sticky bit for the second
  // one.
  Value* narrow_wide(Value* x, Scalar s) {
    Value* near = b_.CreateFPTrunc(x, type(Scalar::f32));
    Value* back = b_.CreateFPExt(near, type(Scalar::f64));
    Value* above = b_.CreateFCmpOGT(magnitude(back), magnitude(x));
    Value* bits = bits_of(near, Scalar::u32);
    Value* toward_zero = b_.CreateSelect(above, b_.CreateSub(bits, integer(Scalar::u32, 1)), bits);
    Value* odd = b_.CreateOr(toward_zero, integer(Scalar::u32, 1));
    Value* chosen = b_.CreateSelect(b_.CreateFCmpONE(back, x), odd, bits);
    return narrow(b_.CreateBitCast(chosen, type(Scalar::f32)), s);
  }

  Value* magnitude(Value* x) { return unary(llvm::Intrinsic::fabs, x); }
  Value* unary(ID id, Value* x) { return b_.CreateUnaryIntrinsic(id, x); }

  // AMD multiplies and adds halves with f32 accumulation directly (mixed precision), but not in packed pairs, for which
  // halves must be widened first.
  bool takes_halves(const std::vector<Value*>& x) {
    if (lanes_ == 1 || !b_.GetInsertBlock()->getModule()->getTargetTriple().isAMDGCN()) return false;
    return std::any_of(x.begin(), x.end(), [](Value* v) {
      const auto* wide = llvm::dyn_cast<llvm::FPExtInst>(v);
      return wide != nullptr && wide->getSrcTy()->getScalarType()->isHalfTy();
    });
  }
  Value* fma_by_lanes(const std::vector<Value*>& x) {
    Value* all = llvm::PoisonValue::get(x[0]->getType());
    for (int lane = 0; lane < lanes_; ++lane) {
      std::vector<Value*> one;
      for (Value* v : x) one.push_back(b_.CreateExtractElement(v, lane));
      Value* sum = b_.CreateIntrinsic(llvm::Intrinsic::fma, {one[0]->getType()}, one);
      all = b_.CreateInsertElement(all, sum, lane);
    }
    return all;
  }

  static constexpr float kUnits = 1 << 23;  // from this value on an f32 has steps of 1: its low byte is the integer's

  // NVIDIA converts bytes at half rate, after unpacking them. Instead a byte permutation puts a byte below the exponent
  // of kUnits, which is then subtracted: exact. Null on other targets.
  Value* floats_of_bytes(Scalar from, Value* x) {
    if (scalar_bits(from) != 8 || !b_.GetInsertBlock()->getModule()->getTargetTriple().isNVPTX()) return nullptr;
    llvm::Type* words = words_of(from);
    if (words == nullptr) return nullptr;
    x = b_.CreateBitCast(x, words);
    if (is_signed(from)) x = b_.CreateXor(x, in_words(words, 0x80, from));
    constexpr int kBytes = kWord / 8, kPlace = 0x7440;  // byte selectors 4 to 7 select from kUnits
    const auto bits = llvm::APFloat(kUnits).bitcastToAPInt();
    Value* all = llvm::PoisonValue::get(with_lanes(b_.getInt32Ty(), lanes_));
    for (int lane = 0; lane < lanes_; ++lane) {
      Value* word = words->isVectorTy() ? b_.CreateExtractElement(x, lane / kBytes) : x;
      Value* one = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_prmt, {},
                                      {word, b_.getInt(bits), b_.getInt32(kPlace | lane % kBytes)});
      all = b_.CreateInsertElement(all, one, lane);
    }
    const float zero = kUnits + (is_signed(from) ? 128 : 0);
    return b_.CreateFSub(b_.CreateBitCast(all, type(Scalar::f32)), real(Scalar::f32, zero));
  }

  // Folds adding a small integer into that subtraction. Null for other values.
  Value* move_bytes(Value* x, Value* by, double sign) {
    using namespace llvm::PatternMatch;
    Value* bits = nullptr;
    const llvm::APFloat *zero = nullptr, *number = nullptr;
    if (!match(x, m_FSub(m_BitCast(m_Value(bits)), m_APFloat(zero))) || !match(by, m_APFloat(number))) return nullptr;
    const auto* put = llvm::dyn_cast<llvm::InsertElementInst>(bits);
    if (!put || !match(put->getOperand(1), m_Intrinsic<llvm::Intrinsic::nvvm_prmt>())) return nullptr;
    const double moved = zero->convertToFloat() + sign * number->convertToFloat();
    if (!number->isInteger() || !(moved >= kUnits - (1 << 16)) || !(moved <= kUnits + (1 << 16))) return nullptr;
    return b_.CreateFSub(b_.CreateBitCast(bits, type(Scalar::f32)), real(Scalar::f32, moved));
  }

  Value* floats(ScalarOp op, Scalar s, const std::vector<Value*>& x) {
    if (op == ScalarOp::fma_ && is_small(s)) return small_fma(s, x);
    if (is_small(s) && op != ScalarOp::select_) {
      std::vector<Value*> wide;
      for (Value* v : x) wide.push_back(widen(v, s));
      return narrow(floats(op, Scalar::f32, wide), s);
    }
    switch (op) {
      case ScalarOp::add_:
        if (Value* sum = move_bytes(x[0], x[1], -1)) return sum;
        return b_.CreateFAdd(x[0], x[1]);
      case ScalarOp::sub_:
        if (Value* sum = move_bytes(x[0], x[1], 1)) return sum;
        return b_.CreateFSub(x[0], x[1]);
      case ScalarOp::mul_:
        return b_.CreateFMul(x[0], x[1]);
      case ScalarOp::div_:
        return b_.CreateFDiv(x[0], x[1]);
      case ScalarOp::neg_:
        return b_.CreateFNeg(x[0]);
      case ScalarOp::abs_:
        return magnitude(x[0]);
      case ScalarOp::min_:
        return b_.CreateSelect(b_.CreateFCmpOLT(x[0], x[1]), x[0], x[1]);
      case ScalarOp::max_:
        return b_.CreateSelect(b_.CreateFCmpOGT(x[0], x[1]), x[0], x[1]);
      case ScalarOp::floor_:
        return unary(llvm::Intrinsic::floor, x[0]);
      case ScalarOp::ceil_:
        return unary(llvm::Intrinsic::ceil, x[0]);
      case ScalarOp::trunc_:
        return unary(llvm::Intrinsic::trunc, x[0]);
      case ScalarOp::rint_:
        return unary(llvm::Intrinsic::roundeven, x[0]);
      case ScalarOp::round_:
        return unary(llvm::Intrinsic::round, x[0]);
      case ScalarOp::sqrt_:
        return unary(llvm::Intrinsic::sqrt, x[0]);
      case ScalarOp::fma_:
        if (s == Scalar::f32 && takes_halves(x)) return fma_by_lanes(x);
        return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x[0]->getType()}, {x[0], x[1], x[2]});
      default:
        LUMEN_UNREACHABLE("{} of floats", scalar_op_info(op).name);
    }
  }

  // In f64 the product of two small floats is exact and the sum rounds far below the last bit of the result.
  Value* small_fma(Scalar s, const std::vector<Value*>& x) {
    std::vector<Value*> wide;
    for (Value* v : x) wide.push_back(b_.CreateFPExt(widen(v, s), type(Scalar::f64)));
    return narrow_wide(floats(ScalarOp::fma_, Scalar::f64, wide), s);
  }

  Value* compare(ScalarOp op, Scalar s, Value* a, Value* c) {
    if (is_float(s)) {
      if (is_small(s)) return compare(op, Scalar::f32, widen(a, s), widen(c, s));
      switch (op) {
        case ScalarOp::eq_:
          return b_.CreateFCmpOEQ(a, c);
        case ScalarOp::ne_:
          return b_.CreateFCmpUNE(a, c);
        case ScalarOp::lt_:
          return b_.CreateFCmpOLT(a, c);
        default:
          return b_.CreateFCmpOLE(a, c);
      }
    }
    switch (op) {
      case ScalarOp::eq_:
        return b_.CreateICmpEQ(a, c);
      case ScalarOp::ne_:
        return b_.CreateICmpNE(a, c);
      case ScalarOp::lt_:
        return is_signed(s) ? b_.CreateICmpSLT(a, c) : b_.CreateICmpULT(a, c);
      default:
        return is_signed(s) ? b_.CreateICmpSLE(a, c) : b_.CreateICmpULE(a, c);
    }
  }

  // Floor division: quotient or remainder.
  Value* divide(bool quotient, Scalar s, Value* a, Value* c) {
    const auto* splat = llvm::dyn_cast<llvm::Constant>(c);
    if (splat && lanes_ > 1) splat = splat->getSplatValue();
    const auto* number = llvm::dyn_cast_or_null<llvm::ConstantInt>(splat);
    if (number && number->getValue().isStrictlyPositive() && number->getValue().isPowerOf2()) {
      const unsigned shift = number->getValue().logBase2();
      if (!quotient) return b_.CreateAnd(a, integer(s, (uint64_t{1} << shift) - 1));
      return is_signed(s) ? b_.CreateAShr(a, integer(s, shift)) : b_.CreateLShr(a, integer(s, shift));
    }
    const bool safe = number && !number->isZero() && !number->isMinusOne();
    Value* zero = integer(s, 0);
    Value* none = safe ? nullptr : b_.CreateICmpEQ(c, zero);
    if (!is_signed(s)) {
      Value* divisor = safe ? c : b_.CreateSelect(none, integer(s, 1), c);
      Value* r = quotient ? b_.CreateUDiv(a, divisor) : b_.CreateURem(a, divisor);
      return safe ? r : b_.CreateSelect(none, zero, r);
    }
    // The smallest integer divided by -1 would trap: a divisor of -1 gives the negation, 0 gives 0.
    Value* negative = safe ? nullptr : b_.CreateICmpEQ(c, integer(s, -1));
    Value* divisor = safe ? c : b_.CreateSelect(b_.CreateOr(none, negative), integer(s, 1), c);
    Value* rest = b_.CreateSRem(a, divisor);
    Value* below = b_.CreateAnd(b_.CreateICmpNE(rest, zero), b_.CreateICmpSLT(b_.CreateXor(rest, divisor), zero));
    Value* r = quotient ? b_.CreateSub(b_.CreateSDiv(a, divisor), b_.CreateZExt(below, a->getType()))
                        : b_.CreateAdd(rest, b_.CreateSelect(below, divisor, zero));
    if (safe) return r;
    r = b_.CreateSelect(negative, quotient ? b_.CreateNeg(a) : zero, r);
    return b_.CreateSelect(none, zero, r);
  }

  static constexpr int kWord = 32;

  // 32-bit words that hold packed narrow lanes on GPUs, which have no narrow registers; null on other targets.
  llvm::Type* words_of(Scalar s) {
    const int bits = scalar_bits(s);
    const llvm::Triple& triple = b_.GetInsertBlock()->getModule()->getTargetTriple();
    if (!triple.isNVPTX() && !triple.isAMDGCN()) return nullptr;
    if (s == Scalar::boolean || bits >= kWord || bits * lanes_ % kWord != 0 || lanes_ == 1) return nullptr;
    return with_lanes(b_.getInt32Ty(), bits * lanes_ / kWord);
  }
  Value* in_words(llvm::Type* words, uint64_t lane_bits, Scalar s) {
    const llvm::APInt mask = llvm::APInt::getSplat(kWord, llvm::APInt(scalar_bits(s), lane_bits));
    return llvm::ConstantInt::get(words, mask);
  }

  // Packed byte addition without carries between bytes: the top bit of each is left out of the word's sum or difference
  // and combined afterwards. Null for others.
  Value* add_words(ScalarOp op, Scalar s, Value* a, Value* c) {
    llvm::Type* words = scalar_bits(s) == 8 ? words_of(s) : nullptr;
    if (words == nullptr) return nullptr;
    a = b_.CreateBitCast(a, words), c = b_.CreateBitCast(c, words);
    Value* low = in_words(words, 0x7f, s);
    Value* high = in_words(words, 0x80, s);
    Value* differ = b_.CreateXor(a, c);
    Value* sum = op == ScalarOp::add_ ? b_.CreateAdd(b_.CreateAnd(a, low), b_.CreateAnd(c, low))
                                      : b_.CreateSub(b_.CreateOr(a, high), b_.CreateAnd(c, low));
    if (op == ScalarOp::sub_) differ = b_.CreateNot(differ);
    return b_.CreateBitCast(b_.CreateXor(sum, b_.CreateAnd(differ, high)), type(s));
  }

  // Bitwise operations on packed words, on targets with 32-bit registers.
  Value* bitwise(ScalarOp op, Scalar s, Value* a, Value* c) {
    llvm::Type* words = words_of(s);
    if (words != nullptr) a = b_.CreateBitCast(a, words), c = b_.CreateBitCast(c, words);
    Value* x = op == ScalarOp::and_ ? b_.CreateAnd(a, c) : op == ScalarOp::or_ ? b_.CreateOr(a, c) : b_.CreateXor(a, c);
    return words != nullptr ? b_.CreateBitCast(x, type(s)) : x;
  }

  // Shifts packed narrow unsigned lanes by a common constant: words are shifted, and bits from the neighbouring lane
  // are masked. Null for others.
  Value* shift_words(ScalarOp op, Scalar s, Value* a, Value* amount) {
    const int bits = scalar_bits(s);
    llvm::Type* words = words_of(s);
    if (words == nullptr || (op != ScalarOp::shl_ && is_signed(s))) return nullptr;
    const auto* splat = llvm::dyn_cast<llvm::Constant>(amount);
    const auto* number = splat ? llvm::dyn_cast_or_null<llvm::ConstantInt>(splat->getSplatValue()) : nullptr;
    if (!number || number->getZExtValue() >= static_cast<uint64_t>(bits)) return nullptr;
    const uint64_t by = number->getZExtValue(), ones = (uint64_t{1} << bits) - 1;
    const uint64_t keep = op == ScalarOp::shl_ ? ones << by & ones : ones >> by;
    Value* x = b_.CreateBitCast(a, words);
    Value* by_words = llvm::ConstantInt::get(words, by);
    x = op == ScalarOp::shl_ ? b_.CreateShl(x, by_words) : b_.CreateLShr(x, by_words);
    return b_.CreateBitCast(b_.CreateAnd(x, in_words(words, keep, s)), type(s));
  }

  Value* shift(ScalarOp op, Scalar s, Value* a, Value* amount) {
    if (Value* x = shift_words(op, s, a, amount)) return x;
    const int bits = scalar_bits(s);
    Value* outside = b_.CreateICmpUGE(amount, integer(s, bits));
    // If an instruction uses only 32 bits of the amount, LLVM 22 folds the select above into it, ignoring the higher
    // bits: mask the amount.
    if (bits == 64) amount = b_.CreateAnd(amount, integer(s, bits - 1));
    if (op == ScalarOp::shl_) return b_.CreateSelect(outside, integer(s, 0), b_.CreateShl(a, amount));
    if (!is_signed(s)) return b_.CreateSelect(outside, integer(s, 0), b_.CreateLShr(a, amount));
    return b_.CreateAShr(a, b_.CreateSelect(outside, integer(s, bits - 1), amount));
  }

  Value* multiply_high(Scalar s, Value* a, Value* c) {
    const auto bits = static_cast<unsigned>(scalar_bits(s));
    llvm::Type* wide = with_lanes(llvm::IntegerType::get(b_.getContext(), 2 * bits), lanes_);
    const auto extend = [&](Value* x) { return is_signed(s) ? b_.CreateSExt(x, wide) : b_.CreateZExt(x, wide); };
    Value* product = b_.CreateMul(extend(a), extend(c));
    return b_.CreateTrunc(b_.CreateLShr(product, llvm::ConstantInt::get(wide, bits)), type(s));
  }

  Value* integers(ScalarOp op, Scalar s, const std::vector<Value*>& x) {
    switch (op) {
      case ScalarOp::add_:
      case ScalarOp::sub_:
        if (Value* sum = add_words(op, s, x[0], x[1])) return sum;
        return op == ScalarOp::add_ ? b_.CreateAdd(x[0], x[1]) : b_.CreateSub(x[0], x[1]);
      case ScalarOp::mul_:
        return b_.CreateMul(x[0], x[1]);
      case ScalarOp::div_:
        return divide(true, s, x[0], x[1]);
      case ScalarOp::rem_:
        return divide(false, s, x[0], x[1]);
      case ScalarOp::neg_:
        return b_.CreateNeg(x[0]);
      case ScalarOp::abs_:
        return is_signed(s) ? b_.CreateSelect(b_.CreateICmpSLT(x[0], integer(s, 0)), b_.CreateNeg(x[0]), x[0]) : x[0];
      case ScalarOp::min_:
        return b_.CreateSelect(compare(ScalarOp::lt_, s, x[0], x[1]), x[0], x[1]);
      case ScalarOp::max_:
        return b_.CreateSelect(compare(ScalarOp::lt_, s, x[1], x[0]), x[0], x[1]);
      case ScalarOp::and_:
      case ScalarOp::or_:
      case ScalarOp::xor_:
        return bitwise(op, s, x[0], x[1]);
      case ScalarOp::not_:
        return b_.CreateNot(x[0]);
      case ScalarOp::shl_:
      case ScalarOp::shr_:
        return shift(op, s, x[0], x[1]);
      case ScalarOp::mulhi_:
        return multiply_high(s, x[0], x[1]);
      default:
        LUMEN_UNREACHABLE("{} of integers", scalar_op_info(op).name);
    }
  }

  // floor(log2 |x|) from the exponent bits; subnormals are scaled up first.
  Value* exponent(Scalar s, Value* x) {
    if (is_small(s)) return exponent(Scalar::f32, widen(x, s));
    const bool wide = s == Scalar::f64;
    const Scalar bits = wide ? Scalar::i64 : Scalar::i32;
    const int mantissa = wide ? 52 : 23, bias = wide ? 1023 : 127, lift = mantissa + 2;
    Value* size = magnitude(x);
    Value* subnormal = b_.CreateFCmpOLT(size, real(s, std::ldexp(1.0, 1 - bias)));
    Value* normal = b_.CreateSelect(subnormal, b_.CreateFMul(size, real(s, std::ldexp(1.0, lift))), size);
    Value* raw = b_.CreateLShr(bits_of(normal, bits), integer(bits, mantissa));
    Value* e = b_.CreateSub(raw, b_.CreateSelect(subnormal, integer(bits, bias + lift), integer(bits, bias)));
    e = b_.CreateSelect(b_.CreateFCmpOEQ(x, real(s, 0)), integer(bits, -1023), e);
    return wide ? b_.CreateTrunc(e, type(Scalar::i32)) : e;
  }

  Value* clamp(Value* x, int64_t low, int64_t high, Scalar s) {
    Value* floor = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, integer(s, low));
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, floor, integer(s, high));
  }

  // x * 2^n by three exact powers of two, the smallest step first: an earlier step can only be inexact where the final
  // result underflows to zero anyway, so one rounding happens.
  Value* scale(Scalar s, Value* x, Value* n) {
    if (is_small(s)) return narrow(scale(Scalar::f32, widen(x, s), n), s);
    const bool wide = s == Scalar::f64;
    const Scalar bits = wide ? Scalar::i64 : Scalar::i32;
    const int mantissa = wide ? 52 : 23, bias = wide ? 1023 : 127;
    const auto power = [&](Value* k) {
      return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(k, integer(bits, bias)), integer(bits, mantissa)), type(s));
    };
    if (wide) n = b_.CreateSExt(n, type(bits));
    Value* rest = clamp(n, 3 * (1 - bias), 3 * bias, bits);
    Value* first = clamp(rest, 1 - bias, bias, bits);
    rest = b_.CreateSub(rest, first);
    Value* second = clamp(rest, 1 - bias, bias, bits);
    rest = b_.CreateSub(rest, second);
    return b_.CreateFMul(b_.CreateFMul(b_.CreateFMul(x, power(rest)), power(second)), power(first));
  }

  Value* cast(Scalar from, Scalar to, Value* x) {
    if (from == to) return x;
    if (is_float(from)) return cast_float(from, to, x);
    if (to == Scalar::boolean) return b_.CreateICmpNE(x, integer(from, 0));
    if (!is_float(to)) {
      return is_signed(from) ? b_.CreateSExtOrTrunc(x, type(to)) : b_.CreateZExtOrTrunc(x, type(to));
    }
    if (to == Scalar::f32)
      if (Value* found = floats_of_bytes(from, x)) return found;
    const Scalar through = !is_small(to) ? to : scalar_bits(from) <= 16 ? Scalar::f32 : Scalar::f64;
    Value* r = is_signed(from) ? b_.CreateSIToFP(x, type(through)) : b_.CreateUIToFP(x, type(through));
    return through == to ? r : cast_float(through, to, r);
  }

  Value* cast_float(Scalar from, Scalar to, Value* x) {
    if (is_small(from)) {
      x = widen(x, from);
      from = Scalar::f32;
      if (to == Scalar::f32) return x;
    }
    if (to == Scalar::boolean) return b_.CreateFCmpUNE(x, real(from, 0));
    if (!is_float(to)) {
      if (is_signed(to) && is_clamped(to, x)) return b_.CreateFPToSI(x, type(to));
      return lanes_ == 1 ? saturate_scalar(to, x) : saturate_lanes(from, to, x);
    }
    if (is_small(to)) return from == Scalar::f64 ? narrow_wide(x, to) : narrow(x, to);
    return to == Scalar::f64 ? b_.CreateFPExt(x, type(to)) : b_.CreateFPTrunc(x, type(to));
  }

 private:
  Value* saturate_scalar(Scalar to, Value* x) {
    const ID id = is_signed(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b_.CreateIntrinsic(id, {type(to), x->getType()}, {x});
  }

  // The value of a constant splat.
  static std::optional<double> everywhere(Value* x) {
    const auto* c = llvm::dyn_cast<llvm::Constant>(x);
    if (c && c->getType()->isVectorTy()) c = c->getSplatValue();
    const auto* number = c ? llvm::dyn_cast<llvm::ConstantFP>(c) : nullptr;
    if (!number) return std::nullopt;
    return number->getType()->isFloatTy() ? double{number->getValueAPF().convertToFloat()}
                                          : number->getValueAPF().convertToDouble();
  }

  // Whether x is min(max(.., least), most), or in the other order, as floats() writes it, with bounds in the range of
  // the type: no saturation is needed, and NaN is excluded.
  static bool is_clamped(Scalar to, Value* x) {
    const double most = std::ldexp(1.0, scalar_bits(to) - 1);
    bool from_above = false, from_below = false;
    while (!from_above || !from_below) {
      auto* chosen = llvm::dyn_cast<llvm::SelectInst>(x);
      auto* less = chosen ? llvm::dyn_cast<llvm::FCmpInst>(chosen->getCondition()) : nullptr;
      const auto bound = chosen ? everywhere(chosen->getFalseValue()) : std::nullopt;
      if (!less || !bound || *bound < -most || *bound >= most || less->getOperand(0) != chosen->getTrueValue() ||
          less->getOperand(1) != chosen->getFalseValue())
        return false;
      const bool is_min = less->getPredicate() == llvm::CmpInst::FCMP_OLT;
      if (!is_min && less->getPredicate() != llvm::CmpInst::FCMP_OGT) return false;
      (is_min ? from_above : from_below) = true;
      x = chosen->getTrueValue();
    }
    return true;
  }

  // LLVM lowers the saturating intrinsics lane by lane on x86. Here out-of-range lanes are zeroed before the plain
  // conversion, which makes it defined, and replaced by their bound afterwards.
  Value* saturate_lanes(Scalar from, Scalar to, Value* x) {
    const int bits = scalar_bits(to);
    const bool with_sign = is_signed(to);
    Value* above = b_.CreateFCmpOGE(x, real(from, std::ldexp(1.0, with_sign ? bits - 1 : bits)));
    Value* below = b_.CreateFCmpOLT(x, real(from, with_sign ? -std::ldexp(1.0, bits - 1) : 0.0));
    Value* unfit = b_.CreateOr(b_.CreateOr(above, below), b_.CreateFCmpUNO(x, x));
    Value* safe = b_.CreateSelect(unfit, real(from, 0), x);
    Value* whole = with_sign ? b_.CreateFPToSI(safe, type(to)) : b_.CreateFPToUI(safe, type(to));
    const llvm::APInt most = with_sign ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits);
    const llvm::APInt least = with_sign ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits);
    whole = b_.CreateSelect(above, llvm::ConstantInt::get(type(to), most), whole);
    return b_.CreateSelect(below, llvm::ConstantInt::get(type(to), least), whole);
  }

  Ir& b_;
  int lanes_;
};

}  // namespace

Value* lower_scalar(Ir& b, ScalarOp op, VType from, VType to, const std::vector<Value*>& x) {
  ScalarLowering lowering(b, to.lanes);
  switch (op) {
    case ScalarOp::select_:
      return b.CreateSelect(x[0], x[1], x[2]);
    case ScalarOp::eq_:
    case ScalarOp::ne_:
    case ScalarOp::lt_:
    case ScalarOp::le_:
      return lowering.compare(op, from.scalar, x[0], x[1]);
    case ScalarOp::exponent_:
      return lowering.exponent(from.scalar, x[0]);
    case ScalarOp::ldexp_:
      return lowering.scale(from.scalar, x[0], x[1]);
    case ScalarOp::cast_:
      return lowering.cast(from.scalar, to.scalar, x[0]);
    case ScalarOp::bitcast_:
      return b.CreateBitCast(x[0], register_type(b.getContext(), to));
    default:
      return is_float(from.scalar) ? lowering.floats(op, from.scalar, x) : lowering.integers(op, from.scalar, x);
  }
}

}  // namespace lumen::emit
