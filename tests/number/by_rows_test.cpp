// Needs none. A format's fields of tiles or tensors, moved to rows.
#include "number/library/by_rows.h"

#include "formats_of_tests.h"
#include "number/codec/codec.h"

namespace lumen {
namespace {

TEST(ByRows, ScalesOfATensorBecomeThoseOfRows) {
  for (const char* name : {"int8", "fp8_tensor", "fp8_tile", "nvfp4_tensor"}) {
    const FormatRef f = builtin_formats().get(name), rows = by_rows(f);
    ASSERT_TRUE(rows) << name;
    EXPECT_NE(rows->hash, f->hash) << name;
    EXPECT_GT(rows->row_bytes, 0) << name;
    EXPECT_EQ(rows->tile_bytes + rows->tensor_bytes, 0) << name;
    EXPECT_EQ(rows->block, f->block) << name;
    EXPECT_EQ(by_rows(rows), rows) << name;
    // A row alone is a tensor of one row, or a tile where it is no longer than one.
    const std::vector<float> x = gaussian(128, 3);
    EXPECT_EQ(decode(*rows, encode(*rows, x, 1, 128), 1, 128), decode(*f, encode(*f, x, 1, 128), 1, 128)) << name;
  }
}

TEST(ByRows, OthersStayOrHaveNone) {
  EXPECT_EQ(by_rows(builtin_formats().get("q8_0")), builtin_formats().get("q8_0"));
  EXPECT_EQ(by_rows(builtin_formats().get("fp8_row")), builtin_formats().get("fp8_row"));
  const FormatRef both = format_of(R"(
format both : block 2, tile 4 4 {
  row r    : f32
  tensor t : f32
  q        : i8[2]
  decode(i) = q[i] * r * t
  fit tensor(x) { t = 1.0 }
  fit row(x) { r = max(j) abs(x[j]) }
  code(v) = v
}
)");
  EXPECT_EQ(by_rows(both), nullptr);
  const FormatLibrary instances = library_of(R"(
format of(bits) : block 4, tile 8 8 {
  tile s : f16
  q      : i<bits>[4]
  decode(i) = q[i] * s
  fit tile(x) { s = (max(j) abs(x[j])) / ((1 << (bits - 1)) - 1) }
  code(v) = rint(v * recip(s))
}
format five : gguf 99, doc "of a pattern" = of(bits = 5)
)");
  const FormatRef five = by_rows(instances.get("five"));
  ASSERT_TRUE(five);
  EXPECT_EQ(five->row_bytes, 2);
  EXPECT_FALSE(five->gguf_type);
}

}  // namespace
}  // namespace lumen
