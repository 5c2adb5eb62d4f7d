// Needs: cpu. Every scalar operation on every type it is defined for, at several lane counts: machine equals evaluator.
#include <gtest/gtest.h>

#include "kernel/loop/rules.h"
#include "ladder.h"

namespace lumen::emit {
namespace {

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
std::optional<Case> make_case(ScalarOp op, std::vector<Scalar> operands, std::optional<Scalar> to, int lanes) {
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
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(kVectors), 1, [&](loop::ValueId i) {
    std::vector<loop::ValueId> x;
    for (size_t k = 0; k < operands.size(); ++k) {
      const int64_t bytes = int64_t{lanes} * scalar_bytes(operands[k]);
      x.push_back(b.load(in[k], types[k], b.mul(i, b.i64(bytes)), scalar_bytes(operands[k])));
    }
    const loop::ValueId r =
        to ? b.convert(op, *to, x[0]) : b.op(op, x[0], x.size() > 1 ? x[1] : -1, x.size() > 2 ? x[2] : -1);
    b.store(y, r, b.mul(i, b.i64(int64_t{lanes} * scalar_bytes(c.result))), scalar_bytes(c.result));
  });
  c.kernel = b.finish();
  return c;
}

void check(const std::vector<Case>& cases) {
  ASSERT_FALSE(cases.empty());
  std::vector<loop::Kernel> kernels;
  for (const Case& c : cases) kernels.push_back(c.kernel);
  const LoadedModule module = compile(kernels, plain_host());
  for (const Case& c : cases) {
    Bytes want = run_eval(c.kernel, c.buffers, nullptr).back();
    Bytes got = run_machine(module, c.kernel, c.buffers).back();
    quiet(want, c.result);
    quiet(got, c.result);
    const auto bytes = static_cast<size_t>(scalar_bytes(c.result));
    for (size_t i = 0; i * bytes < want.size(); ++i)
      ASSERT_EQ(std::memcmp(want.data() + i * bytes, got.data() + i * bytes, bytes), 0)
          << c.kernel.name << " differs at element " << i;
  }
}

std::vector<Case> cases_of(ScalarOp op, int lanes) {
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

class EveryScalarOp : public testing::TestWithParam<int> {};

TEST_P(EveryScalarOp, EqualsTheEvaluator) {
  const auto op = static_cast<ScalarOp>(GetParam());
  for (const int lanes : {1, 4, 16}) check(cases_of(op, lanes));
}

INSTANTIATE_TEST_SUITE_P(Scalar, EveryScalarOp, testing::Range(0, static_cast<int>(ScalarOp::input)),
                         [](const auto& instance) {
                           return std::string(scalar_op_info(static_cast<ScalarOp>(instance.param)).name);
                         });

TEST(ScalarLanes, OddAndWideCountsWork) {
  std::vector<Case> cases;
  for (const int lanes : {2, 3, 8, 13, 32, 64})
    for (const ScalarOp op : {ScalarOp::fma_, ScalarOp::exp_, ScalarOp::round_, ScalarOp::lt_})
      cases.push_back(
          *make_case(op, std::vector<Scalar>(static_cast<size_t>(scalar_op_info(op).arity), Scalar::f32), {}, lanes));
  for (const int lanes : {3, 64}) cases.push_back(*make_case(ScalarOp::cast_, {Scalar::f32}, Scalar::i8, lanes));
  check(cases);
}

// Many sites of one operation become calls; the bits stay.
TEST(ScalarCalls, ManySitesEqualTheEvaluator) {
  for (const Scalar s : {Scalar::f32, Scalar::f64, Scalar::bf16}) {
    Builder b("many");
    const Bytes in = random_numbers(s, 64, 3);
    const auto bytes = static_cast<int64_t>(in.size());
    const loop::BufferId x = b.param("x", bytes, false), y = b.param("y", bytes, true);
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::ValueId) {
      b.loop(loop::LoopKind::unroll, b.i64(0), b.i64(bytes), bytes / 16, [&](loop::ValueId at) {
        const loop::ValueId v = b.load(x, {s, 4}, at);
        b.store(y, b.op(ScalarOp::tanh_, b.op(ScalarOp::pow_, b.op(ScalarOp::abs_, v), b.op(ScalarOp::exp_, v))), at);
      });
    });
    const loop::Kernel k = b.finish();
    EXPECT_NE(emit({&k, 1}, plain_host(), Output::llvm).find("call"), std::string::npos);
    expect_same(k, {in, Bytes(in.size())}, 1, s, plain_host());
  }
}

// A machine must not trap where the evaluator reports an error.
TEST(ScalarDivision, ByZeroIsZero) {
  for (const Scalar s : {Scalar::i32, Scalar::u8, Scalar::i64}) {
    Builder b("zero");
    const auto bytes = static_cast<int64_t>(4 * scalar_bytes(s));
    const loop::BufferId x = b.param("x", bytes, false), y = b.param("y", bytes, true);
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::ValueId at) {
      const loop::ValueId v = b.load(x, {s, 4}, at);
      b.store(y, b.op(ScalarOp::div_, v, b.op(ScalarOp::sub_, v, v)), at);
    });
    const loop::Kernel k = b.finish();
    const auto out = run_machine(compile({k}, plain_host()), k,
                                 {Bytes(static_cast<size_t>(bytes), 7), Bytes(static_cast<size_t>(bytes), 7)});
    EXPECT_EQ(out[1], Bytes(static_cast<size_t>(bytes), 0));
  }
}

// Division by constants takes other paths than division by values.
TEST(ScalarDivision, ByConstants) {
  for (const Scalar s : {Scalar::i8, Scalar::u8, Scalar::i32, Scalar::u32, Scalar::i64}) {
    for (const int64_t divisor : {1, 2, 7, 32, -1, -3}) {
      if (divisor < 0 && !is_signed(s)) continue;
      for (const ScalarOp op : {ScalarOp::div_, ScalarOp::rem_}) {
        Builder b("constant");
        const Bytes in = random_numbers(s, 16, 5);
        const auto bytes = static_cast<int64_t>(in.size());
        const loop::BufferId x = b.param("x", bytes, false), y = b.param("y", bytes, true);
        b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::ValueId at) {
          b.store(y, b.op(op, b.load(x, {s, 16}, at), b.integer(divisor, {s, 16})), at);
        });
        expect_same(b.finish(), {in, Bytes(in.size())}, 1, s, plain_host());
      }
    }
  }
}

}  // namespace
}  // namespace lumen::emit
