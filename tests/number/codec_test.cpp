// Needs none. Levels, supplied fields, refusals and properties of the exact codec.
#include "number/codec/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "formats_of_tests.h"

namespace lumen {
namespace {

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, power = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    error += (static_cast<double>(x[k]) - y[k]) * (static_cast<double>(x[k]) - y[k]);
    power += static_cast<double>(x[k]) * x[k];
  }
  return error / power;
}

TEST(Codec, SectionsLieAtMultiplesOf64) {
  const FormatRef f = format_of(
      "format t : block 4, tile 8 8 {\nq : u4[4]\nrow r : f32\ntile s : f16\ntensor g : f32\ndecode(i) = q[i]\n}");
  const BlobLayout l = blob_layout(*f, 10, 20);
  EXPECT_EQ(l.row_stride, 10);
  EXPECT_EQ(l.data_bytes, 100);
  EXPECT_EQ(l.section[1], 128);
  EXPECT_EQ(l.section[2], 192);
  EXPECT_EQ(l.section[3], 256);
  EXPECT_EQ(l.tile_columns, 3);
  EXPECT_EQ(l.total, 320);
  EXPECT_DOUBLE_EQ(f->bits_per_weight(10, 20), 8.0 * (100 + 40 + 12 + 4) / 200);
  EXPECT_DOUBLE_EQ(f->bits_per_weight(), 4 + 16.0 / 64);
  EXPECT_THROW(blob_layout(*f, 10, 21), Error);
  EXPECT_THROW(blob_layout(*f, int64_t{1} << 40, int64_t{1} << 40), Error);
  EXPECT_THROW(blob_layout(*f, -1, 4), Error);
}

TEST(Codec, EveryLevelGetsItsOwnValues) {
  const FormatRef f = format_of(R"(
format t : block 2, tile 2 4 {
  q : f32[2]
  b : f32
  row r : f32
  tile s : f32
  tensor g : f32
  decode(i) = q[i] + b + r + s + g
  fit tensor(x) { g = sum(j) x[j] }
  fit tile(x)   { s = 10 * (sum(j) x[j]) + g * 0 }
  fit row(x)    { r = 100 * len(x) + 0 * g }
  fit(x)        { b = 1000 * s + r }
  code(v)       = v
}
)");
  // 3 x 6: tiles of 2 x 4, the last ones cut.
  std::vector<float> x;
  for (int k = 0; k < 18; ++k) x.push_back(static_cast<float>(k));
  const auto y = decode(*f, encode(*f, x, 3, 6), 3, 6);
  const double total = 153, row = 600;
  auto tile_sum = [&](int r0, int c0) {
    double sum = 0;
    for (int r = r0; r < std::min(3, r0 + 2); ++r) {
      for (int c = c0; c < std::min(6, c0 + 4); ++c) sum += r * 6 + c;
    }
    return 10 * sum;
  };
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 6; ++c) {
      const double s = tile_sum(r / 2 * 2, c / 4 * 4);
      EXPECT_EQ(y[static_cast<size_t>(6 * r + c)], static_cast<float>(r * 6 + c + 1000 * s + row + row + s + total))
          << r << " " << c;
    }
  }
}

TEST(Codec, SuppliedFieldsReplaceTheFit) {
  const FormatRef f = builtin_formats().get("q4_0");
  const std::vector<float> x = gaussian(64, 4);
  const SuppliedField d[] = {{0, {0.25, 0.5}}};
  const auto y = decode(*f, encode(*f, x, 1, 64, d), 1, 64);
  for (size_t k = 0; k < 64; ++k) {
    const float s = k < 32 ? 0.25F : 0.5F;
    EXPECT_EQ(y[k], s * (std::clamp(std::trunc(x[k] / s + 8.5F), 0.0F, 15.0F) - 8));
  }
  // Codes may be supplied as well: a strategy's own rounding.
  SuppliedField codes{1, {}};
  for (int k = 0; k < 64; ++k) codes.values.push_back(k % 16);
  const SuppliedField both[] = {d[0], codes};
  const auto z = decode(*f, encode(*f, x, 1, 64, both), 1, 64);
  for (size_t k = 0; k < 64; ++k) EXPECT_EQ(z[k], (k < 32 ? 0.25F : 0.5F) * (static_cast<float>(k % 16) - 8));
  const SuppliedField wrong[] = {{0, {0.25}}};
  EXPECT_THROW(encode(*f, x, 1, 64, wrong), Error);
  // One of two fitted fields: the other one is fitted still.
  const FormatRef g = builtin_formats().get("q4_k");
  const std::vector<float> w = gaussian(256, 5);
  const auto plain = encode(*g, w, 1, 256);
  const SuppliedField zero[] = {{1, {0.0}}};
  const auto changed = encode(*g, w, 1, 256, zero);
  EXPECT_EQ(std::vector<uint8_t>(plain.begin(), plain.begin() + 2),
            std::vector<uint8_t>(changed.begin(), changed.begin() + 2));
  EXPECT_EQ(changed[2] | changed[3], 0);
}

