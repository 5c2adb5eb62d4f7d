// Needs: none. Every format of the library: kernels that encode and decode give the codec's bits, executed by the loop
// evaluator.
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

std::vector<FormatRef> formats() {
  return FormatLibrary::builtin().all();
}

std::vector<float> sample(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t kind = random() % 64;
    x.push_back(kind == 0   ? 0.0f
                : kind == 1 ? 37 * normal(random)
                : kind == 2 ? 1e-6f * normal(random)
                            : normal(random));
  }
  return x;
}

std::vector<std::pair<int64_t, int64_t>> shapes(const Format& f) {
  const int64_t unit = f.block;
  return {{1, unit}, {3, unit * 2}, {2, unit * 19}, {2, unit * (unit < 64 ? 64 / unit : 1)}};
}

void run(const synth::Synthesis& s, Blob& from, Blob& to, const machine::Machine& m) {
  std::vector<Blob> scratch;
  for (const int64_t bytes : s.scratch) scratch.emplace_back(static_cast<size_t>(bytes), 0xcd);
  for (const synth::Step& step : s.steps) {
    std::vector<std::span<uint8_t>> buffers;
    for (const synth::Argument& a : step.arguments)
      buffers.emplace_back(a.from == synth::Argument::From::scratch ? scratch.at(static_cast<size_t>(a.index))
                           : a.index == 0                           ? from
                                                                    : to);
    const loop::Status status = loop_evaluator(m)(step.kernel, buffers);
    EXPECT_EQ(status.code, 0);
  }
}

Blob as_blob(const std::vector<float>& x) {
  Blob out(x.size() * 4);
  std::memcpy(out.data(), x.data(), out.size());
  return out;
}

TEST(SynthCodec, EncodeGivesTheCodecsBytes) {
  EXPECT_GE(formats().size(), 25u);
  const auto m = machine::find_machine("x86-64-v3");
  for (const FormatRef& f : formats()) {
    if (!f->encodes()) continue;
    for (const auto& [rows, columns] : shapes(*f)) {
      const std::vector<float> x = sample(rows * columns, 7);
      const Blob want = encode(*f, x, rows, columns);
      Blob from = as_blob(x), got(want.size(), 0xcd);
      run(synth::synthesize_encode(*f, rows, columns, *m), from, got, *m);
      size_t at = 0;
      while (at < want.size() && want[at] == got[at]) ++at;
      EXPECT_EQ(at, want.size()) << f->name << " " << rows << "x" << columns << ": byte " << at;
    }
  }
}

TEST(SynthCodec, DecodeGivesTheCodecsValues) {
  for (const char* name : {"x86-64-v3", "avx512"}) {
    const auto m = machine::find_machine(name);
    std::mt19937 random(3);
    for (const FormatRef& f : formats()) {
      for (const auto& [rows, columns] : shapes(*f)) {
        for (const bool noise : {false, true}) {  // any bits are a legal blob
          if (!noise && !f->encodes()) continue;
          Blob blob(static_cast<size_t>(blob_layout(*f, rows, columns).total));
          if (noise) {
            for (uint8_t& byte : blob) byte = static_cast<uint8_t>(random());
          } else {
            blob = encode(*f, sample(rows * columns, 11), rows, columns);
          }
          const std::vector<float> want = decode(*f, blob, rows, columns);
          Blob got(want.size() * 4, 0xcd);
          run(synth::synthesize_decode(*f, rows, columns, *m), blob, got, *m);
          int bad = 0;
          for (size_t i = 0; i < want.size() && bad < 3; ++i) {
            float x = 0;
            std::memcpy(&x, &got[i * 4], 4);
            const bool same = std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(want[i]) ||
                              (std::isnan(x) && std::isnan(want[i]));
            if (!same) {
              ++bad;
              ADD_FAILURE() << f->name << (noise ? " noise " : " ") << rows << "x" << columns << " element " << i
                            << ": " << x << ", not " << want[i];
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lumen::test
