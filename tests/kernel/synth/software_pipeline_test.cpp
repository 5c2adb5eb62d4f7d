// needs: none. Software pipelines of every number of buffers: what they compute by the evaluator, that all they wait
// and meet for is needed, what begins before the kernels before have ended, and products that overlap.
#include "kernel/synth/step/software_pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/loop/verify.h"
#include "kernel/synth/mma/block_product.h"
#include "tests/kernel/loop/loop_harness.h"

namespace lumen::synth {
namespace {

using loop::BufferId;
using loop::Expr;
using loop::LoopKind;
using loop::VType;

constexpr int64_t kStages = 6, kLanes = 64, kUnit = 16, kStage = kLanes * kUnit;
constexpr VType kFour{Scalar::f32, 4};

struct Case {
  int64_t buffers = 2;
  bool by_wave = false, copies = true;
};

// Whose numbers of a stage a lane reads: of another wave, where waves meet.
int64_t partner(const Case& c, int64_t lane) {
  return c.by_wave ? lane ^ 5 : kLanes - 1 - lane;
}

// y = y * 2 + the partner's numbers, stage by stage.
std::string text_of(const Case& c) {
  loop::Builder b("pipeline");
  const BufferId x = b.param("x", kStages * kStage, false), y = b.param("y", kStage, true);
  b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
    const BufferId panel = b.alloc(c.buffers * kStage, kUnit, loop::Space::shared), sums = b.alloc(16, 16);
    SoftwarePipeline p(b, {.lanes = kLanes, .buffers = c.buffers, .by_wave = c.by_wave, .copies = c.copies});
    const auto begin = [&](Expr lane, Expr stage) {
      const Expr to = stage % c.buffers * kStage + lane * kUnit, from = stage * kStage + lane * kUnit;
      b.branch(stage < kStages, [&] {
        if (c.copies)
          b.copy(panel, to, x, from, kUnit);
        else
          b.store(panel, b.load(x, kFour, from, 16), to, 16);
      });
    };
    const auto use = [&](Expr lane, Expr stage) {
      const Expr other = c.by_wave ? lane ^ 5 : kLanes - 1 - lane;
      const Expr now = b.load(panel, kFour, stage % c.buffers * kStage + other * kUnit, 16);
      b.store(sums, fma(b.load(sums, kFour, b.i64(0), 16), b.real(2, kFour), now), b.i64(0), 16);
    };
    const auto first = [&](Expr lane) {
      b.store(sums, b.real(0, kFour), b.i64(0), 16);
      p.begin_first({.constant = [&](int64_t i) { begin(lane, b.i64(i)); }});
    };
    const auto stages = [&](const std::function<Expr(Expr)>& lane_of) {
      b.loop(LoopKind::serial, b.i64(0), b.i64(kStages), 1, [&](Expr stage) {
        p.step({.begin = [&](Expr lane) { begin(lane_of(lane), stage + p.ahead()); },
                .use = [&](Expr lane) { use(lane_of(lane), stage); }});
      });
    };
    const auto last = [&](Expr lane) { b.store(y, b.load(sums, kFour, b.i64(0), 16), lane * kUnit, 16); };
    if (c.by_wave) {
      p.lanes([&](Expr lane) {
        first(lane);
        stages([&](Expr) { return lane; });
        last(lane);
      });
    } else {
      p.lanes(first);
      stages([](Expr lane) { return lane; });
      p.lanes(last);
    }
  });
  return loop::print(b.finish());
}

bool is_right(const std::string& text, const Case& c) {
  std::vector<float> x(static_cast<size_t>(kStages * kLanes * 4)), y(static_cast<size_t>(kLanes * 4));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 251);
  const auto bytes = [](std::vector<float>& v) {
    return std::span<uint8_t>(reinterpret_cast<uint8_t*>(v.data()), v.size() * 4);
  };
  const std::vector<std::span<uint8_t>> buffers{bytes(x), bytes(y)};
  loop::eval(parse(text), buffers, nullptr);
  bool right = true;
  for (int64_t i = 0; i < kLanes * 4; ++i) {
    float want = 0;
    for (int64_t s = 0; s < kStages; ++s)
      want = want * 2 + x[static_cast<size_t>((s * kLanes + partner(c, i / 4)) * 4 + i % 4)];
    right = right && y[static_cast<size_t>(i)] == want;
  }
  return right;
}

