// needs: none. GPU code: every machine makes loadable modules, rows become the instructions they name, arithmetic keeps
// the bits of the evaluator (no contraction, no flushing), blocks get barriers and shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "emit/emit.h"
#include "emit/report.h"
#include "kernel/loop/build.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"
#include "kernel/machine/relatives.h"
#include "tests/verified.h"

namespace lumen::emit {
namespace {

using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using machine::Kind;

std::vector<machine::MachineRef> gpus() {
  std::vector<machine::MachineRef> out;
  for (const auto& m : machine::all_machines())
    if (m->kind == Kind::gpu) out.push_back(m);
  return out;
}
bool is_amd(const machine::Machine& m) {
  return m.triple.starts_with("amdgcn");
}
bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// y = a / b + sqrt(a) * b of whole tasks of four, and a guard.
loop::Kernel arithmetic(int64_t tasks) {
  Builder b("arithmetic");
  const auto x = b.param("x", tasks * 32, false), y = b.param("y", tasks * 16, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks), 1, [&](Expr task) {
    const loop::VType f32x4{Scalar::f32, 4};
    const Expr at = task * 16;
    const Expr a = b.load(x, f32x4, at, 16), c = b.load(x, f32x4, at + tasks * 16, 16);
    const Expr root = b.op(ScalarOp::sqrt_, a);
    const Expr sum = a / c + root * c;
    b.guard(b.extract(sum, 0) < 1e30, task, loop::kGuardFinite);
    b.store(y, sum, at, 16);
  });
  return b.finish();
}

// The second half of the blocks takes the second half of the buffers.
TEST(Gpu, InstancesOfAKernelInOneLaunch) {
  loop::Kernel k = arithmetic(1000);
  for (const auto& m : gpus()) {
    SCOPED_TRACE(m->name);
    k.instances = 1;
    const LaunchShape one = launch_shape(k, *m);
    const std::string alone = emit({&k, 1}, *m, Output::llvm);
    k.instances = 3;
    const LaunchShape shape = launch_shape(k, *m);
    EXPECT_EQ(shape.blocks, 3 * one.blocks);
    EXPECT_EQ(shape.threads, one.threads);
    const std::string text = emit({&k, 1}, *m, Output::llvm);
    const auto count = [](const std::string& in, const std::string& what) {
      size_t found = 0;
      for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) ++found;
      return found;
    };
    const std::string head =
        text.substr(text.find("define"), text.find('{', text.find("define")) - text.find("define"));
    EXPECT_EQ(count(head, "ptr addrspace(1)"), 7U) << head;  // two buffers of each, and the status
    EXPECT_GE(count(text, "select"), count(alone, "select") + 4);
    EXPECT_FALSE(emit({&k, 1}, *m, Output::object).empty());
  }
}

TEST(Gpu, ArithmeticKeepsItsBits) {
  const loop::Kernel k = arithmetic(1000);
  for (const auto& m : gpus()) {
    SCOPED_TRACE(m->name);
    const std::string text = emit({&k, 1}, *m, Output::assembly);
    EXPECT_TRUE(contains(text, symbol_name(k)));
    if (is_amd(*m)) {
      EXPECT_TRUE(contains(text, "v_div_fixup_f32"));  // correctly rounded
      EXPECT_TRUE(contains(text, ".amdhsa_float_denorm_mode_32 3"));
      EXPECT_TRUE(contains(text, ".amdhsa_float_denorm_mode_16_64 3"));
      EXPECT_TRUE(contains(text, "cmpswap")) << "a guard";
    } else {
      for (const char* rounded : {"add.rn.f32", "mul.rn.f32", "div.rn.f32", "sqrt.rn.f32", "atom."})
        EXPECT_TRUE(contains(text, rounded)) << rounded;
      EXPECT_TRUE(contains(text, ".visible .entry " + symbol_name(k)));
      EXPECT_FALSE(contains(text, ".ftz") || contains(text, "approx") || contains(text, "fma.rn.f32"));
      EXPECT_TRUE(contains(text, "ld.global"));
      EXPECT_TRUE(contains(text, ".target " + m->cpu));
    }
  }
}

