// needs: none. Dots by blocks, on GPUs of every kind of matrix instruction and without any: each way of supplying an
// operand, ragged sizes, batches, several indices of K, parts of K, epilogues. Against the sums of a graph's evaluator.
#include "kernel/synth/gemm/gpu/dot_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernel/synth/dot.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

graph::Type type_of(const std::vector<int64_t>& dims, Scalar s, FormatRef format = nullptr) {
  graph::Type t;
  for (int64_t d : dims) t.shape.emplace_back(d);
  t.element = {s, std::move(format)};
  return t;
}

struct Operand {
  std::vector<int64_t> dims;
  std::string indices;
  Scalar scalar = Scalar::f32;
  const char* format = nullptr;
};

Graph contract(const Operand& a, const Operand& b, const std::string& result, bool maps) {
  static const FormatLibrary library = FormatLibrary::builtin();
  Graph g;
  Builder build(g);
  const auto input = [&](const char* name, const Operand& o) {
    const FormatRef f = o.format ? library.find(o.format) : nullptr;
    const ValueId v = build.input(name, Role::data, type_of(o.dims, o.scalar, f));
    return f ? build.cast(v, {Scalar::f32, nullptr}) : v;
  };
  const ValueId x = input("x", a), y = input("y", b);
  ValueId r = build.contract(x, y, a.indices, b.indices, result);
  if (maps) {
    graph::Type row;
    row.shape = {build.type(r).shape.back()};
    r = build.unary(ScalarOp::tanh_, build.add(r, build.input("bias", Role::data, row)));
  }
  g.results = {r};
  g.result_names = {"r"};
  return g;
}

void check_plan(const machine::Machine& m, const graph::Plan& plan, const synth::BlockDot& d) {
  const Graph& g = plan.graph;
  std::mt19937 random(7);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  const graph::Tensor want = graph::eval(g, inputs).at(0);
  const synth::DotProblem problem = synth::normalise_dot(plan, plan.groups[0]);
  synth::Synthesis s;
  synth::write_block_dot(plan.graph, d, m, s);
  SCOPED_TRACE(m.name + ": " + s.steps.back().plan);
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, m));
  ASSERT_EQ(got.size(), want.values.size());
  // Factors of eight bits of precision, products that lie in (-1, 1).
  const double k = static_cast<double>(problem.k_total());
  const synth::BlockTile& tile = d.plan.tile;
  const double tolerance = is_float(tile.factor) && tile.factor != Scalar::f32 &&
                                   g[problem.loads[0].source].type.element.scalar == Scalar::f32
                               ? 4e-3 * std::sqrt(k) + 1e-3
                               : 2e-6 * k;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.values[i], tolerance) << "at " << i;
}

void check(const machine::Machine& m, const Graph& g, bool exact, std::set<std::string>* plans = nullptr) {
  const graph::Plan plan = dot_test::one_dot_group(g);
  auto chosen = synth::choose_block_dots(synth::normalise_dot(plan, plan.groups[0]), m, exact, 0);
  ASSERT_FALSE(chosen.empty()) << m.name;
  std::set<std::vector<size_t>> prepared;
  for (synth::BlockDot& d : chosen) {
    // The best way there is of each kind: what is laid out before; where all are wanted, every plan of the best kind.
    std::vector<size_t> kind;
    for (const auto& [load, made] : d.before) kind.push_back(load);
    if (!prepared.insert(kind).second && (!plans || prepared.size() > 1)) continue;
    synth::BlockPlan& t = d.plan;
    if (plans && t.stages > 2 * t.unrolled && t.splits == 1 && t.scheduler.persistent_blocks == 0) {
      t.split_stages = (t.stages / 2 + t.unrolled - 1) / t.unrolled * t.unrolled;
      t.splits = (t.stages + t.split_stages - 1) / t.split_stages;
    }
    if (plans) plans->insert(synth::describe(t, d.problem));
    check_plan(m, plan, d);
  }
}

// A wave of 32 and one of 64 lanes; f32 by matrix instructions and without; factors from shared memory.
std::vector<machine::MachineRef> some_gpus() {
  std::vector<machine::MachineRef> out;
  for (const char* name : {"sm_90a", "gfx906", "gfx942", "gfx1100"}) out.push_back(machine::find_machine(name));
  return out;
}

TEST(DotBlock, EveryOrderOfIndicesAndRaggedSizes) {
  for (const machine::MachineRef& m : some_gpus())
    for (const Scalar s : {Scalar::f32, Scalar::bf16})
      for (const char* ia : {"mk", "km"})
        for (const char* ib : {"nk", "kn"}) {
          const auto dims = [](const std::string& i) {
            std::vector<int64_t> d;
            for (const char c : i) d.push_back(c == 'm' ? 21 : c == 'n' ? 37 : 83);
            return d;
          };
          check(*m, contract({dims(ia), ia, s}, {dims(ib), ib, s}, "mn", ia[0] == 'm'), true);
        }
}