std::vector<size_t> places_of(const std::string& text, const std::string& what) {
  std::vector<size_t> out;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) out.push_back(at);
  return out;
}
std::string with(std::string text, size_t at, const std::string& what, const std::string& instead) {
  return text.replace(at, what.size(), instead);
}

std::vector<Case> cases() {
  std::vector<Case> out{{1, false, false}};
  for (int64_t buffers = 1; buffers <= 4; ++buffers) out.push_back({buffers, false, true});
  for (int64_t buffers = 2; buffers <= 4; ++buffers) out.push_back({buffers, true, true});
  return out;
}

TEST(SoftwarePipeline, EveryStageIsThereWhenItIsUsed) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("{} buffers{}{}", c.buffers, c.by_wave ? " by wave" : "", c.copies ? "" : " stored"));
    EXPECT_TRUE(is_right(text_of(c), c));
  }
}

// Copies that come late are wrong numbers, or meet those who read what was there before.
void need(bool right) {
  LUMEN_CHECK(right, "wrong sums");
}
constexpr const char* kLate = "wrong sums|without a barrier|under way reads";

TEST(SoftwarePipelineDeathTest, NoWaitIsLongerThanItMustBe) {
  for (const Case& c : cases()) {
    if (!c.copies) continue;
    const std::string text = text_of(c);
    const int64_t later = std::max<int64_t>(c.buffers - 2, 0);  // stages that may still be under way
    const std::string wait = fmt::format("wait copies {}", later);
    const std::vector<size_t> waits = places_of(text, wait);
    ASSERT_EQ(waits.size(), 1) << text;
    EXPECT_EQ(places_of(text, "wait copies").size(), 1);
    const std::string late = with(text, waits[0], wait, fmt::format("wait copies {}", later + 1));
    EXPECT_DEATH(need(is_right(late, c)), kLate) << text;
  }
}

TEST(SoftwarePipelineDeathTest, NoMeetingIsTooMany) {
  for (const Case& c : cases()) {
    const std::string text = text_of(c), meets = c.by_wave ? "      wave_barrier\n" : "barrier\n";
    const std::vector<size_t> places = places_of(text, meets);
    EXPECT_EQ(places.size(), c.buffers == 1 ? 2 : 1) << text;
    for (const size_t at : places)
      EXPECT_DEATH(is_right(with(text, at, meets, "\n"), c), "without a barrier") << c.buffers << text;
  }
}