TEST(Gpu, ObjectsAreWhatLoadersTake) {
  const std::vector<loop::Kernel> kernels{arithmetic(1000), arithmetic(10)};
  for (const auto& m : gpus()) {
    SCOPED_TRACE(m->name);
    const std::string object = emit(kernels, *m, Output::object);
    if (!is_amd(*m)) {
      EXPECT_EQ(object, emit(kernels, *m, Output::assembly));
      continue;
    }
    ASSERT_GT(object.size(), 64U);
    EXPECT_EQ(object.substr(0, 4),
              "\x7f"
              "ELF");
    EXPECT_EQ(object[7], 64) << "AMD HSA";
    EXPECT_EQ(object[8], 3) << "code object version 5";
    // What a GPU does at an access that faults (XNACK) is left to it: one code for both settings.
    const unsigned settings = static_cast<uint8_t>(object[49]) & 3U;
    EXPECT_LE(settings, 1U) << "no such setting, or any";
    EXPECT_EQ(settings == 1, m->name == "gfx906" || m->name == "gfx908" || m->name == "gfx90a" || m->name == "gfx942" ||
                                 m->name == "gfx950");
    EXPECT_EQ(object[16], 3) << "a shared object";
    EXPECT_EQ(static_cast<uint8_t>(object[18]), 224) << "AMDGPU";
    for (const loop::Kernel& k : kernels) EXPECT_TRUE(contains(object, symbol_name(k) + ".kd"));
    test::verified(m->name, "map", "compiled");
  }
}

// Of cards that are like others, and of whole generations: objects of their own, version 6 where they are generic.
TEST(Gpu, RelativesHaveObjectsOfTheirOwn) {
  const std::vector<loop::Kernel> kernels{arithmetic(10)};
  std::set<unsigned> numbers;
  for (const auto& m : machine::relatives()) {
    if (m->kind != Kind::gpu) continue;
    SCOPED_TRACE(m->name);
    const std::string object = emit(kernels, *m, Output::object);
    ASSERT_GT(object.size(), 64U);
    EXPECT_EQ(object[8], machine::is_generic(*m) ? 4 : 3) << "code object version";
    EXPECT_EQ(object[51], machine::is_generic(*m) ? 1 : 0) << "version of the generic processor";
    EXPECT_TRUE(numbers.insert(static_cast<uint8_t>(object[48])).second);
    EXPECT_TRUE(contains(emit(kernels, *m, Output::assembly), "--" + m->cpu));
    test::verified(m->name, "map", "compiled");
  }
}

TEST(Gpu, LaunchesCoverAllTasks) {
  const auto h = machine::find_machine("sm_90a"), c = machine::find_machine("gfx942");
  EXPECT_EQ(launch_shape(arithmetic(1), *h).blocks, 1);
  EXPECT_EQ(launch_shape(arithmetic(1), *h).threads, 32);
  EXPECT_EQ(launch_shape(arithmetic(65), *c).blocks, 2);
  EXPECT_EQ(launch_shape(arithmetic(1 << 20), *h).threads, 128);
  EXPECT_EQ(launch_shape(arithmetic(1 << 20), *h).blocks, 1 << 13);
  EXPECT_EQ(launch_shape(arithmetic(1 << 20), *h).shared_bytes, 0);
}