TEST(DotBlock, WholeTilesBatchesAndSeveralSummedIndices) {
  for (const machine::MachineRef& m : some_gpus()) {
    check(*m, contract({{64, 128}, "mk", Scalar::bf16}, {{64, 128}, "nk", Scalar::bf16}, "mn", false), true);
    for (const char* ia : {"mk", "km"})  // sizes that copies of sixteen bytes divide, in every order
      for (const char* ib : {"nk", "kn"}) {
        const auto dims = [](const std::string& i) {
          std::vector<int64_t> d;
          for (const char c : i) d.push_back(c == 'm' ? 40 : c == 'n' ? 72 : 88);
          return d;
        };
        check(*m, contract({dims(ia), ia, Scalar::bf16}, {dims(ib), ib, Scalar::bf16}, "mn", false), true);
      }
    check(*m, contract({{2, 20, 48}, "bmk"}, {{2, 24, 48}, "bnk"}, "bmn", true), true);
    check(*m, contract({{3, 20, 16}, "bmk", Scalar::bf16}, {{3, 24, 16}, "bnk", Scalar::bf16}, "mn", false), true);
  }
}

TEST(DotBlock, EveryKindOfFormat) {
  int number = 0;
  for (const char* format : {"q4_0", "q8_0", "q4_k", "nf4", "mxfp4", "f16", "int3_g64", "fp8_e4m3"}) {
    const FormatRef f = FormatLibrary::builtin().find(format);
    ASSERT_TRUE(f) << format;
    const std::vector<machine::MachineRef> machines = some_gpus();
    const machine::Machine& m = *machines[static_cast<size_t>(number++) % machines.size()];
    const int64_t k = f->block * std::max<int64_t>(1, 96 / f->block);
    for (const bool exact : {false, true})
      check(m, contract({{18, k}, "mk"}, {{21, k}, "nk", Scalar::f32, format}, "mn", !exact), exact);
    check(m, contract({{18, 21}, "mn"}, {{21, k}, "nk", Scalar::f32, format}, "mk", false), false);
  }
}

// Both operands in codes of eight bits that the machine multiplies, in every order; other pairs are unpacked.
TEST(DotBlock, SixteenBitFloatsOfBothOperands) {
  for (const auto& [name, format] :
       {std::pair{"sm_90a", "fp8_e4m3"}, std::pair{"sm_89", "fp8_e5m2"}, std::pair{"gfx942", "fp8_e4m3fnuz"},
        std::pair{"gfx950", "fp8_e4m3"}, std::pair{"gfx1201", "fp8_e5m2"}}) {
    const machine::MachineRef m = machine::find_machine(name);
    for (const char* ia : {"mk", "km"})
      for (const char* ib : {"nk", "kn"})
        for (const int64_t k : {128, 83}) {
          if ((ia[0] == 'm') != (ib[0] == 'n') && (k == 83 || name != std::string("sm_90a"))) continue;
          const auto dims = [&](const std::string& i) {
            std::vector<int64_t> d;
            for (const char c : i) d.push_back(c == 'k' ? k : c == 'm' ? (k == 128 ? 64 : 21) : (k == 128 ? 80 : 37));
            return d;
          };
          const Graph g =
              contract({dims(ia), ia, Scalar::f32, format}, {dims(ib), ib, Scalar::f32, format}, "mn", ia[0] == 'm');
          const graph::Plan plan = dot_test::one_dot_group(g);
          const auto chosen = synth::choose_block_dots(synth::normalise_dot(plan, plan.groups[0]), *m, false, 0);
          ASSERT_FALSE(chosen.empty());
          EXPECT_FALSE(chosen[0].plan.rounds(chosen[0].problem));
          EXPECT_EQ(chosen[0].plan.tile.factor, Scalar::u8);
          check(*m, g, false);
        }
    check(*m, contract({{20, 64}, "mk", Scalar::f32, format}, {{24, 64}, "nk", Scalar::f32, "q8_0"}, "mn", false),
          false);
    check(*m, contract({{20, 64}, "mk", Scalar::f32, format}, {{24, 64}, "nk", Scalar::f32, format}, "mn", false),
          true);
  }
}

