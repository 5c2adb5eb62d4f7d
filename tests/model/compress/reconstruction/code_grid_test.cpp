// needs: cpu. Neighbours under stored fields are the format's own numbers, and what is stored decodes to exactly them,
// for every format that has codes of elements.
#include "model/compress/reconstruction/code_grid.h"

#include <gtest/gtest.h>

#include "number/codec/pattern.h"
#include "tests/model/compress/reconstruction/reconstruction_case.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kRows = 5, kColumns = 512;

TEST(CodeGrid, EveryFormatStoresWhatWasChosen) {
  run::Engine& e = reconstruction_engine();
  int seen = 0;
  for (const FormatRef& f : test_library()->formats().all()) {
    ElementCodes codes;
    std::string why;
    if (!find_element_codes(*f, &codes, &why)) continue;
    SCOPED_TRACE(f->name);
    ++seen;
    const std::vector<float> w = pattern_values(kRows * kColumns, 7);
    const std::vector<uint8_t> blob = e.encode(f, w.data(), kRows, kColumns);
    const std::vector<float> plain = e.decode(f, blob.data(), kRows, kColumns);
    CodeGrid grid(e, f, kRows, kColumns);
    grid.read(blob);
    // What is stored stays, byte for byte but for codes of the same number.
    EXPECT_EQ(e.decode(f, grid.store(plain).data(), kRows, kColumns), plain);
    Neighbours near;
    grid.find(w, &near);
    std::vector<float> mixed(w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      ASSERT_LE(near.low[i], near.up[i]);
      if (near.low[i] < near.up[i]) {
        ASSERT_LE(near.low[i], w[i]);
        ASSERT_LT(w[i], near.up[i]);
      }
      // The format's own choice is one of the two, where it rounds to nearest under these fields.
      mixed[i] = (i * 2654435761U) >> 16 & 1 ? near.up[i] : near.low[i];
    }
    EXPECT_EQ(e.decode(f, grid.store(mixed).data(), kRows, kColumns), mixed);
  }
  EXPECT_GT(seen, 50);
}

TEST(CodeGrid, NeighboursOfKnownFields) {
  run::Engine& e = reconstruction_engine();
  const FormatRef f = reconstruction_format("q4_0");
  std::vector<float> w(32, 0);
  w[0] = -8;  // d = 1
  w[1] = 2.25F, w[2] = 7.5F, w[3] = -0.75F, w[4] = 3;
  CodeGrid grid(e, f, 1, 32);
  grid.read(e.encode(f, w.data(), 1, 32));
  EXPECT_EQ(grid.least(0), -8);
  EXPECT_EQ(grid.largest(0), 7);
  Neighbours near;
  grid.find(w, &near);
  EXPECT_EQ(near.low[1], 2);
  EXPECT_EQ(near.up[1], 3);
  EXPECT_EQ(near.share[1], 0.25F);
  EXPECT_EQ(near.low[2], 7) << "beyond the range both are its end";
  EXPECT_EQ(near.up[2], 7);
  EXPECT_EQ(near.share[3], 0.25F);
  EXPECT_EQ(near.low[4], 3);
  EXPECT_EQ(near.share[4], 0);
}

}  // namespace
}  // namespace lumen::model::compress