// One lane loop that loads fragments, executes a row and stores the sums.
loop::Kernel of_row(const machine::MatrixRow& r) {
  Builder b(r.row);
  const loop::Collective& c = *r.collective;
  const auto type = [&](size_t i) { return machine::operand_type(r, i); };
  std::vector<loop::BufferId> buffers;
  for (size_t i = 0; i < c.operands.size(); ++i) buffers.push_back(b.param("x", 1 << 20, i == 0));
  b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
    loop::BufferId a = -1, d = -1;
    if (r.in_shared) {
      a = b.alloc(64 * 128, 1024, loop::Space::shared);
      d = b.alloc(int64_t{r.n} * 128, 1024, loop::Space::shared);
    }
    b.loop(LoopKind::lane, b.i64(0), b.i64(c.lanes), 1, [&](Expr lane) {
      std::vector<Expr> x;
      for (size_t i = 0; i < c.operands.size(); ++i)
        if (!c.operands[i].in_memory)
          x.push_back(b.load(buffers[i], type(i), lane * (c.operands[i].fragment.lane_bits / 8), 4));
      Expr out;
      if (r.in_shared) {
        out = r.a_in_registers ? b.product(r.row, x[0], x[1], d, b.i64(0))
                               : b.product(r.row, x[0], a, b.i64(0), d, b.i64(0));
        b.commit(loop::Flow::products);
        b.wait(loop::Flow::products, 0);
        out = b.ready(out);
      } else {
        out = b.inst(r.row, type(0), x);
      }
      b.store(buffers[0], out, lane * (c.operands[0].fragment.lane_bits / 8), 4);
    });
  });
  return b.finish();
}

TEST(Gpu, MatrixRowsAreInstructions) {
  for (const auto& m : gpus()) {
    for (const machine::MatrixRow& r : m->matrices) {
      SCOPED_TRACE(m->name + " " + r.row);
      const loop::Kernel k = of_row(r);
      const std::string text = emit({&k, 1}, *m, Output::assembly);
      const std::string shape = fmt::format("{}x{}x{}", r.m, r.n, r.k);
      if (is_amd(*m)) {
        const char* family = m->wave == 64 ? r.scale_group > 0 ? "v_mfma_scale_" : "v_mfma_" : "v_wmma_";
        EXPECT_TRUE(contains(text, std::string(family) + (is_float(r.acc) ? "f32_" : "i32_") + shape));
      } else if (r.in_shared) {
        EXPECT_TRUE(contains(text, fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}", r.n, r.k)));
        for (const char* needed : {"wgmma.fence.sync.aligned", "wgmma.commit_group", "wgmma.wait_group"})
          EXPECT_TRUE(contains(text, needed)) << needed;
      } else {
        EXPECT_TRUE(contains(text, fmt::format("mma.sync.aligned.m{}n{}k{}", r.m, r.n, r.k)));
      }
    }
    if (!m->matrices.empty()) test::verified(m->name, "instructions", "compiled");
    const loop::Kernel plain = arithmetic(1);
    if (m->matrices.empty()) {
      EXPECT_FALSE(contains(emit({&plain, 1}, *m, Output::assembly), "mma"));
    }
  }
}

TEST(Gpu, LoadsOfMatricesAreInstructions) {
  int loads = 0;
  for (const auto& m : gpus())
    for (const machine::MatrixLoad& load : m->loads) {
      SCOPED_TRACE(m->name + " " + load.row);
      Builder b("load");
      const auto y = b.param("y", 512, true);
      b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
        const auto panel = b.alloc(512, 1024, loop::Space::shared);
        b.loop(LoopKind::lane, b.i64(0), b.i64(32), 1, [&](Expr lane) {
          const Expr x = b.load_matrix(load.row, {Scalar::u32, 4}, panel, lane * 16);
          b.store(y, x, lane * 16, 16);
        });
      });
      const loop::Kernel k = b.finish();
      const std::string text = emit({&k, 1}, *m, Output::assembly);
      EXPECT_TRUE(
          contains(text, fmt::format("ldmatrix.sync.aligned.m8n8.x4.{}shared.b16", load.transposed ? "trans." : "")))
          << text;
      ++loads;
    }
  EXPECT_GE(loads, 10);
}

TEST(Gpu, DotRowsAreInstructions) {
  for (const auto& m : gpus())
    for (const machine::DotRow& d : m->dots) {
      SCOPED_TRACE(m->name + " " + d.row);
      Builder b("dot");
      const auto x = b.param("x", 48, false), y = b.param("y", 16, true);
      b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr) {
        const Expr acc = b.load(x, {Scalar::i32, 4}, b.i64(0), 4);
        const Expr left = b.load(x, {d.a, 16}, b.i64(16), 4), right = b.load(x, {Scalar::i8, 16}, b.i64(32), 4);
        b.store(y, b.inst(d.row, {Scalar::i32, 4}, {acc, left, right}), b.i64(0), 4);
      });
      const loop::Kernel k = b.finish();
      const std::string text = emit({&k, 1}, *m, Output::assembly);
      size_t found = 0;
      const std::string word = is_amd(*m) ? "v_dot4" : "dp4a.";
      for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
      EXPECT_EQ(found, 4U);
    }
}

