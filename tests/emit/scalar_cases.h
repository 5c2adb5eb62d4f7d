// Kernels y = op(a, b, c) for every scalar operation and type, with inputs: what each target must compute as the
// evaluator does.
#pragma once

#include <optional>

#include "kernel/loop/rules.h"
#include "ladder.h"

namespace lumen::emit {

using loop::Builder;
using loop::VType;

constexpr Scalar kAll[] = {Scalar::boolean, Scalar::i8,  Scalar::u8,  Scalar::i16, Scalar::u16,
                           Scalar::i32,     Scalar::u32, Scalar::i64, Scalar::u64, Scalar::f16,
                           Scalar::bf16,    Scalar::f32, Scalar::f64};
constexpr int64_t kVectors = 48;

struct Case {
  loop::Kernel kernel;
  std::vector<Bytes> buffers;
  Scalar result;
};

// y = op(a, b, c) over kVectors vectors of `lanes`; nothing where the types do not fit.
inline std::optional<Case> make_case(ScalarOp op, std::vector<Scalar> operands, std::optional<Scalar> to, int lanes) {
  std::vector<VType> types;
  for (const Scalar s : operands) types.push_back({s, lanes});
  const loop::Typing typing = loop::type_of(op, types, to);
  if (!typing.error.empty()) return std::nullopt;
  const bool integer_division = (op == ScalarOp::div_ || op == ScalarOp::rem_) && !is_float(operands[0]);
  std::string name(scalar_op_info(op).name);
  for (const VType& t : types) name += "." + loop::print(t);
  Builder b(name + "." + loop::print(typing.type));
  Case c{{}, {}, typing.type.scalar};
  std::vector<loop::BufferId> in;
  const auto count = static_cast<size_t>(kVectors * lanes);
  for (size_t i = 0; i < operands.size(); ++i) {
    c.buffers.push_back(random_numbers(operands[i], count, 17 * i + static_cast<size_t>(op)));
    quiet(c.buffers.back(), operands[i]);  // registers of the evaluator hold quiet NaN only
    in.push_back(b.param("x", static_cast<int64_t>(c.buffers.back().size()), false));
    if (i == 1 && integer_division) {
      const auto bytes = static_cast<size_t>(scalar_bytes(operands[i]));
      for (size_t at = 0; at < c.buffers[1].size(); at += bytes) {
        bool zero = true;
        for (size_t k = 0; k < bytes; ++k) zero = zero && c.buffers[1][at + k] == 0;
        if (zero) c.buffers[1][at] = 3;
      }
    }
  }
  c.buffers.emplace_back(count * static_cast<size_t>(scalar_bytes(c.result)));
  const loop::BufferId y = b.param("y", static_cast<int64_t>(c.buffers.back().size()), true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(kVectors), 1, [&](loop::Expr i) {
    std::vector<loop::Expr> x;
    for (size_t k = 0; k < operands.size(); ++k) {
      const int64_t bytes = int64_t{lanes} * scalar_bytes(operands[k]);
      x.push_back(b.load(in[k], types[k], i * bytes, scalar_bytes(operands[k])));
    }
    const loop::Expr r = to ? b.convert(op, *to, x[0])
                            : b.op(op, x[0], x.size() > 1 ? x[1] : loop::Expr{}, x.size() > 2 ? x[2] : loop::Expr{});
    b.store(y, r, i * (int64_t{lanes} * scalar_bytes(c.result)), scalar_bytes(c.result));
  });
  c.kernel = b.finish();
  return c;
}

inline std::vector<Case> cases_of(ScalarOp op, int lanes) {
  std::vector<Case> cases;
  const auto add = [&](std::vector<Scalar> operands, std::optional<Scalar> to = std::nullopt) {
    if (auto c = make_case(op, std::move(operands), to, lanes)) cases.push_back(std::move(*c));
  };
  const ScalarOpInfo& info = scalar_op_info(op);
  for (const Scalar s : kAll) {
    if (op == ScalarOp::select_) {
      add({Scalar::boolean, s, s});
    } else if (op == ScalarOp::ldexp_) {
      add({s, Scalar::i32});
    } else if (info.result == "cast") {
      for (const Scalar to : kAll) add({s}, to);
    } else {
      add(std::vector<Scalar>(static_cast<size_t>(info.arity), s));
    }
  }
  return cases;
}

}  // namespace lumen::emit