// Some stages of x begin before the kernels before have ended, z does not: y = sums of both.
loop::Kernel early_kernel(int64_t early, bool waits) {
  loop::Builder b("early");
  const BufferId x = b.param("x", kStages * kStage, false), z = b.param("z", kStages * kStage, false),
                 y = b.param("y", kStage, true);
  b.kernel.params[static_cast<size_t>(x)].constant = true;
  b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
    constexpr int64_t kBuffers = 4;
    const BufferId xs = b.alloc(kBuffers * kStage, kUnit, loop::Space::shared),
                   zs = b.alloc(kBuffers * kStage, kUnit, loop::Space::shared), sums = b.alloc(16, 16);
    SoftwarePipeline p(b, {.lanes = kLanes, .buffers = kBuffers});
    const auto begin = [&](Expr lane, BufferId from, BufferId to, Expr stage) {
      b.copy(to, stage % kBuffers * kStage + lane * kUnit, from, stage * kStage + lane * kUnit, kUnit);
    };
    p.lanes([&](Expr lane) {
      const SoftwarePipeline::Prologue prologue{.constant = [&](int64_t i) { begin(lane, x, xs, b.i64(i)); },
                                                .rest = [&](int64_t i) { begin(lane, z, zs, b.i64(i)); },
                                                .early = early,
                                                .waits = waits};
      p.begin_early(prologue);
      p.wait_for_kernels(prologue);
      p.begin_first(prologue);
      b.store(sums, b.real(0, kFour), b.i64(0), 16);
    });
    b.loop(LoopKind::serial, b.i64(0), b.i64(kStages), 1, [&](Expr stage) {
      const auto begin_both = [&](Expr lane) {
        const Expr next = stage + p.ahead();
        b.branch(next < kStages, [&] {
          begin(lane, x, xs, next);
          begin(lane, z, zs, next);
        });
      };
      const auto use = [&](Expr lane) {
        const Expr at = stage % kBuffers * kStage + (kLanes - 1 - lane) * kUnit;
        const Expr both = b.load(xs, kFour, at, 16) + b.load(zs, kFour, at, 16);
        b.store(sums, b.load(sums, kFour, b.i64(0), 16) + both, b.i64(0), 16);
      };
      p.step({.begin = begin_both, .use = use});
    });
    p.lanes([&](Expr lane) { b.store(y, b.load(sums, kFour, b.i64(0), 16), lane * kUnit, 16); });
  });
  return b.finish();
}

TEST(SoftwarePipeline, ConstantStagesBeginBeforeKernelsHaveEnded) {
  for (const int64_t early : {0, 1, 2, 3})
    for (const bool waits : {true, false}) {
      const loop::Kernel k = early_kernel(early, waits);
      const std::string text = loop::print(k);
      EXPECT_EQ(loop::begins_early(k), waits);
      EXPECT_EQ(loop::check_early(k), "");
      if (waits) {
        const std::string before = text.substr(0, text.find("wait kernels 0"));
        EXPECT_EQ(places_of(before, "copy ").size(), static_cast<size_t>(early));
        EXPECT_EQ(places_of(before, "commit").size(), 0);
      }
      std::vector<float> x(static_cast<size_t>(kStages * kLanes * 4), 1), z = x, y(static_cast<size_t>(kLanes * 4));
      for (size_t i = 0; i < z.size(); ++i) z[i] = static_cast<float>(i % 13);
      const auto bytes = [](std::vector<float>& v) {
        return std::span<uint8_t>(reinterpret_cast<uint8_t*>(v.data()), v.size() * 4);
      };
      const std::vector<std::span<uint8_t>> buffers{bytes(x), bytes(z), bytes(y)};
      loop::eval(k, buffers, nullptr);
      for (int64_t i = 0; i < kLanes * 4; ++i) {
        float want = 0;
        for (int64_t s = 0; s < kStages; ++s)
          want += 1 + z[static_cast<size_t>((s * kLanes + kLanes - 1 - i / 4) * 4 + i % 4)];
        ASSERT_EQ(y[static_cast<size_t>(i)], want) << early << " " << i;
      }
    }
}

// Rows of 64 bf16 times themselves, by an instruction that reads panels while lanes meet.
constexpr int64_t kRows = 64, kDeep = 64, kOverlapped = 4;

