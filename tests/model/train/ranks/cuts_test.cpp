// needs: none. Parts of parameters: all rows are somebody's once, begin where lines of memory do, and go out of whole
// tensors and into them again.
#include "model/train/ranks/cuts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/model/tiny.h"

namespace lumen::model::train {
namespace {

std::vector<arch::Parameter> trained(const arch::Model& m) {
  std::vector<arch::Parameter> out;
  for (const arch::Parameter& p : m.parameters)
    if (!p.frozen) out.push_back(p);
  return out;
}

recipe::OptimizerSettings named(const std::string& name) {
  recipe::OptimizerSettings out;
  out.name = name;
  return out;
}

TEST(Cuts, EveryRowIsOneRanks) {
  const arch::Model m = tiny_model();
  for (const char* name : {"adamw", "lion", "muon", "adafactor"})
    for (const int ranks : {1, 2, 3, 4, 7}) {
      const recipe::Optimizer optimizer(m.family->library(), named(name));
      const std::vector<Cut> cuts = cut_parameters(trained(m), optimizer, ranks);
      ASSERT_EQ(cuts.size(), trained(m).size());
      std::vector<int64_t> load(ranks, 0);
      for (const Cut& cut : cuts) {
        EXPECT_EQ(cut.rows * cut.columns, cut.whole.count());
        EXPECT_EQ(cut.first.front(), 0);
        EXPECT_EQ(cut.first.back(), cut.rows);
        for (int r = 0; r < ranks; ++r) {
          EXPECT_GE(cut.rows_of(r), 0);
          load[r] += cut.rows_of(r) * cut.columns;
          if (cut.rows_of(r) == 0) continue;
          EXPECT_EQ(cut.first[r] * cut.columns * 2 % 64, 0) << cut.whole.name;
          EXPECT_EQ(cut.part(r).count(), cut.rows_of(r) * cut.columns);
        }
      }
      EXPECT_EQ(std::accumulate(load.begin(), load.end(), int64_t{0}),
                std::accumulate(cuts.begin(), cuts.end(), int64_t{0},
                                [](int64_t sum, const Cut& cut) { return sum + cut.whole.count(); }));
    }
}

// What an optimizer computes of a matrix as a whole is not cut.
TEST(Cuts, WholeMatricesStayWhole) {
  const arch::Model m = tiny_model();
  const auto in_rows = [&](const char* name) {
    int64_t count = 0;
    for (const Cut& cut : cut_parameters(trained(m), recipe::Optimizer(m.family->library(), named(name)), 2))
      count += cut.in_rows;
    return count;
  };
  EXPECT_EQ(in_rows("adamw"), std::ssize(trained(m)));
  EXPECT_EQ(in_rows("adafactor"), 0);
  EXPECT_GT(in_rows("muon"), 0);
  EXPECT_LT(in_rows("muon"), std::ssize(trained(m)));
}

TEST(Cuts, PartsGoOutAndIn) {
  const arch::Model m = tiny_model();
  const recipe::Optimizer optimizer(m.family->library(), named("adamw"));
  for (const char* format : {"", "q8_0", "mxfp8_e4m3"})
    for (const Cut& cut : cut_parameters(trained(m), optimizer, 3)) {
      graph::Type type{cut.whole.shape, {Scalar::f32, nullptr}};
      if (*format) type.element.format = m.family->library().formats().get(format);
      if (*format && (cut.whole.is_vector() || cut.columns % type.element.format->block != 0)) continue;
      std::vector<uint8_t> bytes(graph::byte_size(type)), again(bytes.size());
      std::iota(bytes.begin(), bytes.end(), 1);
      if (*format) std::fill(bytes.begin() + cut.rows * (bytes.size() / cut.rows), bytes.end(), 0);
      const BlobLayout layout = *format ? blob_layout(*type.element.format, cut.rows, cut.columns)
                                        : BlobLayout{.data_bytes = std::ssize(bytes)};
      std::fill(bytes.begin() + layout.data_bytes, bytes.end(), 0);  // padding is nobody's
      for (int r = 0; r < 3; ++r)
        if (cut.rows_of(r) > 0) place_part(cut, type, part_bytes(cut, type, bytes, r), r, again);
      EXPECT_EQ(again, bytes) << cut.whole.name << " " << format;
    }
}

}  // namespace
}  // namespace lumen::model::train
