// Needs: cpu. The ladder of formats: for every format of the library, codec == graph eval == loop eval == machine code,
// for encode (with importance, too), decode, gathered rows and fake quantization, on shapes of one row, prime rows and
// several blocks. Nobody writes these cases: a new format gets them by existing.
#include "machine_code.h"
#include "number/facts/limits.h"

namespace lumen::test {
namespace {

std::vector<FormatRef> formats() {
  return FormatLibrary::builtin().all();
}

std::vector<std::pair<int64_t, int64_t>> shapes(const Format& f) {
  const int64_t unit = f.block;
  return {{1, unit}, {7, unit * 3}, {2, unit * (unit < 64 ? 64 / unit + 1 : 1)}};
}

// Of costly searches fewer blocks: their codec and the evaluator of loops take a minute for what kernels do in a
// millisecond.
std::vector<std::pair<int64_t, int64_t>> shapes_of_search(const Format& f) {
  constexpr double kCostly = 1e6;
  if (f.weighted_fit[0] && operations_of(*f.weighted_fit[0]) > kCostly) return {{2, f.block * 2}};
  return shapes(f);
}

bool same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

class Formats : public ::testing::TestWithParam<std::string> {
 protected:
  // Both rungs: the loop evaluator and machine code. Returns what each writes. `beside`: value 2.
  static std::vector<Blob> rungs(const synth::Synthesis& s, const Blob& from, size_t bytes, const machine::Machine& m,
                                 const Blob& beside = {}) {
    std::vector<loop::Kernel> kernels;
    for (const synth::Step& step : s.steps) kernels.push_back(step.kernel);
    const emit::LoadedModule module = load(kernels, m);
    std::vector<Blob> out;
    for (const bool machine : {false, true}) {
      Aligned in(from), to(Blob(bytes, 0xcd)), also(beside);
      std::vector<std::unique_ptr<Aligned>> scratch;
      for (const int64_t size : s.scratch)
        scratch.push_back(std::make_unique<Aligned>(Blob(static_cast<size_t>(size), 0xcd)));
      for (const synth::Step& step : s.steps) {
        std::vector<std::span<uint8_t>> buffers;
        for (const synth::Argument& a : step.arguments)
          buffers.push_back(a.from == synth::Argument::From::scratch ? scratch[static_cast<size_t>(a.index)]->span()
                            : a.index == 0                           ? in.span()
                            : a.index == 1                           ? to.span()
                                                                     : also.span());
        const loop::Status status =
            machine ? call(module, step.kernel, buffers) : loop_evaluator(m)(step.kernel, buffers);
        EXPECT_EQ(status.code, 0);
      }
      out.push_back(to.blob());
    }
    return out;
  }
};

TEST_P(Formats, EncodeDecode) {
  const FormatRef f = format_named(GetParam());
  const machine::MachineRef m = machine::native_machine();
  std::mt19937 random(5);
  for (const auto& [rows, columns] : shapes(*f)) {
    std::vector<float> x;
    std::normal_distribution<float> normal(0, 1);
    for (int64_t i = 0; i < rows * columns; ++i) x.push_back(random() % 32 == 0 ? 0.0f : normal(random));
    Blob blob(static_cast<size_t>(blob_layout(*f, rows, columns).total));
    if (f->encodes()) {
      blob = encode(*f, x, rows, columns);
      Blob from(x.size() * 4);
      std::memcpy(from.data(), x.data(), from.size());
      const std::vector<Blob> got = rungs(synth::synthesize_encode(*f, rows, columns, *m), from, blob.size(), *m);
      EXPECT_EQ(got[0], blob) << f->name << " encode, loop eval " << rows << "x" << columns;
      EXPECT_EQ(got[1], blob) << f->name << " encode, machine " << rows << "x" << columns;
    } else {
      for (uint8_t& byte : blob) byte = static_cast<uint8_t>(random());
    }
    const std::vector<float> want = decode(*f, blob, rows, columns);
    const std::vector<Blob> got = rungs(synth::synthesize_decode(*f, rows, columns, *m), blob, want.size() * 4, *m);
    for (int rung = 0; rung < 2; ++rung) {
      int bad = 0;
      for (size_t i = 0; i < want.size() && bad < 3; ++i) {
        float v = 0;
        std::memcpy(&v, &got[static_cast<size_t>(rung)][i * 4], 4);
        if (same_float(v, want[i])) continue;
        ++bad;
        ADD_FAILURE() << f->name << " decode, " << (rung ? "machine " : "loop eval ") << rows << "x" << columns
                      << " element " << i << ": " << v << ", not " << want[i];
      }
    }
  }
}

// Importance of columns, zeros among them, and of elements. Formats without fit(x, w) do not look at it.
TEST_P(Formats, EncodeByImportance) {
  const FormatRef f = format_named(GetParam());
  if (!f->encodes()) GTEST_SKIP() << "only decodes";
  const machine::MachineRef m = machine::native_machine();
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 1);
  const auto bytes_of = [](const std::vector<float>& x) {
    Blob out(x.size() * 4);
    std::memcpy(out.data(), x.data(), out.size());
    return out;
  };
  for (const auto& [rows, columns] : shapes_of_search(*f))
    for (const auto kind : {synth::Importance::columns, synth::Importance::elements}) {
      std::vector<float> x, importance;
      for (int64_t i = 0; i < rows * columns; ++i) x.push_back(random() % 32 == 0 ? 0.0f : normal(random));
      const int64_t count = kind == synth::Importance::columns ? columns : rows * columns;
      for (int64_t i = 0; i < count; ++i) importance.push_back(random() % 8 == 0 ? 0.0f : std::exp(2 * normal(random)));
      const Blob want = encode_weighted(*f, x, rows, columns, importance);
      if (!f->weighs()) {
        EXPECT_EQ(want, encode(*f, x, rows, columns)) << f->name;
        continue;
      }
      const std::vector<Blob> got = rungs(synth::synthesize_encode(*f, rows, columns, *m, kind), bytes_of(x),
                                          want.size(), *m, bytes_of(importance));
      EXPECT_EQ(got[0], want) << f->name << " loop eval " << rows << "x" << columns;
      EXPECT_EQ(got[1], want) << f->name << " machine " << rows << "x" << columns;
    }
}

TEST_P(Formats, GatherAndFakeQuantization) {
  const FormatRef f = format_named(GetParam());
  if (!f->encodes()) GTEST_SKIP() << "only decodes";
  const machine::MachineRef m = machine::native_machine();
  const Execute execute = machine_code(*m);
  const int64_t columns = f->block * (f->block < 64 ? 64 / f->block + 1 : 1);
  G t;
  const graph::ValueId table = t.in("table", {5, columns}, f);
  t.out(t.b.gather(t.decoded(table), t.in("index", {3}, Scalar::i32)));
  const graph::ValueId x = t.in("x", {3, columns});
  t.out(t.b.add(t.decoded(t.b.cast(x, {Scalar::f32, f})), x));
  check(t.g, {.tolerance = 0, .limits = {{"index", 5}}, .machines = {m->name}}, &execute);
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const FormatRef& f : formats()) out.push_back(f->name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Ladder, Formats, ::testing::ValuesIn(names()), [](const auto& row) { return row.param; });

}  // namespace
}  // namespace lumen::test
