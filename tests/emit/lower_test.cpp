// Needs: cpu. Every loop operation and construct: machine equals evaluator.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ladder.h"

namespace lumen::emit {
namespace {

using loop::BufferId;
using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using loop::VType;

constexpr int64_t kIn = 512, kOut = 512;

// A kernel of two buffers; `body` runs for `tasks` iterations.
loop::Kernel kernel(int64_t tasks, const std::function<void(Builder&, BufferId x, BufferId y, Expr i)>& body) {
  Builder b("lower");
  const BufferId x = b.param("x", kIn, false), y = b.param("y", kOut, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks), 1, [&](Expr i) { body(b, x, y, i); });
  return b.finish();
}

void same(const loop::Kernel& k, Scalar s = Scalar::i32, uint64_t seed = 1) {
  Bytes in = random_numbers(s, static_cast<size_t>(kIn / scalar_bytes(s)), seed);
  quiet(in, s);
  machine::Machine m = plain_host();
  expect_same(k, {in, Bytes(static_cast<size_t>(kOut), 0x5A)}, 1, s, m);
  // The same without masked moves of bytes and words, and without any.
  m.features = "+avx2,+fma,+f16c";
  m.cpu = "x86-64";
  if (m.triple.starts_with("x86_64")) expect_same(k, {in, Bytes(static_cast<size_t>(kOut), 0x5A)}, 1, s, m);
  m.features = "+sse4.2";
  if (m.triple.starts_with("x86_64") && s != Scalar::f16)
    expect_same(k, {in, Bytes(static_cast<size_t>(kOut), 0x5A)}, 1, s, m);
}

constexpr Scalar kTypes[] = {Scalar::boolean, Scalar::i8,   Scalar::u16, Scalar::i32, Scalar::u64,
                             Scalar::f16,     Scalar::bf16, Scalar::f32, Scalar::f64};

// Threads share the iterations of all instances, wherever their parts begin and end.
TEST(Lower, InstancesShareTheirIterations) {
  constexpr int64_t kTasks = 7, kInstances = 3;
  loop::Kernel k = kernel(kTasks, [&](Builder& b, BufferId x, BufferId y, Expr i) {
    const Expr at = i * 4;
    b.store(y, b.load(x, {Scalar::f32, 1}, at, 4) + b.load(y, {Scalar::f32, 1}, at, 4), at, 4);
  });
  k.instances = kInstances;
  const machine::Machine m = plain_host();
  const std::string object = emit({&k, 1}, m, Output::object);
  const LoadedModule module(std::span(reinterpret_cast<const uint8_t*>(object.data()), object.size()));
  const CpuKernel run = module.find(symbol_name(k));
  std::vector<std::vector<float>> x(kInstances), y(kInstances);
  for (int64_t i = 0; i < kInstances; ++i)
    for (size_t at = 0; at < size_t(kIn) / 4; ++at) x[size_t(i)].push_back(float(i * 1000 + int64_t(at)));
  for (int64_t cut = 0; cut <= kTasks * kInstances; ++cut)
    for (int64_t later = cut; later <= kTasks * kInstances; ++later) {
      std::vector<void*> buffers;
      for (size_t i = 0; i < size_t(kInstances); ++i) {
        y[i].assign(size_t(kOut) / 4, 0);
        buffers.insert(buffers.end(), {x[i].data(), y[i].data()});
      }
      int64_t status[2] = {};
      run(buffers.data(), 0, cut, status);
      run(buffers.data(), cut, later, status);
      run(buffers.data(), later, kTasks * kInstances, status);
      for (size_t i = 0; i < size_t(kInstances); ++i)
        for (size_t at = 0; at < size_t(kOut) / 4; ++at)
          ASSERT_EQ(y[i][at], at < size_t(kTasks) ? x[i][at] : 0) << cut << " " << later << " " << i << " " << at;
    }
}

TEST(Lower, LoadsAndStores) {
  for (const Scalar s : kTypes)
    for (const int lanes : {1, 4, 5, 16}) {
      const int64_t bytes = int64_t{lanes} * scalar_bytes(s);
      same(kernel(2, [&](Builder& b, BufferId x, BufferId y,
                         Expr i) { b.store(y, b.load(x, {s, lanes}, i * bytes), i * bytes + 8); }),
           s);
    }
}

// Bytes become f32 by a permutation and a subtraction each, which takes what else is subtracted with it; LLVM alone
// takes them apart and converts them at half the pace.
TEST(Lower, BytesBecomeFloatsByPermutations) {
  const auto m = machine::find_machine("sm_90a");
  for (const Scalar s : {Scalar::u8, Scalar::i8}) {
    const loop::Kernel k = kernel(1, [&](Builder& b, BufferId x, BufferId y, Expr) {
      const Expr wide = cast(b.load(x, {s, 8}, b.i64(0), 8), Scalar::f32);
      b.store(y, wide - b.real(8, b.type(wide)), b.i64(0), 4);
    });
    const std::string text = emit({&k, 1}, *m, Output::assembly);
    const auto count = [&](std::string_view word) {
      int found = 0;
      for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
      return found;
    };
    EXPECT_EQ(count("prmt.b32"), 8) << text;
    EXPECT_EQ(count("add.rn.f32") + count("sub.rn.f32"), 8) << text;
    EXPECT_EQ(count("cvt.rn."), 0) << text;
  }
}

// Hints of the processor, which no page that is not there disturbs; lanes of a GPU take none.
TEST(Lower, Prefetches) {
  using loop::Cache;
  const auto with = [](Cache into, int64_t offset) {
    return kernel(2, [=](Builder& b, BufferId x, BufferId y, Expr i) {
      b.prefetch(x, i * 64 + offset, into);
      b.store(y, b.load(x, {Scalar::i32, 4}, i * 16), i * 16);
    });
  };
  for (const Cache into : {Cache::first, Cache::second, Cache::third, Cache::once})
    for (const int64_t offset : {int64_t{256}, int64_t{1} << 46, -(int64_t{1} << 46)}) same(with(into, offset));
  const auto text = [&](Cache into, const char* machine) {
    const loop::Kernel k = with(into, 1024);
    return emit({&k, 1}, *machine::find_machine(machine), Output::assembly);
  };
  struct Spelling {
    Cache into;
    const char *x86, *arm;
  };
  for (const Spelling& s :
       {Spelling{Cache::first, "prefetcht0", "pldl1keep"}, Spelling{Cache::second, "prefetcht1", "pldl2keep"},
        Spelling{Cache::third, "prefetcht2", "pldl3keep"}, Spelling{Cache::once, "prefetchnta", "pldl1strm"}}) {
    for (const char* machine : {"x86-64-v3", "amx"}) EXPECT_NE(text(s.into, machine).find(s.x86), std::string::npos);
    for (const char* machine : {"neon", "sve2-128"}) EXPECT_NE(text(s.into, machine).find(s.arm), std::string::npos);
  }
  EXPECT_EQ(text(Cache::first, "sm_90a").find("prefetch"), std::string::npos);
}

TEST(Lower, CountsKnownAndUnknown) {
  for (const Scalar s : kTypes)
    for (const int lanes : {1, 4, 16}) {
      same(kernel(20,
                  [&](Builder& b, BufferId x, BufferId y, Expr i) {
                    // Counts -2 .. 17, kept apart in the result by the constant ones of the next test.
                    const Expr count = i - 2;
                    const Expr v = b.load(x, {s, lanes}, i, 1, count);
                    b.store(y, v, i * 16, 1, count);
                    const Expr whole = b.load(x, {s, lanes}, i, 1, count);
                    b.branch(i == 19, [&] { b.store(y, whole, b.i64(384), 1); });
                  }),
           s);
      for (const int64_t count : {-1, 0, 1, 3, 20})
        same(kernel(1,
                    [&](Builder& b, BufferId x, BufferId y, Expr i) {
                      b.store(y, b.load(x, {s, lanes}, i, 1, b.i64(count)), i);
                      b.store(y, b.load(x, {s, lanes}, i), b.i64(256), 1, b.i64(count));
                    }),
             s);
    }
}

// The last bytes of a page with nothing behind it: lanes at or behind the count must not be touched.
TEST(Lower, CountedAccessesDoNotTouchTheNextPage) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto* base =
      static_cast<uint8_t*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(base, MAP_FAILED);
  ASSERT_EQ(::mprotect(base + page, page, PROT_NONE), 0);
  for (const Scalar s : {Scalar::i8, Scalar::u16, Scalar::f32, Scalar::f64})
    for (const std::string& features : {host().features, std::string("+avx2"), std::string("+sse4.2")}) {
      machine::Machine m = plain_host();
      if (features != m.features && !m.triple.starts_with("x86_64")) continue;
      if (features != m.features) m.cpu = "x86-64";
      m.features = features;
      Builder b("edge");
      const int64_t bytes = int64_t{3} * scalar_bytes(s);
      const BufferId x = b.param("x", bytes, true, 1);
      b.loop(LoopKind::parallel, b.i64(3), b.i64(4), 1,
             [&](Expr count) { b.store(x, b.load(x, {s, 16}, b.i64(0), 1, count), b.i64(0), 1, count); });
      const loop::Kernel k = b.finish();
      const LoadedModule module = compile({k}, m);
      void* buffers[] = {base + page - bytes};
      int64_t status[2] = {0, 0};
      module.find(symbol_name(k))(buffers, 0, 1, status);
    }
  ::munmap(base, 2 * page);
}

