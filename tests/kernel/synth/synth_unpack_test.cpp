// Needs: none. The pieces unpack hands to dots: codes of the code field equal the layout's, and scale * q + offset
// equals decode, for every affine format of the library, at every position of a block.
#include <cmath>
#include <cstring>

#include "kernel/synth/unpack/unpack.h"
#include "number/facts/facts.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

constexpr int kLanes = 8;

TEST(SynthUnpack, AffinePiecesMakeTheValue) {
  const auto m = machine::find_machine("x86-64-v3");
  int affine = 0;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    const FormatFacts facts = facts_of(*f);
    if (!facts.affine || f->block % kLanes != 0 || !f->encodes()) continue;
    ++affine;
    const int64_t rows = 2, columns = f->block * 3, blocks = rows * 3;
    std::mt19937 random(9);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> x(static_cast<size_t>(rows * columns));
    for (float& v : x) v = normal(random);
    Blob blob = encode(*f, x, rows, columns);
    const std::vector<float> want = decode(*f, blob, rows, columns);

    loop::Builder b("unpack");
    const auto from = b.param("blob", static_cast<int64_t>(blob.size()), false),
               to = b.param("out", rows * columns * 4, true);
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(blocks), 1, [&](loop::Expr block) {
      synth::Unpack u(b, *f, from, rows, columns);
      u.enter_tensor();
      u.enter_block(block);
      for (int64_t p = 0; p < f->block; p += kLanes) {
        const auto q = cast(u.expression(facts.affine->q, p, kLanes, true), Scalar::f32);
        auto v = q * u.expression(facts.affine->scale, p, kLanes, true);
        if (facts.affine->offset) v = v + u.expression(*facts.affine->offset, p, kLanes, true);
        b.store(to, v, (block * f->block + p) * 4, 4);
      }
    });
    const loop::Kernel k = b.finish();
    Blob out(want.size() * 4);
    const std::vector<std::span<uint8_t>> buffers{blob, out};
    loop_evaluator (*m)(k, buffers);
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      float v = 0;
      std::memcpy(&v, &out[i * 4], 4);
      worst = std::max(worst, std::fabs(static_cast<double>(v) - want[i]) / (1e-6 + std::fabs(want[i])));
    }
    EXPECT_LT(worst, 1e-4) << f->name;
  }
  EXPECT_GE(affine, 5);
}

// Integers of any elements in any order, in bytes, by the rows of a machine.
void check_bytes(const Format& f, const RoutineExpr& q, const machine::Machine& m, int lanes, uint32_t seed) {
  const int64_t blocks = std::max<int64_t>(2, lanes / f.block), columns = f.block * blocks;
  std::mt19937 random(seed);
  Blob blob(static_cast<size_t>(blob_layout(f, 1, columns).total));
  for (uint8_t& byte : blob) byte = static_cast<uint8_t>(random());
  std::vector<int64_t> elements(static_cast<size_t>(columns));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<int64_t>(i);
  if (seed % 2 != 0) std::shuffle(elements.begin(), elements.end(), random);
  elements.resize(static_cast<size_t>(lanes));
  loop::Builder b("bytes");
  const auto from = b.param("blob", static_cast<int64_t>(blob.size()), false), to = b.param("out", lanes * 5, true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
    synth::Unpack u(b, f, from, 1, columns);
    u.enter_tensor();
    u.enter_row(b.i64(0));
    u.enter_block(b.i64(0), blocks);
    b.store(to, cast(u.expression(q, elements, true), Scalar::i32), b.i64(0));
    b.store(to, u.bytes(q, elements, m), b.i64(lanes * 4));
  });
  const loop::Kernel k = b.finish();
  Blob out(static_cast<size_t>(lanes * 5));
  const std::vector<std::span<uint8_t>> buffers{blob, out};
  loop_evaluator(m)(k, buffers);
  int bad = 0;
  for (size_t i = 0; i < elements.size(); ++i) bad += out[4 * i] != out[4 * elements.size() + i];
  EXPECT_EQ(bad, 0) << f.name << " " << m.name << " seed " << seed;
}

