// Needs: cpu. Text, assembly and objects of several machines; loading; refusals; the revision of the cache key.
#include "emit/emit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/hash.h"
#include "ladder.h"

namespace lumen::emit {
namespace {

using loop::BufferId;
using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using loop::VType;

// c[6, 32] += a[6, k] * b[k, 32]: the inner kernel of a dense product, sums in private memory.
loop::Kernel tile_kernel(int64_t depth) {
  Builder b("tile 6x32");
  const VType v{Scalar::f32, 16};
  const BufferId a = b.param("a", 6 * depth * 4, false), w = b.param("b", depth * 128, false),
                 c = b.param("c", 6 * 128, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr zero) {
    const BufferId sum = b.alloc(6 * 128, 64);
    const auto each = [&](const std::function<void(Expr, Expr)>& body) {
      b.loop(LoopKind::unroll, b.i64(0), b.i64(6), 1, [&](Expr i) {
        b.loop(LoopKind::unroll, b.i64(0), b.i64(2), 1, [&](Expr j) { body(i, i * 128 + j * 64); });
      });
    };
    each([&](Expr, Expr at) { b.store(sum, b.real(0, v), at, 64); });
    b.loop(LoopKind::serial, zero, b.i64(depth), 1, [&](Expr k) {
      each([&](Expr i, Expr at) {
        const Expr x = b.load(a, {Scalar::f32, 1}, i * (depth * 4) + k * 4, 4);
        const Expr column = at % 128;
        const Expr y = b.load(w, v, k * 128 + column, 64);
        b.store(sum, fma(b.splat(x, 16), y, b.load(sum, v, at, 64)), at, 64);
      });
    });
    each([&](Expr, Expr at) { b.store(c, b.load(sum, v, at, 64), at, 64); });
  });
  return b.finish();
}

std::string assembly(const loop::Kernel& k, const std::string& machine) {
  return emit(std::span(&k, 1), *machine::find_machine(machine), Output::assembly);
}

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

TEST(Emit, PrivateSumsLiveInRegisters) {
  const std::string text = assembly(tile_kernel(64), "avx512");
  EXPECT_EQ(count(text, "vfmadd"), 12) << text;
  EXPECT_EQ(count(text, "(%rsp)"), 0) << text;
}

TEST(Emit, TileComputesAProduct) {
  const loop::Kernel k = tile_kernel(5);
  expect_same(k, {random_numbers(Scalar::f32, 30, 3), random_numbers(Scalar::f32, 160, 4), Bytes(768)}, 2, Scalar::f32,
              plain_host());
}

TEST(Emit, MulAndAddAreNotContracted) {
  Builder b("mul add");
  const BufferId x = b.param("x", 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) {
    const Expr v = b.load(x, {Scalar::f32, 16}, at);
    b.store(x, v * v + v, at);
  });
  const loop::Kernel k = b.finish();
  for (const char* machine : {"avx512", "x86-64-v3", "neon"}) {
    const std::string text = assembly(k, machine);
    EXPECT_EQ(count(text, "fmadd") + count(text, "fmla"), 0) << text;
  }
}

TEST(Emit, EveryMachineEmitsText) {
  const loop::Kernel k = tile_kernel(8);
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (m->kind != machine::Kind::cpu) continue;
    EXPECT_NE(emit(std::span(&k, 1), *m, Output::llvm).find("define void @" + symbol_name(k)), std::string::npos);
    EXPECT_NE(emit(std::span(&k, 1), *m, Output::assembly).find(symbol_name(k)), std::string::npos);
    EXPECT_EQ(emit(std::span(&k, 1), *m, Output::object).substr(0, 4),
              "\x7f"
              "ELF");
  }
}

TEST(Emit, EqualKernelsAreEmittedOnceAndNamesDoNotCollide) {
  loop::Kernel a = tile_kernel(8), b = tile_kernel(9);
  EXPECT_EQ(a.name, b.name);
  EXPECT_NE(symbol_name(a), symbol_name(b));
  const LoadedModule module = compile({a, b, a}, plain_host());
  EXPECT_NE(module.find(symbol_name(a)), module.find(symbol_name(b)));
}