// Registers are words: sixteen bytes are four of them, in either direction.
TEST(Gpu, BytesAreShiftedAsWords) {
  for (const auto& m : gpus())
    for (const ScalarOp op : {ScalarOp::shr_, ScalarOp::shl_}) {
      SCOPED_TRACE(m->name);
      Builder b("shift");
      const auto x = b.param("x", 16, false), y = b.param("y", 16, true);
      b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr) {
        const Expr bytes = b.load(x, {Scalar::u8, 16}, b.i64(0), 16);
        b.store(y, b.op(op, bytes, b.integer(3, {Scalar::u8, 16})), b.i64(0), 16);
      });
      const loop::Kernel k = b.finish();
      const std::string text = emit({&k, 1}, *m, Output::assembly);
      size_t found = 0;
      for (const std::string word :
           {"shr.u32", "shl.b32", "v_lshrrev_b32", "v_lshlrev_b32", "s_lshr_b32", "s_lshl_b32"})
        for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
      EXPECT_GE(found, 4U) << text;
      EXPECT_LE(found, 8U) << text;
      EXPECT_FALSE(contains(text, "shr.u16"));
    }
}

constexpr const char* kBlocks = R"(kernel turn(@0 x: 1024 bytes align 64, @1 y: 1024 bytes align 64 written) {
  %0 = constant i64 0
  %1 = constant i64 2
  %2 = constant i64 128
  %3 = constant i64 4
  %4 = constant i64 127
  %5 = constant i64 512
  loop grid %6 from %0 to %1 step 1 {
    @2 = alloc shared 512 bytes align 16
    %7 = mul i64 %6, %5
    loop lane %8 from %0 to %2 step 1 {
      %9 = mul i64 %8, %3
      %10 = add i64 %7, %9
      copy @2[%9] from @0[%10] 4 bytes
      commit copies
      wait copies 0
    }
    barrier
    loop lane %11 from %0 to %2 step 1 {
      %12 = sub i64 %4, %11
      %13 = mul i64 %12, %3
      %14 = load f32 @2[%13] align 4
      %15 = lane_id i64
      %16 = wave_shuffle f32 %14 from %15
      %17 = mul i64 %11, %3
      %18 = add i64 %7, %17
      store @1[%18] %16 align 4
    }
  }
}
)";

TEST(Gpu, BlocksHaveBarriersAndSharedMemory) {
  const loop::Kernel k = loop::parse_kernel(std::make_shared<Source>(Source{"test", kBlocks}));
  for (const auto& m : gpus()) {
    SCOPED_TRACE(m->name);
    const LaunchShape shape = launch_shape(k, *m);
    EXPECT_EQ(shape.blocks, 2);
    EXPECT_EQ(shape.threads, 128);
    EXPECT_EQ(shape.shared_bytes, 0);
    const std::string text = emit({&k, 1}, *m, Output::assembly);
    const std::vector<std::string> wanted = is_amd(*m) ? std::vector<std::string>{"ds_write",
                                                                                  "ds_read",
                                                                                  "ds_bpermute_b32",
                                                                                  "s_barrier",
                                                                                  ".group_segment_fixed_size: 512",
                                                                                  ".max_flat_workgroup_size: 128"}
                                                       : std::vector<std::string>{"cp.async.ca.shared.global",
                                                                                  "cp.async.commit_group",
                                                                                  "cp.async.wait_group",
                                                                                  "shfl.sync.idx.b32",
                                                                                  ".shared",
                                                                                  ".maxntid 128"};
    for (const std::string& w : wanted) {
      std::string renamed = w;  // later RDNA spell these otherwise
      if (is_amd(*m) && m->name >= "gfx11" && w == "ds_write") renamed = "ds_store";
      if (is_amd(*m) && m->name >= "gfx11" && w == "ds_read") renamed = "ds_load";
      if (is_amd(*m) && m->wave == 64 && (w == "ds_write" || w == "ds_read")) renamed = w;
      EXPECT_TRUE(contains(text, renamed)) << renamed;
    }
    if (!is_amd(*m)) {
      EXPECT_TRUE(contains(text, "bar.sync") || contains(text, "barrier.sync"));
    }
    const std::vector<KernelReport> facts = report({&k, 1}, *m);
    EXPECT_EQ(facts[0].shared_bytes, 512);
    EXPECT_EQ(facts[0].private_bytes, 0);
    EXPECT_EQ(facts[0].waves.has_value(), is_amd(*m));
  }
}