// Few persistent_blocks over several tiles: ragged, in batches, with two summed indices; what is left cut along K.
TEST(DotBlock, WalkersAndSegmentsOfTheLastTiles) {
  for (const char* name : {"sm_90a", "sm_80"}) {
    machine::Machine m = *machine::find_machine(name);
    m.units = 2;
    const bool shared = m.name == "sm_90a";
    const int64_t stage = shared ? 64 : 32;
    const auto walks = [&](const Graph& g, bool streams) {
      const graph::Plan plan = dot_test::one_dot_group(g);
      const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
      const machine::MatrixRow* row =
          shared ? synth::find_shared_matrix(m, {Scalar::bf16, {}}, 64) : synth::find_matrix(m, {Scalar::bf16, {}}, 32);
      synth::BlockPlan t;
      t.tile = {row, Scalar::bf16, row->collective->lanes, 1, 1, 1, 32 / std::min(row->n, 32), stage};
      t.a = t.b = synth::Supply::copies;
      t.m_tiles = (p.m.extent + t.tile.m() - 1) / t.tile.m();
      t.n_tiles = (p.n.extent + t.tile.n() - 1) / t.tile.n();
      t.per_k = (p.k.extent + stage - 1) / stage;
      t.stages = t.split_stages = t.per_k * (p.k_total() / p.k.extent);
      t.buffers = 4;
      const int64_t tiles = p.outer_extent() * t.m_tiles * t.n_tiles;
      if (streams) {
        ASSERT_TRUE(synth::TileScheduler::can_stream_k(tiles, t.stages, m.units)) << tiles << " tiles of " << t.stages;
      }
      t.scheduler = {tiles, t.stages, m.units, streams};
      EXPECT_NE(synth::describe(t, p).find(streams ? "stream-k 2" : "persistent 2"), std::string::npos);
      check_plan(m, plan, synth::BlockDot{p, p, t, {}, 0});
    };
    const auto of = [&](int64_t rows, int64_t k) {
      return contract({{3, rows, k}, "bmk", Scalar::bf16}, {{3, 20, k}, "bnk", Scalar::bf16}, "bmn", true);
    };
    const auto summed = [&](int64_t rows, int64_t k) {
      return contract({{2, rows, k}, "bmk", Scalar::bf16}, {{2, 30, k}, "bnk", Scalar::bf16}, "mn", false);
    };
    walks(of(shared ? 70 : 20, 5 * stage - 8), false);
    walks(summed(shared ? 150 : 40, 3 * stage), false);
    walks(of(shared ? 40 : 12, 16 * stage), true);
    walks(summed(shared ? 150 : 40, 8 * stage - 8), true);
  }
}

struct Window {
  int64_t images, high, wide, channels, outputs, side, stride;
};

// A product over windows of images, with a bias and images of a larger tensor added behind it; or the sum over all
// places of what it multiplies with a slope: the gradient of the weight.
Graph windows_of(const Window& c, bool weight) {
  Graph g;
  Builder b(g);
  const int64_t high = (c.high - c.side) / c.stride + 1, wide = (c.wide - c.side) / c.stride + 1;
  const ValueId x = b.input("x", Role::data, type_of({c.images, c.high, c.wide, c.channels}, Scalar::bf16));
  const std::vector<int64_t> strides = {1, 0, 0,        0, 0, 0, 0, c.stride, 0, 1, 0, 0,
                                        0, 0, c.stride, 0, 1, 0, 0, 0,        0, 0, 0, 1};
  graph::Type seen = type_of({c.images, high, wide, c.side, c.side, c.channels}, Scalar::bf16);
  const ValueId views = b.windows(x, {0, 0, 0, 0}, strides, seen.shape);
  if (weight) {
    const ValueId slope = b.input("slope", Role::data, type_of({c.images, high, wide, c.outputs}, Scalar::bf16));
    g.results = {b.contract(views, slope, "nhvijc", "nhvo", "oijc")};
  } else {
    const ValueId w = b.input("w", Role::parameter, type_of({c.outputs, c.side, c.side, c.channels}, Scalar::bf16));
    const ValueId y = b.contract(views, w, "nhvijc", "oijc", "nhvo");
    const ValueId beside =
        b.input("beside", Role::data, type_of({c.images, high + 2, wide + 1, c.outputs}, Scalar::f32));
    const ValueId inside =
        b.slice(beside, {0, 1, 1, 0}, type_of({c.images, high, wide, c.outputs}, Scalar::f32).shape, {1, 1, 1, 1});
    const ValueId bias = b.input("bias", Role::data, type_of({c.outputs}, Scalar::f32));
    g.results = {b.add(b.add(y, bias), inside)};
  }
  g.result_names = {"r"};
  return g;
}