TEST(Emit, RowsEqualTheirMeaning) {
  const machine::MachineRef m = machine::native_machine();
  int tried = 0;
  for (const machine::Row& row : m->rows) {
    const loop::Function* f = m->meaning(row.name);
    ASSERT_NE(f, nullptr) << row.name;
    Builder b("row " + row.name);
    std::vector<Bytes> buffers;
    std::vector<BufferId> in;
    for (size_t i = 0; i < f->params.size(); ++i) {
      const VType t = f->body.value_types[static_cast<size_t>(f->params[i])];
      buffers.push_back(random_numbers(t.scalar, static_cast<size_t>(t.lanes), 11 + i));
      in.push_back(b.param("x", static_cast<int64_t>(buffers.back().size()), false));
    }
    const VType result = f->body.value_types[static_cast<size_t>(f->result)];
    buffers.emplace_back(static_cast<size_t>(result.lanes * scalar_bytes(result.scalar)));
    const BufferId y = b.param("y", static_cast<int64_t>(buffers.back().size()), true);
    b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) {
      std::vector<Expr> x;
      for (size_t i = 0; i < f->params.size(); ++i)
        x.push_back(b.load(in[i], f->body.value_types[static_cast<size_t>(f->params[i])], at));
      b.store(y, b.inst(row.name, result, x), at);
    });
    expect_same(b.finish(), buffers, buffers.size() - 1, result.scalar, *m);
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

TEST(Emit, RefusesUnknownRowsAndMissingFeatures) {
  const auto refusal = [](const std::string& row, machine::Machine m) -> std::string {
    Builder b("r");
    const BufferId x = b.param("x", 64, true);
    b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1,
           [&](Expr at) { b.store(x, b.inst(row, {Scalar::i32, 4}, {b.load(x, {Scalar::i32, 4}, at)}), at); });
    const loop::Kernel k = b.finish();
    try {
      emit(std::span(&k, 1), m, Output::object);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  machine::Machine m = *machine::find_machine("x86-64-v3");
  EXPECT_NE(refusal("nonsense", m).find("has no instruction 'nonsense'"), std::string::npos);
  m.rows.push_back({"amx", "", "llvm.x86.tdpbusd", "amx-int8", 1});
  EXPECT_NE(refusal("amx", m).find("needs amx-int8"), std::string::npos);
  m.triple = "vax-dec-ultrix";
  EXPECT_NE(refusal("amx", m).find("no code generator"), std::string::npos);
}

TEST(Emit, DamagedObjectsAreRefused) {
  const loop::Kernel k = tile_kernel(4);
  const machine::Machine m = plain_host();
  const std::string object = emit(std::span(&k, 1), m, Output::object);
  const auto load = [](std::string_view bytes) {
    LoadedModule module({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  };
  EXPECT_THROW(load(""), Error);
  EXPECT_THROW(load("not an object"), Error);
}

// A kernel that touches every path of the floor. When its code changes, kernels in caches are stale: raise kRevision in
// emit/object.cpp and write the new hash here.
TEST(Emit, RevisionFollowsTheCode) {
  Builder b("probe");
  const BufferId x = b.param("x", 4096, false), y = b.param("y", 4096, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(8), 1, [&](Expr i) {
    const VType v{Scalar::f32, 8};
    const Expr a = b.load(x, v, i, 1, i);
    const BufferId p = b.alloc(64);
    b.store(p, exp(b.op(ScalarOp::tanh_, log(a))), b.i64(0));
    b.store(p, b.op(ScalarOp::sin_, b.op(ScalarOp::pow_, a, b.op(ScalarOp::cos_, a))), b.i64(32));
    b.loop(LoopKind::serial, b.i64(0), i, 4, [&](Expr j) {
      const Expr c = b.load(p, v, j);
      b.guard(j < 99, j, loop::kGuardFinite);
      b.store(y, cast(ldexp(c, b.convert(ScalarOp::exponent_, Scalar::i32, c)), Scalar::bf16), j);
      b.store(y, cast(b.op(ScalarOp::round_, c), Scalar::i8), j, 1, j);
      b.store(y, b.fold(ScalarOp::add_, rint(c)), j % 24);
    });
  });
  const loop::Kernel k = b.finish();
  const std::string text = emit(std::span(&k, 1), *machine::find_machine("x86-64-v3"), Output::llvm);
  if (!version().starts_with("llvm 22.1.8 "))
    GTEST_SKIP() << "the hash is known for one version of LLVM: " << version();
  EXPECT_EQ(version() + " " + hash_text(text).hex().substr(0, 8), "llvm 22.1.8 emit 11 6476e5bf");
}

}  // namespace
}  // namespace lumen::emit