// Kernels of later NVIDIA targets wait for the one before, before they touch memory: they are launched while it ends.
TEST(Gpu, FollowersWaitFirst) {
  const loop::Kernel k = arithmetic(64);
  const std::string text = emit({&k, 1}, *machine::find_machine("sm_90a"), Output::assembly);
  ASSERT_TRUE(contains(text, "griddepcontrol.wait"));
  EXPECT_LT(text.find("griddepcontrol.launch_dependents"), text.find("griddepcontrol.wait"));
  EXPECT_LT(text.find("griddepcontrol.wait"), text.find("ld.global"));
  for (const char* name : {"sm_80", "sm_89", "gfx942"}) {
    EXPECT_FALSE(machine::find_machine(name)->follows) << name;
    EXPECT_FALSE(contains(emit({&k, 1}, *machine::find_machine(name), Output::assembly), "griddepcontrol")) << name;
  }
}

// Memory that another kernel of the program may write is read as what it is: reads of constant memory (`nc`) may find
// lines that a kernel before left in the first-level cache, as this one began before that one ended.
TEST(Gpu, FollowersReadAsConstantWhatNoKernelWrites) {
  loop::Kernel k = arithmetic(64);
  const auto reads_as_constant = [&](const char* machine) {
    return contains(emit({&k, 1}, *machine::find_machine(machine), Output::assembly), "ld.global.nc");
  };
  EXPECT_TRUE(reads_as_constant("sm_80"));
  for (const char* name : {"sm_90a", "sm_100a", "sm_120"}) EXPECT_FALSE(reads_as_constant(name)) << name;
  const int64_t bytes = std::exchange(k.params[0].bytes, int64_t{16} << 20);
  EXPECT_TRUE(reads_as_constant("sm_90a")) << "it is launched in whole";
  k.params[0].bytes = bytes;
  for (loop::BufferParam& p : k.params) p.constant = !p.written;
  for (const char* name : {"sm_80", "sm_90a", "sm_100a", "sm_120"}) EXPECT_TRUE(reads_as_constant(name)) << name;
}

// Copies of such memory come before the wait where the kernel says where it waits.
TEST(Gpu, FollowersCopyConstantsBeforeTheyWait) {
  std::string text = kBlocks;
  text.replace(text.find("x: 1024 bytes align 64"), 22, "x: 1024 bytes align 64 constant");
  text.replace(text.find("      wait copies 0\n"), 20, "      wait kernels 0\n      wait copies 0\n");
  const loop::Kernel k = loop::parse_kernel(std::make_shared<Source>(Source{"test", text}));
  for (const auto& m : gpus()) {
    SCOPED_TRACE(m->name);
    const std::string out = emit({&k, 1}, *m, Output::assembly);
    EXPECT_EQ(contains(out, "griddepcontrol"), m->follows);
    if (!m->follows) continue;
    const size_t begins = out.find("griddepcontrol.launch_dependents"), copy = out.find("cp.async.ca"),
                 waits = out.find("griddepcontrol.wait"), store = out.find("st.global");
    ASSERT_NE(waits, std::string::npos);
    EXPECT_EQ(out.find("griddepcontrol.wait", waits + 1), std::string::npos);
    EXPECT_LT(begins, copy);
    EXPECT_LT(copy, waits);
    EXPECT_LT(waits, store);
    EXPECT_TRUE(contains(out, ".minnctapersm 2"));
  }
}