// One lane of numbers narrowed on the way to memory, by a count known early, late, or never: nothing behind it changes.
TEST(Lower, NarrowedLanesEndWhereTheyShould) {
  for (const Scalar to : {Scalar::bf16, Scalar::i16, Scalar::u8})
    for (const int64_t count : {1, 2, 3, 17}) {
      const auto narrowed = [&](Builder& b, BufferId x, Expr i) {
        return cast(b.load(x, {Scalar::f32, 16}, i * 64), to);
      };
      same(kernel(4, [&](Builder& b, BufferId x, BufferId y,
                         Expr i) { b.store(y, narrowed(b, x, i), i * 64, 1, b.i64(count)); }),
           Scalar::f32);
      same(kernel(4,
                  [&](Builder& b, BufferId x, BufferId y, Expr i) {
                    b.loop(LoopKind::serial, b.i64(0), b.i64(count), 16, [&](Expr at) {
                      const Expr left = count - at;
                      b.store(y, narrowed(b, x, i), i * 64 + at, 1, min(left, b.i64(16)));
                    });
                  }),
           Scalar::f32);
      same(kernel(4, [&](Builder& b, BufferId x, BufferId y, Expr i) { b.store(y, narrowed(b, x, i), i * 64, 1, i); }),
           Scalar::f32);
    }
}