std::string overlapping(const machine::Machine& m, int64_t buffers) {
  BlockTile tile;
  tile.row = find_shared_matrix(m, {Scalar::bf16, std::nullopt}, static_cast<int>(kRows));
  tile.factor = Scalar::bf16;
  tile.wave = tile.row->collective->lanes;
  tile.stage_k = kDeep;
  loop::Builder b("overlap");
  const BufferId x = b.param("x", kOverlapped * kRows * kDeep * 2, false), y = b.param("y", kRows * kRows * 4, true);
  b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
    BlockProduct product(b, m, tile);
    const int64_t bytes = product.panel_bytes(BlockProduct::Side::a);
    const BufferId panel = b.alloc(buffers * bytes, BlockProduct::kAlign, loop::Space::shared);
    SoftwarePipeline p(b, {.lanes = tile.lanes(), .buffers = buffers, .overlaps = true});
    const auto begin = [&](Expr lane, Expr stage) {
      b.branch(stage < kOverlapped, [&] {
        b.loop(LoopKind::serial, lane, b.i64(kRows * product.units()), tile.lanes(), [&](Expr at) {
          const Expr to = product.place(BlockProduct::Side::a, at / product.units(), at % product.units());
          b.copy(panel, stage % buffers * bytes + to, x, (stage * kRows * product.units() + at) * 16, 16);
        });
      });
    };
    p.wait_and_barrier(p.ahead() - 1, [&](Expr lane) {
      product.clear();
      p.begin_first({.constant = [&](int64_t i) { begin(lane, b.i64(i)); }});
    });
    b.loop(LoopKind::serial, b.i64(0), b.i64(kOverlapped), 1, [&](Expr stage) {
      const BlockProduct::Panel at{panel, stage % buffers * bytes};
      p.step({.begin = [&](Expr lane) { begin(lane, stage + p.ahead()); },
              .use = [&](Expr lane) { product.begin(lane, at, at); }});
    });
    p.lanes([&](Expr lane) {
      b.wait(loop::Flow::products, 0);
      product.ready();
      product.each_sum(lane, [&](Expr r, Expr c, Expr sums) { b.store(y, sums, (r * kRows + c) * 4, 4); });
    });
  });
  return loop::print(b.finish());
}

bool products_are_right(const std::string& text, const machine::Machine& m) {
  std::vector<uint16_t> x(static_cast<size_t>(kOverlapped * kRows * kDeep));
  std::vector<float> values, y(static_cast<size_t>(kRows * kRows));
  for (size_t i = 0; i < x.size(); ++i) {
    values.push_back(static_cast<float>(static_cast<int>(i * 7 % 11) - 5));
    x[i] = f32_to_bf16(values[i]);
  }
  const std::vector<std::span<uint8_t>> buffers{{reinterpret_cast<uint8_t*>(x.data()), x.size() * 2},
                                                {reinterpret_cast<uint8_t*>(y.data()), y.size() * 4}};
  loop::eval(parse(text), buffers, [&](std::string_view row) { return m.meaning(row); }, m.wave);
  bool right = true;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kRows; ++j) {
      float want = 0;
      for (int64_t s = 0; s < kOverlapped; ++s)
        for (int64_t k = 0; k < kDeep; ++k)
          want += values[static_cast<size_t>((s * kRows + i) * kDeep + k)] *
                  values[static_cast<size_t>((s * kRows + j) * kDeep + k)];
      right = right && y[static_cast<size_t>(i * kRows + j)] == want;
    }
  return right;
}

TEST(SoftwarePipelineDeathTest, ProductsAreUnderWayWhereLanesMeet) {
  const machine::MachineRef m = machine::find_machine("sm_90a");
  for (const int64_t buffers : {3, 4}) {
    const std::string text = overlapping(*m, buffers);
    EXPECT_TRUE(products_are_right(text, *m)) << text;
    // In the loop a stage more has come, for its products begin before lanes meet again.
    const std::string wait = fmt::format("wait copies {}", buffers - 3);
    const std::vector<size_t> waits = places_of(text, wait);
    ASSERT_EQ(waits.size(), 1) << text;
    const std::string late = with(text, waits[0], wait, fmt::format("wait copies {}", buffers - 2));
    EXPECT_DEATH(need(products_are_right(late, *m)), kLate);
  }
}

TEST(SoftwarePipelineDeathTest, APanelIsNotFreeBeforeItsProductsEnd) {
  const machine::MachineRef m = machine::find_machine("sm_90a");
  const std::string text = overlapping(*m, 3), wait = "wait products 1";
  ASSERT_EQ(places_of(text, wait).size(), 1);
  EXPECT_DEATH(products_are_right(with(text, text.find(wait), wait, "wait products 2"), *m), kLate);
}

}  // namespace
}  // namespace lumen::synth
