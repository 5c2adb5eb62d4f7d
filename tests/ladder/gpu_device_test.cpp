// Needs: a GPU (--device cuda or hip; skipped without one), or an AMD chip that the interpreter of tests/amd is. The
// ladder's rung on the card: scalar operations bit for bit, formats equal to the codec, random graphs and attentions,
// dots equal to the evaluator, matrix instructions by their fragments, blocks that exchange.
#include "../emit/scalar_cases.h"
#include "dot_cases.h"
#ifdef LUMEN_AMD_INTERPRETER
#include "tests/amd/gpu_code.h"
#else
#include "gpu_code.h"
#endif
#include "graph_cases.h"
#include "kernel/loop/expand.h"
#include "number/codec/codec.h"
#include "tests/kernel/synth/attention/attend_cases.h"
#include "tests/kernel/synth/coded_cases.h"
#include "tests/kernel/synth/codes_cases.h"
#include "tests/kernel/synth/scatter_cases.h"
#include "wave_case.h"

namespace lumen::test {
namespace {

// On cards everything; in the interpreter, which takes a thousand times as long, every n-th case, or all of them with
// LUMEN_AMD_LONG=1.
size_t every(size_t n) {
  const char* all = std::getenv("LUMEN_AMD_LONG");
  return !std::getenv("LUMEN_STAND_IN_AMD") || (all && *all && *all != '0') ? 1 : n;
}

// The element, its operands and both results, in bits.
std::string first_difference(const emit::Case& c, const Blob& got, const Blob& want) {
  const auto hex = [](const Blob& b, size_t count, size_t element) {
    std::string text;
    const size_t bytes = b.size() / count;
    for (size_t i = bytes; i-- > 0;) text += fmt::format("{:02x}", b[element * bytes + i]);
    return text;
  };
  const auto count = want.size() / static_cast<size_t>(scalar_bytes(c.result));
  for (size_t e = 0; e < count; ++e) {
    if (hex(got, count, e) == hex(want, count, e)) continue;
    std::string text = fmt::format(" element {}:", e);
    for (size_t i = 0; i + 1 < c.buffers.size(); ++i) text += " " + hex(c.buffers[i], count, e);
    return text + " give " + hex(got, count, e) + ", not " + hex(want, count, e);
  }
  return "";
}

class LadderGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    gpu_ = GpuCode::open();
    if (!gpu_) GTEST_SKIP() << "no such GPU, or no driver";
  }
  const machine::Machine& machine() const { return gpu_->machine(); }
  Check at(double tolerance) const { return {.tolerance = tolerance, .machines = {machine().name}}; }

  std::vector<Blob> run(const loop::Kernel& k, std::vector<Blob> buffers) {
    std::vector<std::span<uint8_t>> spans(buffers.begin(), buffers.end());
    EXPECT_EQ(gpu_->run(k, spans).code, 0);
    return buffers;
  }

  // This test has shown it.
  void shown(const std::string& kind) const {
    verified(machine().name, kind, std::getenv("LUMEN_STAND_IN_AMD") ? "interpreted" : "hardware");
  }

  GpuCode* gpu_ = nullptr;
};

TEST_F(LadderGpu, ScalarOperationsHaveTheEvaluatorsBits) {
  for (int op = 0; op < static_cast<int>(ScalarOp::input); op += static_cast<int>(every(3))) {
    for (const int lanes : {1, 4}) {
      std::vector<emit::Case> cases = emit::cases_of(static_cast<ScalarOp>(op), lanes);
      std::vector<loop::Kernel> kernels;
      for (const emit::Case& c : cases) kernels.push_back(c.kernel);
      if (kernels.empty()) continue;
      gpu_->prepare(kernels);
      for (const emit::Case& c : cases) {
        Blob want = emit::run_eval(c.kernel, c.buffers, nullptr).back(), got = run(c.kernel, c.buffers).back();
        emit::quiet(want, c.result);
        emit::quiet(got, c.result);
        EXPECT_EQ(got, want) << c.kernel.name << first_difference(c, got, want);
      }
    }
  }
  shown("scalars");
}