// What a block's fit leaves in an array is not there for the next one, nor in any kernel.
TEST(Codec, ArraysBeginAsZeros) {
  const FormatRef f = format_of(R"(
format t : block 2 {
  s : f32
  q : i8[2]
  decode(i) = s * q[i]
  fit(x) {
    var seen[4]
    if x[0] > 0 { seen[3] = x[0] }
    s = seen[3] + 1
  }
  code(v) = v * recip(s)
})");
  const std::vector<float> x = {7, 1, -3, 1, 4, 0};
  for (const int64_t rows : {1, 3}) {
    const std::vector<uint8_t> blob = encode(*f, x, rows, 6 / rows);
    const Layout& layout = f->fields[0].layout;
    std::vector<double> scales;
    for (int64_t b = 0; b < 3; ++b)
      scales.push_back(field_decode(f->fields[0].type, layout.read(blob.data() + b * f->block_bytes, 0)));
    EXPECT_EQ(scales, (std::vector<double>{8, 1, 5})) << rows;
  }
}

TEST(Codec, RefusesWhatCannotBeStored) {
  const FormatLibrary& library = builtin_formats();
  std::vector<float> x(512, 1.0F);
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const char* name : {"q4_0", "int8_row", "fp8_row", "nf4", "mxfp4", "fp4_e2m1"}) {
    for (float bad : {nan, infinity, -infinity}) {
      x[256 + 37] = bad;
      try {
        encode(*library.get(name), x, 2, 256);
        ADD_FAILURE() << name;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("row 1, column 37"), std::string::npos) << e.what();
      }
    }
  }
  x[256 + 37] = nan;
  for (const char* name : {"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz"}) {
    const FormatRef f = library.get(name);
    EXPECT_TRUE(std::isnan(decode(*f, encode(*f, x, 2, 256), 2, 256)[256 + 37])) << name;
  }
  x[256 + 37] = infinity;
  for (const char* name : {"f32", "f16", "bf16", "fp8_e5m2"}) {
    const FormatRef f = library.get(name);
    EXPECT_EQ(decode(*f, encode(*f, x, 2, 256), 2, 256)[256 + 37], infinity) << name;
  }
  EXPECT_THROW(encode(*library.get("fp8_e4m3"), x, 2, 256), Error);
  EXPECT_THROW(encode(*library.get("q4_0"), x, 2, 255), Error);
  const FormatRef reader = format_of("format t : block 2 { q : u8[2]\n decode(i) = q[i] }");
  EXPECT_THROW(encode(*reader, x, 2, 256), Error);
  const FormatRef scaled = format_of("format t : block 2 { s : f32\n q : u8[2]\n decode(i) = s * q[i]\n code(v) = v }");
  EXPECT_THROW(encode(*scaled, std::vector<float>(4, 1.0F), 1, 4), Error);
  EXPECT_THROW(decode(*reader, std::vector<uint8_t>(3), 1, 4), Error);
}

TEST(Codec, ZerosAndEmptyTensors) {
  for (const FormatRef& f : builtin_formats().all()) {
    if (!f->encodes()) continue;
    EXPECT_TRUE(encode(*f, {}, 0, 256).empty() || f->tensor_bytes > 0) << f->name;
    const std::vector<float> zeros(512, 0.0F);
    const auto y = decode(*f, encode(*f, zeros, 2, 256), 2, 256);
    const double tiny = f->name == "e8m0" || f->name.starts_with("mx") ? 1e-37 : 0;
    for (float v : y) ASSERT_LE(std::fabs(v), tiny) << f->name;
  }
}

// The split into threads and single elements does not show.
TEST(Codec, SameBitsHoweverItIsRead) {
  for (const char* name : {"q4_k", "q6_k", "fp8_tile", "microscale", "int8"}) {
    const FormatRef f = builtin_formats().get(name);
    const int64_t rows = 150, columns = 256;
    const std::vector<float> x = gaussian(static_cast<size_t>(rows * columns), 8);
    const auto blob = encode(*f, x, rows, columns);
    EXPECT_EQ(blob, encode(*f, x, rows, columns));
    const auto y = decode(*f, blob, rows, columns);
    for (int64_t k = 0; k < 50; ++k) {
      const int64_t row = k * 7 % rows, column = k * 101 % columns;
      EXPECT_EQ(decode_at(*f, blob, rows, columns, row, column), y[static_cast<size_t>(row * columns + column)])
          << name;
    }
    if (f->tensor_bytes + f->tile_bytes > 0) continue;
    const auto first = encode(*f, std::span(x).first(static_cast<size_t>(columns)), 1, columns);
    EXPECT_TRUE(std::equal(first.begin(), first.begin() + blob_layout(*f, 1, columns).data_bytes, blob.begin()))
        << name;
  }
}