std::vector<synth::BlockDot> joint_dots(const machine::Machine& m, const graph::Plan& plan) {
  auto all = synth::choose_block_dots(synth::normalise_dot(plan, plan.groups[0]), m, true, 0);
  std::erase_if(all, [](const synth::BlockDot& d) { return d.problem.joint_m.empty() && d.problem.joint_k.empty(); });
  return all;
}

// The best plans whose rows (whose sums) count over several indices, and two parts of K of the first.
void check_joint(const machine::Machine& m, const Graph& g) {
  const graph::Plan plan = dot_test::one_dot_group(g);
  std::vector<synth::BlockDot> found = joint_dots(m, plan);
  ASSERT_FALSE(found.empty()) << m.name;
  if (found.size() > 2) found.resize(2);
  for (const synth::BlockDot& d : found) check_plan(m, plan, d);
  synth::BlockPlan& t = found[0].plan;
  if (t.splits > 1 || t.scheduler.persistent_blocks > 0 || t.stages < 2) return;
  t.split_stages = (t.stages + 1) / 2;
  t.splits = 2;
  check_plan(m, plan, found[0]);
}

TEST(DotBlock, RowsOverSeveralIndices) {
  for (const char* name : {"sm_90a", "sm_80", "gfx906", "gfx942"}) {
    const machine::MachineRef m = machine::find_machine(name);
    for (const int64_t stride : {1, 2}) check_joint(*m, windows_of({3, 7, 6, 16, 24, 3, stride}, false));
    check_joint(*m, windows_of({2, 5, 6, 3, 10, 2, 1}, false));  // channels that no copy has whole
  }
}

// What lanes hold of rows is of the tile whose copies they begin, which is the next one already near a tile's end.
TEST(DotBlock, WalksOverRowsOfSeveralIndices) {
  machine::Machine m = *machine::find_machine("sm_90a");
  m.units = 2;
  for (const bool stream_k : {false, true}) {
    const graph::Plan plan = dot_test::one_dot_group(windows_of({3, 9, 9, stream_k ? 112 : 32, 24, 3, 1}, false));
    const auto p = synth::normalise_dot(plan, plan.groups[0]).with_joint_m();
    ASSERT_TRUE(p);
    const machine::MatrixRow* row = synth::find_shared_matrix(m, {Scalar::bf16, {}}, 64);
    synth::BlockPlan t;
    t.tile = {row, Scalar::bf16, row->collective->lanes, 1, 1, 1, 1, 64};
    t.a = t.b = synth::Supply::copies;
    t.m_tiles = (p->m.extent + 63) / 64;
    t.per_k = (p->k.extent + 63) / 64;
    t.stages = t.split_stages = t.per_k * 3;
    t.buffers = 4;
    if (stream_k) {
      ASSERT_TRUE(synth::TileScheduler::can_stream_k(t.m_tiles, t.stages, m.units)) << t.stages;
    }
    t.scheduler = {t.m_tiles, t.stages, m.units, stream_k};
    check_plan(m, plan, synth::BlockDot{*p, *p, t, {}, 0});
  }
}

TEST(DotBlock, SumsOverSeveralIndices) {
  for (const char* name : {"sm_90a", "sm_80"}) {
    const machine::MachineRef m = machine::find_machine(name);
    check_joint(*m, windows_of({3, 7, 6, 16, 24, 3, 1}, true));
    check_joint(*m, windows_of({2, 9, 8, 8, 40, 2, 2}, true));
    check_joint(*m, windows_of({2, 5, 6, 24, 72, 2, 1}, true));
  }
}

// Operands that the lanes of a wave load together, as they lie in memory in either order; what is fetched lies so, too.
TEST(DotBlock, OperandsLoadedTogether) {
  const machine::MachineRef m = machine::find_machine("sm_80");
  std::set<std::string> plans;
  for (const char* ia : {"mk", "km"})
    for (const char* ib : {"nk", "kn"})
      for (const bool ragged : {false, true}) {
        const auto dims = [&](const std::string& i) {
          std::vector<int64_t> d;
          for (const char c : i) d.push_back(c == 'k' ? (ragged ? 88 : 128) : c == 'm' ? (ragged ? 72 : 64) : 64);
          return d;
        };
        const Graph g = contract({dims(ia), ia, Scalar::bf16}, {dims(ib), ib, Scalar::bf16}, "mn", ragged);
        const graph::Plan plan = dot_test::one_dot_group(g);
        const auto chosen = synth::choose_block_dots(synth::normalise_dot(plan, plan.groups[0]), *m, false, 0);
        ASSERT_FALSE(chosen.empty());
        const synth::BlockPlan& t = chosen[0].plan;
        EXPECT_TRUE(t.tile.loads);
        EXPECT_EQ(t.tile.a_beside, ia[0] == 'k') << synth::describe(t, chosen[0].problem);
        EXPECT_EQ(t.tile.b_beside, ib[0] == 'k') << synth::describe(t, chosen[0].problem);
        check(*m, g, false, ragged ? nullptr : &plans);
      }
  check(*m, contract({{21, 83}, "mk", Scalar::bf16}, {{83, 37}, "kn", Scalar::bf16}, "mn", true), false);
  check(*m, contract({{40, 64}, "mk"}, {{40, 64}, "nk", Scalar::f32, "q4_0"}, "mn", false), false);
  EXPECT_GT(plans.size(), 4U);
}

