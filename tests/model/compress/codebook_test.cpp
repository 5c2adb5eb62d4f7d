// needs: none. Tables trained on samples: what is linear is found, errors fall to what was measured elsewhere, results
// are formats that read back from their texts.
#include "model/compress/codebook.h"

#include "model/arch/family/source.h"
#include "number/codec/codec.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 2, .machine = nullptr});
  return e;
}

FormatRef format(const std::string& name) {
  return test_library()->formats().get(name);
}

std::vector<float> normal_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(count);
  for (float& v : x) v = normal(random);
  return x;
}

double squared_error(const FormatRef& f, const std::vector<float>& x) {
  const auto columns = static_cast<int64_t>(x.size());
  const std::vector<float> y = engine().decode(f, engine().encode(f, x.data(), 1, columns).data(), 1, columns);
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(double(x[i]) - y[i], 2);
    size += std::pow(double(x[i]), 2);
  }
  return error / size;
}

TEST(TrainTables, FindsWhatDecodeIsLinearIn) {
  const std::vector<float> x = normal_values(32 * 256, 1);
  const auto tables = [&](const std::string& name) {
    return train_tables(engine(), format(name), x, {}, {1, 0}).tables;
  };
  EXPECT_EQ(tables("iq4_xs"), std::vector<std::string>{"iq4_values"});
  EXPECT_EQ(tables("iq2_xxs"), std::vector<std::string>{"iq2_magnitudes"});  // not its grid, nor its signs
  EXPECT_EQ(tables("tq1_0"), std::vector<std::string>{});
  EXPECT_FALSE(may_train_tables(*format("q4_k")));
  EXPECT_FALSE(may_train_tables(*format("int8")));
}

// Its tables were made for normal values, where little is gained; of others more, on values it has not seen as well.
TEST(TrainTables, FourTables) {
  const auto roots = [](uint32_t seed) {
    std::vector<float> x = normal_values(256 * 256, seed);
    for (float& v : x) v = std::copysign(std::sqrt(std::abs(v)), v);
    return x;
  };
  const TrainedTables normal = train_tables(engine(), format("lx4"), normal_values(256 * 256, 2), {});
  EXPECT_LE(normal.after, normal.before);
  EXPECT_GT(normal.after, 0.95 * normal.before);
  const TrainedTables t = train_tables(engine(), format("lx4"), roots(2), {});
  ASSERT_TRUE(t.format);
  EXPECT_LT(t.after, 0.8 * t.before);
  const std::vector<float> others = roots(3);
  EXPECT_LT(squared_error(t.format, others), 0.85 * squared_error(format("lx4"), others));
}

TEST(TrainTables, TablesOfNumbersAndTablesUnderOneScale) {
  std::vector<float> x = normal_values(256 * 256, 4);
  for (float& v : x) v = v * v * v;  // far from what the tables were made for
  for (const char* name : {"kmeans3_g64", "nf4", "iq4_nl"}) {
    const TrainedTables t = train_tables(engine(), format(name), x, {}, {6, 1e-3});
    ASSERT_TRUE(t.format) << name;
    EXPECT_LT(t.after, 0.97 * t.before) << name;
    EXPECT_NEAR(squared_error(t.format, x), t.after, 1e-6) << name;
    EXPECT_FALSE(t.format->gguf_type) << name;
    EXPECT_TRUE(t.format->name.starts_with(std::string(name) + "_")) << name;
  }
}

TEST(TrainTables, ImportanceMovesTables) {
  const std::vector<float> x = normal_values(128 * 256, 5);
  std::vector<float> w(x.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::fabs(x[i]) < 0.01f ? 1 : 1e-3f;  // what is small counts
  const auto tables = [&](std::span<const float> importance) {
    const TrainedTables t = train_tables(engine(), format("kmeans3_g128"), x, importance, {4, 0});
    return t.format ? t.format->tables[0].values : std::vector<double>{};
  };
  const auto alike = tables({}), small = tables(w);
  ASSERT_EQ(alike.size(), 8u);
  ASSERT_EQ(small.size(), 8u);
  EXPECT_LT((small[4] - small[3]) / (small[7] - small[0]), 0.9 * (alike[4] - alike[3]) / (alike[7] - alike[0]));
}

// The text is the format; and another engine, with another number of threads, makes the same.
TEST(TrainTables, TheTextCarriesTheTables) {
  const std::vector<float> x = normal_values(64 * 256, 6);
  const TrainedTables t = train_tables(engine(), format("kmeans2_g64"), x, {}, {3, 0});
  ASSERT_TRUE(t.format);
  const auto source = std::make_shared<Source>(Source{"carried", t.format->source_text});
  const std::vector<FormatRef> read = arch::formats_of_text(FormatLibrary(), source);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0]->hash, t.format->hash);
  const auto columns = static_cast<int64_t>(x.size());
  EXPECT_EQ(encode(*read[0], x, 1, columns), engine().encode(t.format, x.data(), 1, columns));
  run::Engine alone(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  EXPECT_EQ(train_tables(alone, format("kmeans2_g64"), x, {}, {3, 0}).format->hash, t.format->hash);
}

}  // namespace
}  // namespace lumen::model::compress
