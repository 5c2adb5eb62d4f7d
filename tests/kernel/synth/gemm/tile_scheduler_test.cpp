// needs: none. Walks over tiles, by the code that kernels run: every stage of every tile is done once, segments are no
// shorter than they may be and have places of their own, and who adds them finds each one.
#include "kernel/synth/gemm/gpu/tile_scheduler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "kernel/loop/eval/eval.h"

namespace lumen {
namespace {

using loop::Builder;
using loop::Expr;
using loop::LoopKind;
using synth::TileScheduler;

// Numbers that `code` computes for each pair (x, y) below the extents, one after the other.
std::vector<int64_t> numbers(int64_t xs, int64_t ys,
                             const std::function<std::vector<Expr>(Builder&, Expr, Expr)>& code) {
  Builder b("walk");
  size_t each = 0;
  const loop::BufferId out = b.param("out", xs * ys * 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(xs * ys), 1, [&](Expr task) {
    const std::vector<Expr> found = code(b, task / ys, task % ys);
    each = found.size();
    for (size_t i = 0; i < each; ++i) b.store(out, found[i], task * 64 + static_cast<int64_t>(i) * 8, 8);
  });
  std::vector<uint8_t> bytes(static_cast<size_t>(xs * ys * 64));
  std::vector<std::span<uint8_t>> spans{bytes};
  loop::eval(b.finish(), spans, nullptr);
  std::vector<int64_t> result;
  for (int64_t task = 0; task < xs * ys; ++task)
    for (size_t i = 0; i < each; ++i) {
      int64_t x = 0;
      std::memcpy(&x, &bytes[static_cast<size_t>(task * 64) + i * 8], 8);
      result.push_back(x);
    }
  return result;
}

void check(const TileScheduler& walk) {
  SCOPED_TRACE(testing::Message() << walk.tiles << " tiles of " << walk.stages << " for " << walk.persistent_blocks
                                  << (walk.stream_k ? " stream-k" : " persistent"));
  const int64_t jobs = walk.jobs() + 1;  // one behind the last
  const auto job = numbers(walk.persistent_blocks, jobs, [&](Builder& b, Expr persistent_block, Expr number) {
    const TileScheduler::Job j = walk.job(b, persistent_block, number);
    return std::vector<Expr>{j.tile, j.from, j.to, j.before, j.partial_tile.exists() ? j.partial_tile : b.i64(-1)};
  });
  std::vector<std::vector<bool>> done(static_cast<size_t>(walk.tiles),
                                      std::vector<bool>(static_cast<size_t>(walk.stages)));
  std::map<int64_t, std::pair<int64_t, int64_t>> segments;  // place -> tile of the tail, persistent_block
  for (int64_t persistent_block = 0; persistent_block < walk.persistent_blocks; ++persistent_block) {
    int64_t before = 0;
    bool ended = false;
    for (int64_t number = 0; number < jobs; ++number) {
      const int64_t* j = &job[static_cast<size_t>((persistent_block * jobs + number) * 5)];
      ASSERT_LT(j[0], walk.tiles);
      ASSERT_GE(j[0], 0);
      if (j[1] == j[2]) {  // copies for the next job begin within the one before: none may lie between
        ended = true;
        continue;
      }
      ASSERT_FALSE(ended);
      ASSERT_EQ(j[3], before);
      before += j[2] - j[1];
      for (int64_t stage = j[1]; stage < j[2]; ++stage) {
        ASSERT_FALSE(done[static_cast<size_t>(j[0])][static_cast<size_t>(stage)]);
        done[static_cast<size_t>(j[0])][static_cast<size_t>(stage)] = true;
      }
      if (number < walk.waves()) {
        ASSERT_EQ(j[2] - j[1], walk.stages);
        continue;
      }
      ASSERT_GE(j[2] - j[1], TileScheduler::kLeastStages);
      ASSERT_LT(j[4], walk.partial_tiles());
      const int64_t tile = j[0] - walk.waves() * walk.persistent_blocks;
      ASSERT_TRUE(segments.emplace(j[4], std::pair{tile, persistent_block}).second);
    }
    ASSERT_EQ(job[static_cast<size_t>((persistent_block * jobs + jobs - 1) * 5 + 2)], 0) << "work behind the last";
  }
  for (const auto& tile : done)
    for (const bool stage : tile) ASSERT_TRUE(stage);
  if (walk.tail() == 0) return;

  // Who merges finds just these, in the order of K.
  const auto found = numbers(walk.tail(), walk.persistent_blocks, [&](Builder& b, Expr tile, Expr persistent_block) {
    const TileScheduler::PersistentBlocks w = walk.persistent_blocks_of(b, tile);
    return std::vector<Expr>{w.first, w.last, cast(walk.has_partial_tile(persistent_block, tile), Scalar::i64),
                             TileScheduler::partial_tile(persistent_block, tile)};
  });
  size_t merged = 0;
  for (int64_t tile = 0; tile < walk.tail(); ++tile)
    for (int64_t persistent_block = 0; persistent_block < walk.persistent_blocks; ++persistent_block) {
      const int64_t* f = &found[static_cast<size_t>((tile * walk.persistent_blocks + persistent_block) * 4)];
      const auto at = segments.find(f[3]);
      const bool mine = at != segments.end() && at->second == std::pair{tile, persistent_block};
      ASSERT_EQ(f[2] != 0, mine) << "tile " << tile << " walker " << persistent_block;
      if (!mine) continue;
      ASSERT_GE(persistent_block, f[0]);
      ASSERT_LT(persistent_block, f[1]);
      ++merged;
    }
  ASSERT_EQ(merged, segments.size());
}

TEST(TileScheduler, EveryStageOnce) {
  for (const int64_t persistent_blocks : {1, 3, 8})
    for (const int64_t tiles : {1, 2, 3, 5, 7, 8, 9, 15, 16, 20})
      for (const int64_t stages : {4, 8, 9, 16, 37, 64}) {
        check({tiles, stages, persistent_blocks, false});
        if (TileScheduler::can_stream_k(tiles, stages, persistent_blocks))
          check({tiles, stages, persistent_blocks, true});
      }
}

TEST(TileScheduler, ManyWalkers) {
  for (const int64_t tiles : {131, 132, 133, 200, 263, 352})
    for (const int64_t stages : {8, 32, 88, 256})
      if (TileScheduler::can_stream_k(tiles, stages, 132)) check({tiles, stages, 132, true});
  EXPECT_FALSE(TileScheduler::can_stream_k(132, 256, 132));
  EXPECT_FALSE(TileScheduler::can_stream_k(133, 256, 132));  // two stages for each
  EXPECT_TRUE(TileScheduler::can_stream_k(352, 256, 132));
}

// Every block has work of its own, whatever their number; a chiplet's blocks do what follows each other.
TEST(TileScheduler, ChipletsDoRunsOfTheWork) {
  for (const int chiplets : {1, 3, 8})
    for (const int64_t blocks : {1, 2, 7, 8, 9, 15, 16, 61, 64, 100, 1023}) {
      SCOPED_TRACE(testing::Message() << blocks << " blocks on " << chiplets);
      const auto work = numbers(blocks, 1, [&](Builder&, Expr block, Expr) {
        return std::vector<Expr>{synth::on_chiplets(block, blocks, chiplets)};
      });
      const std::set<int64_t> all(work.begin(), work.end());
      ASSERT_EQ(std::ssize(all), blocks);
      ASSERT_EQ(*all.begin(), 0);
      ASSERT_EQ(*all.rbegin(), blocks - 1);
      for (int64_t b = chiplets; b < blocks; ++b)
        ASSERT_EQ(work[static_cast<size_t>(b)], work[static_cast<size_t>(b - chiplets)] + 1);
    }
}

}  // namespace
}  // namespace lumen
