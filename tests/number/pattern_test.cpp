// needs: none. Patterns are blobs of their format: decoded, they repeat rows of finite numbers of the right size.
#include "number/codec/pattern.h"

#include <gtest/gtest.h>

#include <cmath>

#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen {
namespace {

TEST(Pattern, EveryFormatHoldsFiniteRowsThatRepeat) {
  constexpr int64_t kColumns = 512;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->encodes()) continue;
    const int64_t rows = f->tile_bytes > 0 ? 3 * 8 * f->tile_rows : 21;
    std::vector<uint8_t> blob(static_cast<size_t>(blob_layout(*f, rows, kColumns).total));
    Pattern(*f, kColumns).fill(blob.data(), rows);
    const std::vector<float> x = decode(*f, blob, rows, kColumns);
    double squares = 0;
    for (const float v : x) {
      ASSERT_TRUE(std::isfinite(v)) << f->name;
      squares += static_cast<double>(v) * v;
    }
    const double deviation = std::sqrt(squares / static_cast<double>(x.size()));
    // Formats without a scale may have nothing near so small a number but zero.
    EXPECT_GT(deviation, f->fields.size() > 1 ? 0.005 : -1.0) << f->name;
    EXPECT_LT(deviation, 0.08) << f->name;
    if (f->tile_bytes == 0 && f->tensor_bytes == 0) {
      for (int64_t c = 0; c < kColumns; ++c)
        EXPECT_EQ(x[static_cast<size_t>(c)], x[static_cast<size_t>(16 * kColumns + c)]) << f->name << " " << c;
    }
  }
}

}  // namespace
}  // namespace lumen
