// needs: none. Pages belong to as many sequences as hold them, are copied before one of them writes, and windows let
// them go.
#include "model/infer/session/page_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lumen::model::infer {
namespace {

using Copies = std::vector<std::pair<int32_t, int32_t>>;

TEST(PagePool, TheLowestFreePageComesFirst) {
  PagePool pool(4, 16);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  pool.hold(1);
  pool.drop(1);
  pool.drop(0);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_EQ(pool.take(), 0);
  pool.drop(1);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 3);
  EXPECT_EQ(pool.free(), 0);
}

TEST(PageTable, WritingWhereOthersReadTakesACopy) {
  PagePool pool(8, 4);
  PageTable a, b;
  Copies copies;
  const auto copy = [&](int32_t from, int32_t to) { copies.emplace_back(from, to); };
  a.make_room(pool, 0, 10, copy);  // pages 0, 1, 2
  EXPECT_EQ(pool.free(), 5);
  b.share(pool, a, 10);
  EXPECT_EQ(pool.free(), 5);
  EXPECT_EQ(b.missing(pool, 10, 13), 2);
  b.make_room(pool, 10, 13, copy);
  EXPECT_EQ(copies, (Copies{{2, 3}}));
  EXPECT_EQ(std::vector<int32_t>(b.pages().begin(), b.pages().end()), (std::vector<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(a.missing(pool, 10, 12), 0);  // its own again
  a.make_room(pool, 10, 12, copy);
  EXPECT_EQ(copies.size(), 1U);
  a.shorten(pool, 0);
  EXPECT_EQ(pool.free(), 4);
  b.shorten(pool, 8);
  EXPECT_EQ(pool.free(), 6);
  b.make_room(pool, 8, 9, copy);  // a page that begins with it needs no copy
  EXPECT_EQ(copies.size(), 1U);
}

TEST(PageTable, WindowsLetPagesGo) {
  PagePool pool(8, 4);
  PageTable a(5);
  const auto copy = [](int32_t, int32_t) { FAIL(); };
  a.make_room(pool, 0, 12, copy);
  a.forget(pool, 11);  // sees 7 and what follows
  EXPECT_EQ(a.pages()[0], PageTable::kGone);
  EXPECT_NE(a.pages()[1], PageTable::kGone);
  EXPECT_EQ(a.kept(pool, 8), 8);  // 4 .. 7 are there
  EXPECT_EQ(a.kept(pool, 7), 0);  // 3 is not
  EXPECT_EQ(a.kept(pool, 0), 0);
  PageTable b(5);
  b.share(pool, a, 9);
  a.shorten(pool, 0);
  EXPECT_EQ(pool.free(), 6);
  b.shorten(pool, 0);
  EXPECT_EQ(pool.free(), 8);
}

// Whatever sequences do, each finds in its pages what it wrote, and no page is lost.
TEST(PageTable, RandomSequencesKeepWhatTheyWrote) {
  std::mt19937 random(7);
  for (const int64_t window : {0, 6}) {
    PagePool pool(40, 4);
    std::map<int64_t, int> memory;  // by place
    struct Sequence {
      PageTable table;
      std::vector<int> written;
    };
    std::vector<Sequence> sequences;
    const auto copy = [&](int32_t from, int32_t to) {
      for (int64_t i = 0; i < 4; ++i) memory[to * 4 + i] = memory[from * 4 + i];
    };
    for (int round = 0; round < 3000; ++round) {
      const uint32_t what = random() % 8;
      if (sequences.empty() || (what == 0 && sequences.size() < 6)) {
        sequences.push_back({PageTable(window), {}});
        if (sequences.size() > 1 && random() % 2) {
          const Sequence& from = sequences[random() % (sequences.size() - 1)];
          const auto count = from.table.kept(pool, static_cast<int64_t>(random() % (from.written.size() + 1)));
          sequences.back().table.share(pool, from.table, count);
          sequences.back().table.forget(pool, count);
          sequences.back().written.assign(from.written.begin(), from.written.begin() + count);
        }
        continue;
      }
      Sequence& t = sequences[random() % sequences.size()];
      auto length = static_cast<int64_t>(t.written.size());
      if (what == 1) {
        t.table.shorten(pool, 0);
        std::swap(t, sequences.back());
        sequences.pop_back();
        continue;
      }
      if (what == 2) {
        length = t.table.kept(pool, static_cast<int64_t>(random() % static_cast<uint32_t>(length + 1)));
        t.table.shorten(pool, length);
        t.written.resize(static_cast<size_t>(length));
        continue;
      }
      const int64_t upto = length + 1 + static_cast<int64_t>(random() % 7);
      if (t.table.missing(pool, length, upto) > pool.free()) continue;
      t.table.make_room(pool, length, upto, copy);
      for (int64_t at = length; at < upto; ++at) {
        t.written.push_back(static_cast<int>(random()));
        memory[t.table.pages()[static_cast<size_t>(at / 4)] * 4 + at % 4] = t.written.back();
      }
      t.table.forget(pool, upto);
      for (const Sequence& any : sequences) {
        const auto end = static_cast<int64_t>(any.written.size());
        for (int64_t at = window > 0 ? std::max<int64_t>(0, end - window + 1) : 0; at < end; ++at) {
          const int32_t page = any.table.pages()[static_cast<size_t>(at / 4)];
          ASSERT_NE(page, PageTable::kGone);
          ASSERT_EQ(memory.at(page * 4 + at % 4), any.written[static_cast<size_t>(at)]);
        }
      }
    }
    for (Sequence& t : sequences) t.table.shorten(pool, 0);
    EXPECT_EQ(pool.free(), 40);
  }
}

}  // namespace
}  // namespace lumen::model::infer