TEST(DotBlock, EveryPlanTheModelOffers) {
  std::set<std::string> plans;
  for (const char* name : {"sm_90a", "gfx1201"}) {
    const machine::MachineRef m = machine::find_machine(name);
    check(*m, contract({{17, 512}, "mk"}, {{40, 512}, "nk", Scalar::f32, "q4_0"}, "mn", true), false, &plans);
    check(*m, contract({{40, 256}, "mk", Scalar::bf16}, {{72, 256}, "nk", Scalar::bf16}, "mn", false), true, &plans);
  }
  EXPECT_GT(plans.size(), 5U);
  EXPECT_TRUE(std::any_of(plans.begin(), plans.end(), [](const std::string& p) { return p.find("splits") != p.npos; }));
}

// Blocks of whole and of odd numbers of bytes, by instructions that read shared memory while the next stage is unpacked
// and by lanes'; parts of K that begin within a run of stages. What copies of four bytes cannot take is unpacked out of
// memory.
TEST(DotBlock, WeightsAreCopiedBeforeTheyAreUnpacked) {
  const auto product = [](const char* format, int64_t k) {
    return contract({{17, k}, "mk"}, {{40, k}, "nk", Scalar::f32, format}, "mn", false);
  };
  const auto is_copied = [](const machine::Machine& m, const Graph& g) {
    const graph::Plan plan = dot_test::one_dot_group(g);
    const auto chosen = synth::choose_block_dots(synth::normalise_dot(plan, plan.groups[0]), m, false, 0);
    return std::ranges::any_of(chosen, [](const synth::BlockDot& d) { return d.plan.weight_stages.has_value(); });
  };
  for (const auto& [name, format, k] :
       {std::tuple{"sm_90a", "q4_k", 512}, {"sm_90a", "q6_k", 2048}, {"sm_80", "q8_0", 320}}) {
    const machine::MachineRef m = machine::find_machine(name);
    EXPECT_TRUE(is_copied(*m, product(format, k))) << format;
    check(*m, product(format, k), false);
  }
  const machine::MachineRef m = machine::find_machine("sm_90a");
  std::set<std::string> plans;
  check(*m, product("q4_0", 576), false, &plans);
  EXPECT_TRUE(std::ranges::any_of(plans, [](const std::string& p) { return p.find("copies splits") != p.npos; }));
  EXPECT_FALSE(is_copied(*m, product("q6_k", 768)));
  EXPECT_FALSE(is_copied(*machine::find_machine("gfx942"), product("q4_0", 512)));
}

// Products of two stages under way while the next is unpacked: few stages, parts of K, stages of a longer block, rows
// that do not exist.
TEST(DotBlock, WeightsAreUnpackedAhead) {
  const machine::MachineRef m = machine::find_machine("sm_90a");
  for (const auto& [format, rows, columns, k] :
       {std::tuple{"q4_0", 70, 72, 192}, {"q4_0", 20, 72, 576}, {"q4_k", 130, 72, 512}}) {
    const Graph g = contract({{rows, k}, "mk"}, {{columns, k}, "nk", Scalar::f32, format}, "mn", true);
    const graph::Plan plan = dot_test::one_dot_group(g);
    auto chosen = synth::choose_block_dots(synth::normalise_dot(plan, plan.groups[0]), *m, false, 0);
    const auto found = std::ranges::find_if(chosen, [](const synth::BlockDot& d) { return d.plan.unpacks_ahead(); });
    ASSERT_NE(found, chosen.end()) << format << " " << rows << "x" << columns << "x" << k;
    synth::BlockPlan& t = found->plan;
    t.splits = 1;
    t.split_stages = t.stages;
    check_plan(*m, plan, *found);
    t.split_stages = t.unrolled * (t.stages / t.unrolled - 1);
    t.splits = (t.stages + t.split_stages - 1) / t.split_stages;
    check_plan(*m, plan, *found);
  }
}

}  // namespace
}  // namespace lumen