TEST(Lower, LanesMove) {
  for (const Scalar s : kTypes) {
    same(kernel(1,
                [&](Builder& b, BufferId x, BufferId y, Expr i) {
                  const Expr a = b.load(x, {s, 8}, i), c = b.load(x, {s, 8}, b.i64(128));
                  auto put = [&, at = int64_t{0}](Expr v) mutable {
                    b.store(y, v, b.i64(at));
                    at += 64;
                  };
                  put(b.shuffle({a}, {7, 6, -1, 0}));
                  put(b.shuffle({a, c}, {0, 8, -1, 9, 15, -1, 3, 3}));
                  put(b.shuffle({a, c}, {1, 14}));
                  put(b.shuffle({a}, {5}));
                  put(b.shuffle({b.extract(a, 2), b.extract(c, 3)}, {1, 0, -1, 1}));
                  put(b.insert(a, b.extract(c, 7), 3));
                  put(b.splat(b.extract(a, 1), 8));
                }),
         s);
  }
}

TEST(Lower, FoldsInFixedOrder) {
  for (const Scalar s : {Scalar::i8, Scalar::u32, Scalar::i64, Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64})
    for (const int lanes : {1, 2, 4, 16})
      for (const ScalarOp op : {ScalarOp::add_, ScalarOp::min_, ScalarOp::max_})
        same(kernel(4,
                    [&](Builder& b, BufferId x, BufferId y, Expr i) {
                      const Expr at = i * (int64_t{lanes} * scalar_bytes(s));
                      b.store(y, b.fold(op, b.load(x, {s, lanes}, at)), i * 8);
                    }),
             s, static_cast<uint64_t>(lanes));
}

TEST(Lower, GathersAndScatters) {
  for (const Scalar s : kTypes)
    for (const Scalar offset : {Scalar::i32, Scalar::i64}) {
      const int64_t n = scalar_bytes(s);
      same(kernel(1,
                  [&](Builder& b, BufferId x, BufferId y, Expr i) {
                    const std::vector<int64_t> from{9 * n, 0, 3 * n, 3 * n, 15 * n, 2 * n, n, 31 * n};
                    const std::vector<int64_t> to{0,     n,     2 * n, 0, 5 * n,
                                                  5 * n, 6 * n, 7 * n};  // two pairs collide: the later lane wins
                    const Expr delta = b.splat(cast(i * 8, offset), 8);
                    const Expr v = b.gather(x, s, b.lanes_integer(from, offset) + delta);
                    b.scatter(y, v, b.lanes_integer(to, offset) + delta);
                    const Expr one = cast(i + 4 * n, offset);
                    b.scatter(y, b.gather(x, s, one), one + 128);
                  }),
           s);
    }
}