TEST_F(LadderGpu, FormatsEqualTheCodec) {
  std::mt19937 random(5);
  size_t number = 0;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (number++ % every(9) != 0) continue;
    const int64_t rows = 7, columns = f->block * 3;
    std::vector<float> x;
    std::normal_distribution<float> normal(0, 1);
    for (int64_t i = 0; i < rows * columns; ++i) x.push_back(random() % 32 == 0 ? 0.0F : normal(random));
    const auto steps = [&](const synth::Synthesis& s, const Blob& from, size_t bytes) {
      std::vector<Blob> values{from, Blob(bytes, 0xcd)}, scratch;
      for (const int64_t size : s.scratch) scratch.emplace_back(static_cast<size_t>(size), 0xcd);
      for (const synth::Step& step : s.steps) {
        std::vector<std::span<uint8_t>> spans;
        for (const synth::Argument& a : step.arguments)
          spans.emplace_back(a.from == synth::Argument::From::scratch ? scratch[static_cast<size_t>(a.index)]
                                                                      : values[a.index == 0 ? 0 : 1]);
        EXPECT_EQ(gpu_->run(step.kernel, spans).code, 0);
      }
      return values[1];
    };
    Blob blob(static_cast<size_t>(blob_layout(*f, rows, columns).total));
    if (f->encodes()) {
      blob = encode(*f, x, rows, columns);
      Blob from(x.size() * 4);
      std::memcpy(from.data(), x.data(), from.size());
      EXPECT_EQ(steps(synth::synthesize_encode(*f, rows, columns, machine()), from, blob.size()), blob)
          << f->name << " encode";
    } else {
      for (uint8_t& byte : blob) byte = static_cast<uint8_t>(random());
    }
    const std::vector<float> decoded = decode(*f, blob, rows, columns);
    Blob want(decoded.size() * 4);
    std::memcpy(want.data(), decoded.data(), want.size());
    Blob got = steps(synth::synthesize_decode(*f, rows, columns, machine()), blob, want.size());
    emit::quiet(want, Scalar::f32);
    emit::quiet(got, Scalar::f32);
    EXPECT_EQ(got, want) << f->name << " decode";
  }
  for (const char* kind : {"encode", "decode"}) shown(kind);
}

TEST_F(LadderGpu, RandomGraphs) {
  const Execute execute = gpu_->execute();
  for (uint32_t seed = 1; seed <= 40; seed += static_cast<uint32_t>(every(4))) {
    const G t = random_graph(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + graph::print(t.g));
    Check c = at(1e-4);
    c.seed = seed;
    check(t.g, c, &execute);
  }
}

TEST_F(LadderGpu, Attentions) {
  const Execute execute = gpu_->execute();
  for (const auto& [queries, keys, depth] : kAttentions) check(attention(queries, keys, depth).g, at(1e-5), &execute);
}

TEST_F(LadderGpu, ScattersByRows) {
  const Execute execute = gpu_->execute();
  std::vector<ScatterCase> cases = scatter_cases();
  cases.push_back({"an embedding's gradient", {3, 1024}, {256}, 5000, 0.5, Scalar::f32, false, 1e-4});
  for (const ScatterCase& c : cases) {
    SCOPED_TRACE(c.name);
    Check how = at(c.tolerance);
    how.given["index"] = indices_of(c);
    check(scatter_graph(c).g, how, &execute);
  }
}

TEST_F(LadderGpu, CodesOfMapsEqualTheCodec) {
  const Execute execute = gpu_->execute();
  std::vector<CodesCase> cases = codes_in_squares();
  for (const CodesCase& c : codes_in_lines()) cases.push_back(c);
  cases.push_back({{8, 128, 512}, {1024, 512}});
  for (const CodesCase& c : cases) check(codes_graph(c).g, at(0), &execute);
  for (const CodesCase& c : codes_under_scales()) check(scaled_codes_graph(c).g, at(0), &execute);
  for (const ExtremeCase& c : codes_with_extremes()) check(extreme_codes_graph(c).g, at(0), &execute);
}

// Codes in matrix instructions, scales behind the sums.
TEST_F(LadderGpu, ProductsOfWhatStepsEncode) {
  const Execute execute = gpu_->execute();
  for (const CodedCase& c : coded_cases()) {
    Check inexact = at(1e-4);
    inexact.options.exact = false;
    check(coded_graph(c).g, inexact, &execute);
  }
}

// By blocks, with and without matrix instructions, forward and backward.
TEST_F(LadderGpu, AttentionsByBlocks) {
  const Execute execute = gpu_->execute();
  const auto run_case = [&](const graph::Graph& g, int64_t limit, bool gradient) {
    for (const Scalar products : {Scalar::f32, Scalar::bf16}) {
      Check c = at(block_tolerance(products, gradient));
      c.limits = {{"start", limit}};
      c.options.products = products;
      int kernels = 0;
      std::string all;
      for (const std::string& plan : check(g, c, &execute)) {
        kernels += plan.find("by blocks") != std::string::npos;
        all += plan + "\n";
      }
      EXPECT_GT(kernels, 0) << all;
    }
  };
  std::vector<AttentionCase> cases = block_attentions();
  // As many blocks as let groups of lanes take turns where instructions read shared memory.
  cases.push_back({.batch = 64, .queries = 65, .keys = 140, .groups = 1, .repeat = 2, .depth = 112, .width = 112});
  for (size_t i = 0; i < cases.size(); i += every(6)) run_case(attention_graph(cases[i]).g, cases[i].keys, false);
  size_t number = 0;
  for (const auto& [batch, length, groups, repeat, depth, width] : block_gradients())
    if (number++ % every(4) == 0) run_case(gradient_graph(batch, length, groups, repeat, depth, width).g, 1, true);
}