TEST(SynthUnpack, BytesAreTheIntegers) {
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    const FormatFacts facts = facts_of(*f);
    if (!facts.affine) continue;
    for (uint32_t seed : {1, 2}) {
      check_bytes(*f, facts.affine->q, *machine::find_machine("avx512-vbmi"), 64, seed);
      check_bytes(*f, facts.affine->q, *machine::find_machine("x86-64-v3"), 32, seed);
      check_bytes(*f, facts.affine->q, *machine::find_machine("neon"), 16, seed);
      check_bytes(*f, facts.affine->q, *machine::find_machine("sm_90a"), 16, seed);
    }
  }
}

// Numbers of whole vectors as f32: `m` where rows of it may be used.
std::vector<float> numbers_of(const Format& f, const Blob& blob, int64_t columns, const machine::Machine* m) {
  loop::Builder b("numbers");
  const auto from = b.param("blob", static_cast<int64_t>(blob.size()), false), to = b.param("out", columns * 4, true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
    synth::Unpack u(b, f, from, 1, columns);
    if (m) {
      u.use(*m);
      u.make_of_bytes();
    }
    u.enter_tensor();
    u.enter_row(b.i64(0));
    u.enter_block(b.i64(0), columns / f.block);
    for (int64_t i = 0; i < columns; i += kLanes) b.store(to, u.values(i, kLanes), b.i64(i * 4), 4);
  });
  Blob in = blob, out(static_cast<size_t>(columns * 4));
  const std::vector<std::span<uint8_t>> buffers{in, out};
  loop_evaluator(m ? *m : *machine::find_machine("x86-64-v3"))(b.finish(), buffers);
  std::vector<float> numbers(static_cast<size_t>(columns));
  std::memcpy(numbers.data(), out.data(), out.size());
  return numbers;
}

// Codes, tables of codes, and scales that are codes themselves, made of bytes: the same numbers.
TEST(SynthUnpack, NumbersOfBytesAreTheNumbers) {
  const auto m = machine::find_machine("sm_90a");
  int by_bytes = 0, looked_up = 0;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!synth::decodes_by_bytes(*f, *m) || f->block % kLanes != 0 || f->tile_bytes > 0) continue;
    const int64_t columns = f->block * 2;
    Blob blob(static_cast<size_t>(blob_layout(*f, 1, columns).total));
    std::mt19937 random(11);
    for (uint8_t& byte : blob) byte = static_cast<uint8_t>(random());
    const std::vector<float> got = numbers_of(*f, blob, columns, m.get()),
                             want = numbers_of(*f, blob, columns, nullptr);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) << f->name << " at " << i;
    ++by_bytes;
    looked_up += !f->tables.empty();
  }
  EXPECT_GT(by_bytes, 10);
  EXPECT_GT(looked_up, 0);
}

TEST(SynthUnpack, CodesAreTheLayouts) {
  const auto m = machine::find_machine("x86-64-v3");
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (f->code_field < 0 || f->block % kLanes != 0) continue;
    const Field& field = f->fields[static_cast<size_t>(f->code_field)];
    if (field.type.bits > 32) continue;
    const int64_t rows = 1, columns = f->block * 2;
    std::mt19937 random(4);
    Blob blob(static_cast<size_t>(blob_layout(*f, rows, columns).total));
    for (uint8_t& byte : blob) byte = static_cast<uint8_t>(random());
    loop::Builder b("codes");
    const auto from = b.param("blob", static_cast<int64_t>(blob.size()), false), to = b.param("out", columns * 4, true);
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(2), 1, [&](loop::Expr block) {
      synth::Unpack u(b, *f, from, rows, columns);
      u.enter_block(block);
      for (int64_t p = 0; p < f->block; p += kLanes) {
        auto code = u.codes(f->code_field, p, kLanes, field.type.bits <= 8 && p % (2 * kLanes) == 0);
        if (b.type(code).lanes == 1) code = b.splat(code, kLanes);
        b.store(to, cast(code, Scalar::u32), (block * f->block + p) * 4, 4);
      }
    });
    const loop::Kernel k = b.finish();
    Blob out(static_cast<size_t>(columns * 4));
    const std::vector<std::span<uint8_t>> buffers{blob, out};
    loop_evaluator (*m)(k, buffers);
    int bad = 0;
    for (int64_t i = 0; i < columns; ++i) {
      uint32_t code = 0;
      std::memcpy(&code, &out[static_cast<size_t>(i * 4)], 4);
      bad += code != field.layout.read(&blob[static_cast<size_t>(i / f->block * f->block_bytes)], i % f->block);
    }
    EXPECT_EQ(bad, 0) << f->name;
  }
}

}  // namespace
}  // namespace lumen::test
