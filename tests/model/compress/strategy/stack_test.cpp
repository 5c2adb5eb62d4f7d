// needs: cpu. Matrices of a stack taken out of its blob and put back, with fields at every level.
#include "model/compress/strategy/stack.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen::model::compress {
namespace {

TEST(BlobStack, MatricesDecodeToTheirPartOfTheWhole) {
  const FormatLibrary library = FormatLibrary::builtin();
  const int64_t matrices = 3, rows = 128, columns = 256, size = rows * columns;
  std::vector<float> x(matrices * size);
  for (size_t k = 0; k < x.size(); ++k) x[k] = std::sin(0.37F * k) * (1 + k % 5);
  int shared = 0;
  for (const char* name : {"q4_k", "int8_row", "fp8_tensor", "fp8_tile", "nvfp4_tensor"}) {
    const FormatRef f = library.get(name);
    const std::vector<uint8_t> all = encode(*f, x, matrices * rows, columns);
    const std::vector<float> values = decode(*f, all, matrices * rows, columns);
    const BlobStack stack(*f, matrices, rows, columns);
    ASSERT_EQ(stack.bytes(), std::ssize(all));
    shared += stack.shares_fields();
    std::vector<uint8_t> again(all.size());
    if (f->tensor_bytes > 0) {
      const int64_t at = blob_layout(*f, matrices * rows, columns).section[3];
      std::copy_n(all.begin() + at, f->tensor_bytes, again.begin() + at);
    }
    for (int64_t m = 0; m < matrices; ++m) {
      const std::vector<uint8_t> one = stack.matrix(all, m);
      EXPECT_EQ(decode(*f, one, rows, columns),
                std::vector<float>(values.begin() + m * size, values.begin() + (m + 1) * size))
          << name;
      stack.put(again, m, one);
    }
    EXPECT_EQ(again, all) << name;
  }
  EXPECT_EQ(shared, 3);
}

TEST(BlobStack, TilesOverTwoMatricesAreRefused) {
  const FormatLibrary library = FormatLibrary::builtin();
  EXPECT_THROW(BlobStack(*library.get("fp8_tile"), 2, 100, 256), Error);
  EXPECT_NO_THROW(BlobStack(*library.get("fp8_tile"), 1, 100, 256));
}

}  // namespace
}  // namespace lumen::model::compress