TEST_F(LadderGpu, DotsEqualTheEvaluator) {
  if (machine().name.starts_with("gfx11"))
    GTEST_SKIP() << "the loop evaluator refuses a load of 32 bytes that claims their alignment at a place that has 16";
  std::vector<dot_test::Case> cases = dot_test::dot_cases(machine());
  std::vector<loop::Kernel> kernels;
  std::vector<dot_test::Case> some;
  for (size_t i = 0; i < cases.size(); i += every(7)) some.push_back(std::move(cases[i]));
  for (const dot_test::Case& c : some) kernels.push_back(c.kernel);
  gpu_->prepare(kernels);
  for (const dot_test::Case& c : some) {
    const std::vector<Blob> got = run(c.kernel, c.before);
    // Matrix instructions round sums in an order of their own.
    if (c.kernel.name.find("mma.") == std::string::npos && c.kernel.name.find("product.") == std::string::npos) {
      EXPECT_EQ(got, c.after) << c.kernel.name;
      continue;
    }
    // Codes that count from 1024 on cancel only when what they have too much is added, and sums there are cut, not
    // rounded (of 2560 numbers, whose root mean square is 17: 5e-4; rounding activations costs ten times that).
    const double near = c.kernel.name.find("codes") != std::string::npos ? 1e-3 : 1e-5;
    for (size_t i = 0; i < got.size(); ++i) {
      if (!c.kernel.params[i].written) continue;
      const std::vector<float> x = dot_test::floats_of(got[i]), y = dot_test::floats_of(c.after[i]);
      for (size_t e = 0; e < x.size(); ++e) ASSERT_NEAR(x[e], y[e], near * (1 + std::abs(y[e]))) << c.kernel.name;
    }
  }
  shown("dot");
}

// Integers exactly. Sums of floats are rounded in an order of the hardware's own, on some cards with fewer bits.
TEST_F(LadderGpu, MatrixInstructionsMeanWhatTheirRowsSay) {
  for (const machine::MatrixRow& r : machine().matrices) {
    const dot_test::Case c = dot_test::wave_case(machine(), r);
    const Blob want = c.after[0], got = run(c.kernel, c.before)[0];
    if (!is_float(r.acc)) {
      EXPECT_EQ(got, want) << r.row;
      continue;
    }
    int bad = 0;
    for (size_t at = 0; at < want.size() && bad < 3; at += 4) {
      float x = 0, y = 0;
      std::memcpy(&x, got.data() + at, 4);
      std::memcpy(&y, want.data() + at, 4);
      if (std::fabs(x - y) <= 1e-3F * (1 + std::fabs(y))) continue;
      ++bad;
      ADD_FAILURE() << r.row << " register " << at / 4 << ": " << x << ", not " << y;
    }
  }
  if (!machine().matrices.empty()) shown("instructions");
}

// Sums of a wave by exchange, and two stages of copies, the older one read.
TEST_F(LadderGpu, BlocksExchangeAndCopy) {
  loop::Builder b("blocks");
  constexpr int64_t kLanes = 128, kBlocks = 40;
  const auto x = b.param("x", kBlocks * kLanes * 32, false), y = b.param("y", kBlocks * kLanes * 16, true);
  b.loop(loop::LoopKind::grid, b.i64(0), b.i64(kBlocks), 1, [&](loop::Expr block) {
    const auto shared = b.alloc(kLanes * 32, 16, loop::Space::shared);
    b.loop(loop::LoopKind::lane, b.i64(0), b.i64(kLanes), 1, [&](loop::Expr lane) {
      for (int64_t stage = 0; stage < 2; ++stage) {
        const loop::Expr at = lane * 16 + stage * kLanes * 16;
        b.copy(shared, at, x, at + block * (kLanes * 32), 16);
        b.commit(loop::Flow::copies);
      }
      b.wait(loop::Flow::copies, 1);
    });
    b.barrier();
    b.loop(loop::LoopKind::lane, b.i64(0), b.i64(kLanes), 1, [&](loop::Expr lane) {
      const loop::VType f32x4{Scalar::f32, 4};
      const loop::Expr transposed = kLanes - 1 - lane;
      loop::Expr sum = b.load(shared, f32x4, transposed * 16, 16);
      for (int64_t step = 1; step < machine().wave; step *= 2) sum = sum + b.wave_shuffle(sum, b.lane_id() ^ step);
      b.store(y, sum, lane * 16 + block * (kLanes * 16), 16);
    });
  });
  const loop::Kernel k = b.finish();
  std::vector<Blob> before{emit::random_numbers(Scalar::i32, static_cast<size_t>(kBlocks * kLanes * 8), 3),
                           Blob(static_cast<size_t>(kBlocks * kLanes * 16))};
  for (size_t at = 0; at < before[0].size(); at += 4) {
    const auto f = static_cast<float>(before[0][at] % 100);
    std::memcpy(before[0].data() + at, &f, 4);
  }
  std::vector<Blob> want = before;
  std::vector<std::span<uint8_t>> spans(want.begin(), want.end());
  loop::eval(k, spans, nullptr, machine().wave);
  EXPECT_EQ(run(k, before), want);
  shown("exchange");
}

}  // namespace
}  // namespace lumen::test