TEST(Lower, LoopsAndPrivateMemory) {
  for (const LoopKind kind : {LoopKind::serial, LoopKind::unroll})
    for (const int64_t trips : {0, 1, 7})
      same(kernel(5, [&](Builder& b, BufferId x, BufferId y, Expr i) {
        const BufferId sums = b.alloc(64, 64);
        b.loop(LoopKind::unroll, b.i64(0), b.i64(4), 1,
               [&](Expr k) { b.store(sums, b.integer(0, {Scalar::i32, 4}), k * 16, 16); });
        b.loop(kind, b.i64(0), b.i64(trips * 4), 4, [&](Expr j) {
          b.loop(LoopKind::unroll, b.i64(0), b.i64(4), 1, [&](Expr k) {
            const Expr slot = k * 16;
            const Expr v = b.load(x, {Scalar::i32, 4}, j * 4 + slot);
            b.store(sums, b.load(sums, {Scalar::i32, 4}, slot, 16) + v, slot, 16);
          });
        });
        const Expr total = b.load(sums, {Scalar::i32, 16}, b.i64(0), 64);
        b.store(y, total, i * 64);
      }));
}

// The bounds are values, and a step does not divide the length.
TEST(Lower, LoopsWithBoundsKnownAtRunTime) {
  same(kernel(6, [&](Builder& b, BufferId x, BufferId y, Expr i) {
    b.loop(LoopKind::serial, i, i * 3, 2,
           [&](Expr j) { b.store(y, b.load(x, {Scalar::i32, 1}, j * 4) + cast(i, Scalar::i32), i * 64 + j * 2); });
  }));
}

TEST(Lower, Branches) {
  same(kernel(8, [&](Builder& b, BufferId x, BufferId y, Expr i) {
    const Expr v = b.load(x, {Scalar::i32, 1}, i * 4);
    const Expr at = i * 4;
    b.branch(v < 0, [&] { b.store(y, b.i64(-1), i * 8); }, [&] { b.branch(i < 4, [&] { b.store(y, v, at); }); });
  }));
}

TEST(Lower, GuardsKeepTheFirstFailure) {
  const loop::Kernel k = kernel(9, [&](Builder& b, BufferId, BufferId y, Expr i) {
    b.guard(i < 5, i * 10, loop::kGuardUpdate);
    b.guard(i < 6, i, loop::kGuardIndex);
    b.store(y, i, i * 8);
  });
  same(k, Scalar::i64);
  loop::Status status;
  run_machine(compile({k}, plain_host()), k, {Bytes(kIn), Bytes(kOut)}, &status);
  EXPECT_EQ(status.code, loop::kGuardUpdate);
  EXPECT_EQ(status.detail, 50);
}

TEST(Lower, InPlaceKernelsMayShareMemory) {
  Builder b("in place");
  const BufferId x = b.param("x", 64, false), y = b.param("y", 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) {
    const VType one{Scalar::i32, 1};
    b.loop(LoopKind::serial, b.i64(4), b.i64(64), 4, [&](Expr j) {  // each element from the one before
      b.store(y, b.load(x, one, j - 4) + b.load(x, one, j), j);
    });
    (void)at;
  });
  loop::Kernel k = b.finish();
  k.aliased = true;
  const LoadedModule module = compile({k}, plain_host());
  alignas(64) int32_t memory[16];
  for (int32_t& v : memory) v = 1;
  void* buffers[] = {memory, memory};
  int64_t status[2] = {0, 0};
  module.find(symbol_name(k))(buffers, 0, 1, status);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(memory[i], i + 1);
}

TEST(Lower, StraightKernelsRunOnce) {
  Builder b("straight");
  const BufferId y = b.param("y", 8, true);
  b.store(y, b.load(y, {Scalar::i64, 1}, b.i64(0)) + 1, b.i64(0));
  const loop::Kernel k = b.finish();
  EXPECT_EQ(k.tasks, 1);
  const LoadedModule module = compile({k}, plain_host());
  alignas(64) int64_t memory[1] = {41};
  void* buffers[] = {memory};
  int64_t status[2] = {0, 0};
  module.find(symbol_name(k))(buffers, 0, 1, status);
  EXPECT_EQ(memory[0], 42);
}

}  // namespace
}  // namespace lumen::emit
