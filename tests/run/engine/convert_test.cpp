// Needs: cpu. Quantizing and dequantizing with compiled kernels equals the codec, for every format there is.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "run/engine/panels/panels.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

std::vector<float> sample(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(random);
  for (size_t i = 0; i < x.size(); i += 61) x[i] = 0;
  for (size_t i = 7; i < x.size(); i += 83) x[i] *= 20;
  return x;
}

class EveryFormat : public testing::TestWithParam<std::string> {};

TEST_P(EveryFormat, ConvertsAsTheCodecDoes) {
  const FormatRef f = FormatLibrary::builtin().get(GetParam());
  Engine engine(options());
  const int64_t rows = 3, columns = std::lcm<int64_t>(f->block, 32) * 2;
  const std::vector<float> x = sample(rows * columns, 4);
  std::vector<uint8_t> blob;
  if (f->encodes()) {
    blob = engine.encode(f, x.data(), rows, columns);
    EXPECT_EQ(blob, encode(*f, x, rows, columns));
  } else {
    std::mt19937_64 random(5);
    blob.resize(static_cast<size_t>(blob_layout(*f, rows, columns).total));
    for (uint8_t& b : blob) b = static_cast<uint8_t>(random() & 0x3f);
  }
  const std::vector<float> got = engine.decode(f, blob.data(), rows, columns);
  const std::vector<float> want = decode(*f, blob, rows, columns);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::memcmp(&got[i], &want[i], 4), 0) << "element " << i << ": " << got[i] << " and " << want[i];
  }
}

// A place that is used again gives what a fresh conversion gives.
TEST_P(EveryFormat, PanelsConvertAsTheWholeDoes) {
  const FormatRef f = FormatLibrary::builtin().get(GetParam());
  Engine engine(options());
  const int64_t rows = 3, columns = std::lcm<int64_t>(f->block, 32) * 2;
  const auto decoder = engine.decode_panels(f, rows, columns);
  Panels::Place from = decoder->place();
  if (!f->encodes()) return;
  const auto encoder = engine.encode_panels(f, rows, columns, f->weighs());
  Panels::Place to = encoder->place();
  const std::vector<float> importance(static_cast<size_t>(columns), 2);
  for (const uint64_t seed : {4, 5, 6}) {
    const std::vector<float> x = sample(rows * columns, seed);
    std::copy(x.begin(), x.end(), to.values());
    if (f->weighs()) std::copy(importance.begin(), importance.end(), to.importance());
    to.convert();
    const std::vector<uint8_t> blob = engine.encode(f, x.data(), rows, columns, importance);
    ASSERT_EQ(std::memcmp(blob.data(), to.blob(), blob.size()), 0);
    std::copy(blob.begin(), blob.end(), from.blob());
    from.convert();
    const std::vector<float> want = engine.decode(f, blob.data(), rows, columns);
    ASSERT_EQ(std::memcmp(want.data(), from.values(), want.size() * 4), 0);
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const FormatRef& f : FormatLibrary::builtin().all()) out.push_back(f->name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Convert, EveryFormat, testing::ValuesIn(names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace lumen::run