// More than a module may ask for itself is the launch's to give.
TEST(Gpu, MuchSharedMemoryIsDynamic) {
  std::string text = kBlocks;
  text.replace(text.find("alloc shared 512"), 16, "alloc shared 60000");
  const loop::Kernel k = loop::parse_kernel(std::make_shared<Source>(Source{"test", text}));
  const auto h = machine::find_machine("sm_90a");
  EXPECT_EQ(launch_shape(k, *h).shared_bytes, 60000);
  EXPECT_TRUE(contains(emit({&k, 1}, *h, Output::assembly), ".extern .shared"));
  EXPECT_EQ(report({&k, 1}, *h)[0].shared_bytes, 60000);
  EXPECT_EQ(launch_shape(k, *machine::find_machine("gfx942")).shared_bytes, 0);
  text.replace(text.find("alloc shared 60000"), 18, "alloc shared 100000");
  const loop::Kernel large = loop::parse_kernel(std::make_shared<Source>(Source{"test", text}));
  EXPECT_THROW(launch_shape(large, *machine::find_machine("gfx942")), Error);
  EXPECT_NO_THROW(launch_shape(large, *machine::find_machine("gfx950")));
}

// What inner loops are made of is counted, on both families.
TEST(Gpu, ReportsCountProductsOfLoops) {
  for (const char* name : {"gfx90a", "gfx1100", "sm_80"}) {
    const auto m = machine::find_machine(name);
    const machine::MatrixRow& r =
        *std::find_if(m->matrices.begin(), m->matrices.end(), [](const auto& x) { return x.a.scalar == Scalar::f16; });
    const loop::Fragment &acc = r.collective->operands[0].fragment, &a = r.collective->operands[1].fragment,
                         &f = r.collective->operands[2].fragment;
    Builder b("loop");
    const auto x = b.param("x", 1 << 20, false), y = b.param("y", 1 << 20, true);
    b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
      b.loop(LoopKind::lane, b.i64(0), b.i64(m->wave), 1, [&](Expr lane) {
        const loop::VType sums{Scalar::f32, acc.lane_bits / 32};
        const auto sum = b.alloc(acc.lane_bits / 8, 16);
        b.store(sum, b.real(0, sums), b.i64(0), 16);
        b.loop(LoopKind::serial, b.i64(0), b.i64(64), 1, [&](Expr k) {
          const Expr at = (k * m->wave + lane) * 64;
          const Expr left = b.load(x, {Scalar::f16, a.lane_bits / 16}, at, 16);
          const Expr right = b.load(x, {Scalar::f16, f.lane_bits / 16}, at, 16);
          b.store(sum, b.inst(r.row, sums, {b.load(sum, sums, b.i64(0), 16), left, right}), b.i64(0), 16);
        });
        b.store(y, b.load(sum, sums, b.i64(0), 16), lane * (acc.lane_bits / 8), 16);
      });
    });
    const loop::Kernel k = b.finish();
    const KernelReport facts = report({&k, 1}, *m)[0];
    EXPECT_EQ(facts.loop_matrix, 1) << name;
    EXPECT_GT(facts.loop_instructions, 3) << name;
    EXPECT_LT(facts.loop_instructions, 40) << name;
    EXPECT_EQ(facts.private_bytes, 0) << name;
    if (m->name != "sm_80") {
      EXPECT_GT(facts.vector_registers.value_or(0), 8) << name;
      EXPECT_EQ(facts.vector_spills, 0) << name;
    }
  }
}

TEST(Gpu, AKernelOfAnotherMachineIsRefused) {
  const auto h = machine::find_machine("sm_90a"), c = machine::find_machine("gfx942"),
             x = machine::find_machine("avx512");
  const loop::Kernel k = of_row(c->matrices[0]);
  EXPECT_THROW(emit({&k, 1}, *h, Output::object), Error);
  const loop::Kernel blocks = loop::parse_kernel(std::make_shared<Source>(Source{"test", kBlocks}));
  EXPECT_DEATH(emit({&blocks, 1}, *x, Output::object), "grid kernels need a GPU");
}

}  // namespace
}  // namespace lumen::emit
