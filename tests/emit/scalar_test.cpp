// Needs: cpu. Every scalar operation on every type it is defined for, at several lane counts: machine equals evaluator.
#include <gtest/gtest.h>

#include "scalar_cases.h"
#include "tests/verified.h"

namespace lumen::emit {
namespace {

void check(const std::vector<Case>& cases, const machine::Machine& m = plain_host()) {
  ASSERT_FALSE(cases.empty());
  std::vector<loop::Kernel> kernels;
  for (const Case& c : cases) kernels.push_back(c.kernel);
  const LoadedModule module = compile(kernels, m);
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

class EveryScalarOp : public testing::TestWithParam<int> {};

TEST_P(EveryScalarOp, EqualsTheEvaluator) {
  const auto op = static_cast<ScalarOp>(GetParam());
  for (const int lanes : {1, 4, 16}) check(cases_of(op, lanes));
}

INSTANTIATE_TEST_SUITE_P(Scalar, EveryScalarOp, testing::Range(0, static_cast<int>(ScalarOp::input)),
                         [](const auto& instance) {
                           return std::string(scalar_op_info(static_cast<ScalarOp>(instance.param)).name);
                         });

// What this processor can run of the table: narrower vectors, fewer instructions, the same bits.
TEST(ScalarMachines, EveryMachineThatRunsHere) {
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (!machine::runs_here(*m)) continue;
    std::vector<Case> cases;
    for (int op = 0; op < static_cast<int>(ScalarOp::input); ++op)
      for (Case& c : cases_of(static_cast<ScalarOp>(op), 8)) cases.push_back(std::move(c));
    check(cases, *m);
    test::verified(m->name, "scalars", "hardware");
  }
}

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
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
      b.loop(loop::LoopKind::unroll, b.i64(0), b.i64(bytes), bytes / 16, [&](loop::Expr at) {
        const loop::Expr v = b.load(x, {s, 4}, at);
        b.store(y, b.op(ScalarOp::tanh_, b.op(ScalarOp::pow_, abs(v), exp(v))), at);
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
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::Expr at) {
      const loop::Expr v = b.load(x, {s, 4}, at);
      b.store(y, v / (v - v), at);
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
        b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1,
               [&](loop::Expr at) { b.store(y, b.op(op, b.load(x, {s, 16}, at), b.integer(divisor, {s, 16})), at); });
        expect_same(b.finish(), {in, Bytes(in.size())}, 1, s, plain_host());
      }
    }
  }
}

}  // namespace
}  // namespace lumen::emit
