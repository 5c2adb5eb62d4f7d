// Needs: cpu. Formats that users might write and nobody ships, from the corners of the language: codec == loop eval ==
// machine code for encode and decode, and products that agree with the codec's numbers.
#include "lang/parser.h"
#include "machine_code.h"
#include "number/facts/limits.h"
#include "run/engine/format_check.h"
#include "tests/run/kept_kernels.h"

namespace lumen::test {
namespace {

struct Text {
  const char* name;
  const char* text;
};

// NOLINTBEGIN
const Text kTexts[] = {
    {"divides_by_codes", R"(
format t : block 16 {
  d : f16
  a : i4[16]
  b : i4[16]
  decode(i) = d * (a[i] / b[i] + 3 * (a[i] % b[i]))
  fit(x) {
    d = max(j) abs(x[j])
    for j in 0..16 {
      a[j] = clamp(rint(x[j]), -8, 7)
      b[j] = int(clamp(rint(x[j] * 8.0), -8, 7)) / int(clamp(rint(x[j]), -1, 1)) % int(rint(x[j]))
    }
  }
}
)"},
    {"words_of_64_bits", R"(
format t : block 24 {
  a : u5
  w : u64 at byte 0 bit 5
  v : u59 at byte 9 bit 3
  z : i61
  s : i64
  decode(i) {
    let low = int((w >> (2 * i)) & 3)
    let other = int((v >> (2 * i)) & 3)
    let signed = int((z >> i) & 1) + int((s >> (2 * i)) & 1)
    return float(low) * 4.0 + other - signed + a * 0.25 + float(w) * 0.00000000000000000001 + float(z) * 0.0000000000000000001
  }
  fit(x) {
    a = clamp(rint(abs(x[0]) * 8.0), 0, 31)
    w = abs(x[1]) * 9.0e18
    v = 1000000000000000000
    z = x[2] * 1.0e18
    s = x[3] * 3.0e18 + float(int(w >> 40))
  }
}
)"},
    {"digits", R"(
table tens : i32 = [1, 10, 100]
format t : block 96 {
  d : f16
  q : u10[32]
  decode(i) = d * (q[i / 3] / tens[i % 3] % 10 - 5)
  fit(x) {
    let s = (max(j) abs(x[j])) / 4
    d = s
    let r = recip(s)
    for b in 0..32 { q[b] = sum(t in 0..3) (int(clamp(rint(x[3 * b + t] * r), -5, 4)) + 5) * tens[t] }
  }
}
)"},
    {"sparse", R"(
format t : block 32 {
  d : f16
  p : u2[16]
  v : i4[16]
  decode(i) {
    let a = 2 * (i / 4)
    let first = if p[a] == i % 4 then v[a] else 0
    let second = if p[a + 1] == i % 4 then v[a + 1] else 0
    return d * (first + second)
  }
  fit(x) {
    let s = (max(j) abs(x[j])) / 7
    d = s
    let r = recip(s)
    for g in 0..8 {
      var best = 0
      for k in 1..4 { if abs(x[4 * g + k]) > abs(x[4 * g + best]) { best = k } }
      var next = if best == 0 then 1 else 0
      for k in 0..4 { if k != best { if abs(x[4 * g + k]) > abs(x[4 * g + next]) { next = k } } }
      p[2 * g] = best
      p[2 * g + 1] = next
      v[2 * g] = clamp(rint(x[4 * g + best] * r), -8, 7)
      v[2 * g + 1] = clamp(rint(x[4 * g + next] * r), -8, 7)
    }
  }
}
)"},
    {"exponents", R"(
format t : block 32 {
  d : f16
  q : u6[32]
  decode(i) = d * (if q[i] >= 32 then -1.0 else 1.0) * exp((q[i] % 32) * 0.15 - 4.0)
  fit(x) { let s = max(j) abs(x[j]);  d = s }
  code(v) = clamp(rint((log(max(abs(v * recip(s)), 0.0001)) + 4.0) / 0.15), 0, 31) + (if v < 0 then 32 else 0)
}
)"},
    {"codebook_of_a_row", R"(
format t : block 8 {
  row book : f16[8]
  q : u3[8]
  decode(i) = book[q[i]]
  fit row(x) {
    let top = max(j) abs(x[j])
    for k in 0..8 { book[k] = top * ((k - 3.5) / 3.5) }
  }
  fit(x) {
    for j in 0..8 {
      var best = 0
      for k in 1..8 { if abs(x[j] - book[k]) < abs(x[j] - book[best]) { best = k } }
      q[j] = best
    }
  }
}
)"},
    {"codebook_of_a_tile", R"(
format t : block 4, tile 2 8 {
  tile book : f16[4]
  q : u2[4]
  decode(i) = book[q[i]]
  fit tile(x) {
    let top = max(j) abs(x[j])
    for k in 0..4 { book[k] = top * ((k - 1.5) / 1.5) }
  }
  fit(x) {
    for j in 0..4 {
      var best = 0
      for k in 1..4 { if abs(x[j] - book[k]) < abs(x[j] - book[best]) { best = k } }
      q[j] = best
    }
  }
}
)"},
    {"narrow_tiles", R"(
format t : block 2, tile 3 4 {
  tile s : f32
  q : i8[2]
  decode(i) = q[i] * s
  fit tile(x) { s = (max(j) abs(x[j])) / 127 }
  code(v) = rint(v * recip(s))
}
)"},
    {"least_float", R"(
format t : block 1 {
  v : float<8, 0, 150, finite>
  decode(i) = v
  fit(x) { v = x[0] }
}
)"},
    {"large_block", R"(
format t : block 2048 {
  d : f16
  q : u4[2048]
  decode(i) = d * (q[i] - 8)
  fit(x) { let s = x[argmax(j) abs(x[j])] / -8;  d = s }
  code(v) = clamp(trunc(v * recip(s) + 8.5), 0, 15)
}
)"},
};
// NOLINTEND

FormatRef format_of_text(const Text& t) {
  FormatLibrary library;
  library.add(lang::parse_file(std::make_shared<Source>(Source{t.name, t.text})));
  return library.get("t");
}

class Texts : public ::testing::TestWithParam<Text> {};

std::vector<Blob> rungs(const synth::Synthesis& s, const Blob& from, size_t bytes, const machine::Machine& m) {
  std::vector<loop::Kernel> kernels;
  for (const synth::Step& step : s.steps) kernels.push_back(step.kernel);
  const emit::LoadedModule module = load(kernels, m);
  std::vector<Blob> out;
  for (const bool machine : {false, true}) {
    Aligned in(from), to(Blob(bytes, 0xcd));
    for (const synth::Step& step : s.steps) {
      std::vector<std::span<uint8_t>> buffers;
      for (const synth::Argument& a : step.arguments) buffers.push_back(a.index == 0 ? in.span() : to.span());
      EXPECT_EQ((machine ? call(module, step.kernel, buffers) : loop_evaluator(m)(step.kernel, buffers)).code, 0);
    }
    out.push_back(to.blob());
  }
  return out;
}

// Random bits as well: decode is a function of every one.
TEST_P(Texts, CodecEvaluatorAndMachineAgree) {
  const FormatRef f = format_of_text(GetParam());
  const machine::MachineRef m = machine::native_machine();
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  const int64_t rows = 3, columns = f->block * std::max<int64_t>(1, 48 / f->block);
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (float& v : x) v = normal(random);
  Blob from(x.size() * 4);
  std::memcpy(from.data(), x.data(), from.size());
  const Blob encoded = encode(*f, x, rows, columns);
  const auto got = rungs(synth::synthesize_encode(*f, rows, columns, *m), from, encoded.size(), *m);
  EXPECT_EQ(got[0], encoded) << "encode, loop eval";
  EXPECT_EQ(got[1], encoded) << "encode, machine";
  Blob noise(encoded.size());
  for (uint8_t& b : noise) b = static_cast<uint8_t>(random());
  for (const Blob& blob : {encoded, noise}) {
    const std::vector<float> want = decode(*f, blob, rows, columns);
    const auto read = rungs(synth::synthesize_decode(*f, rows, columns, *m), blob, want.size() * 4, *m);
    for (int rung = 0; rung < 2; ++rung) {
      int bad = 0;
      for (size_t i = 0; i < want.size() && bad < 3; ++i) {
        float v = 0;
        std::memcpy(&v, &read[static_cast<size_t>(rung)][i * 4], 4);
        if (std::bit_cast<uint32_t>(v) == std::bit_cast<uint32_t>(want[i]) || (std::isnan(v) && std::isnan(want[i])))
          continue;
        ++bad;
        ADD_FAILURE() << (rung ? "machine" : "loop eval") << ", element " << i << ": " << v << ", not " << want[i];
      }
    }
  }
}

TEST_P(Texts, ProductsAgree) {
  static run::Engine engine({.cache_folder = kept_kernels(), .threads = 2, .machine = nullptr});
  const FormatRef f = format_of_text(GetParam());
  for (const run::CheckLine& line : run::check_kernels(engine, f))
    EXPECT_TRUE(line.ok) << line.what << ": " << line.detail;
}

INSTANTIATE_TEST_SUITE_P(Ladder, Texts, ::testing::ValuesIn(kTexts), [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace lumen::test