// Error bounds on Gaussian data by bits: nothing in the library is much worse than its width allows.
TEST(Codec, ErrorsMatchTheWidths) {
  const std::vector<float> x = gaussian(16 * 512, 12);
  for (const FormatRef& f : builtin_formats().all()) {
    if (!f->encodes()) continue;
    if (f->name == "e8m0") continue;  // it has no sign
    // Element types without a scale: numbers as large as they are for.
    if (f->name == "fp4_e2m1" || f->name == "int16_plain") {
      const bool whole = f->name == "int16_plain";
      std::vector<float> larger = x;
      for (float& v : larger) v *= whole ? 4096 : 1.5F;
      const double lost = relative_error(larger, decode(*f, encode(*f, larger, 16, 512), 16, 512));
      EXPECT_GT(lost, 0) << f->name;
      // A step of 1 loses 1 / 12 of its square.
      EXPECT_LT(lost, whole ? 1.1 / 12 / (4096.0 * 4096) : 14 * std::pow(4.0, -4)) << f->name;
      continue;
    }
    const double bits = f->bits_per_weight();
    const double error = relative_error(x, decode(*f, encode(*f, x, 16, 512), 16, 512));
    EXPECT_LT(error, 14 * std::pow(4.0, -std::min(bits, 5.5))) << f->name << " " << bits;
  }
}

// Formats whose scale is the largest magnitude (or a power of two) encode what they decoded to the same values.
RC_GTEST_PROP(Codec, EncodingIsIdempotent, ()) {
  const std::string name = *rc::gen::elementOf(std::vector<std::string>{
      "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "int8_row", "fp8_row", "q8_0", "q4_0", "nf4", "mxfp4",
      "mxfp8_e4m3", "mxfp6_e2m3", "tq2_0", "tq1_0", "q1_0", "int4_g32", "int8"});
  const FormatRef f = builtin_formats().get(name);
  std::vector<float> x = gaussian(512, *rc::gen::arbitrary<uint64_t>());
  const float scale = std::ldexp(1.0F, *rc::gen::inRange(-8, 7));
  for (float& v : x) v *= scale;
  const auto y = decode(*f, encode(*f, x, 2, 256), 2, 256);
  const auto z = decode(*f, encode(*f, y, 2, 256), 2, 256);
  double largest = 0;
  for (float v : y) largest = std::max(largest, static_cast<double>(std::fabs(v)));
  // Scales are stored rounded, so the second scale may differ from the first in its last place.
  for (size_t k = 0; k < y.size(); ++k) RC_ASSERT(std::fabs(y[k] - z[k]) <= 2e-3 * largest);
}

// Random fields and a random affine decode are a legal format, and decode what the layout says.
RC_GTEST_PROP(Codec, RandomFormatsDecodeByTheirLayout, ()) {
  const int block = 8 * *rc::gen::inRange(1, 9), bits = *rc::gen::inRange(1, 17),
            sub = *rc::gen::elementOf(std::vector<int>{2, 4, 8});
  const int scale_bits = *rc::gen::inRange(1, 9), shift = *rc::gen::inRange(0, 1 << bits),
            base = *rc::gen::inRange(0, 5);
  const int cut = bits > 1 ? *rc::gen::inRange(1, bits) : 0;
  const std::string layout = cut == 0
                                 ? fmt::format("at byte {}", base + 2)
                                 : fmt::format("at bits 0..{} byte {}, bits {}..{}", cut - 1, base + 2, cut, bits - 1);
  const std::string text = fmt::format(
      "format t : block {} {{\nd : f16 at byte 0\nq : u{}[{}] {}\ns : u{}[{}]\nrow r : i8\ndecode(i) = d * s[i / {}] * "
      "(q[i] - {}) + r\n}}",
      block, bits, block, layout, scale_bits, block / sub, sub, shift);
  const FormatRef f = format_of(text);
  const auto blob = random_blob(*f, 2, 2 * block, *rc::gen::arbitrary<uint64_t>());
  const auto y = decode(*f, blob, 2, 2 * block);
  const BlobLayout l = blob_layout(*f, 2, 2 * block);
  for (int64_t k = 0; k < 4 * block; ++k) {
    const uint8_t* record = blob.data() + k / block * f->block_bytes;
    auto field = [&](size_t slot, int64_t i) {
      return static_cast<float>(field_decode(f->fields[slot].type, f->fields[slot].layout.read(record, i)));
    };
    const auto r = static_cast<float>(static_cast<int8_t>(blob[static_cast<size_t>(l.section[1] + k / (2 * block))]));
    const int64_t i = k % block;
    const float expected = field(0, 0) * field(2, i / sub) * (field(1, i) - static_cast<float>(shift)) + r;
    const float got = y[static_cast<size_t>(k)];
    RC_ASSERT(got == expected || (std::isnan(got) && std::isnan(expected)));
  }
}

}  // namespace
}  // namespace lumen
