// needs: cpu. Branches of low rank in a run layer by layer: what each method makes least, what is in the file, the same
// bytes when a run was ended, and what is refused.
#include "model/compress/layers/branch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "model/arch/low_rank_weights.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& branch_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

arch::Model wide_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  return initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 2}, {"heads", 2}, {"ffn", 96}, {"context", 16}}),
      1);
}

std::vector<text::TokenId> some_text() {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < 40; ++i) out.push_back((i * i * 7 + i * 3 + 5) % 40);
  return out;
}

ByLayersOptions options_in(const std::filesystem::path& folder, const std::string& strategy, const std::string& method,
                           int64_t rank = 8) {
  ByLayersOptions o;
  o.method = parse_method(strategy);
  o.run = {.length = 8, .batch = 2};
  o.folder = folder;
  o.source = "test";
  o.branch.rank = rank;
  o.branch.method = branch_method(method);
  o.branch.format = test_library()->formats().get("bf16");
  return o;
}

std::map<std::string, FormatRef> formats_for(const arch::Model& m, const std::string& name) {
  QuantizeOptions o;
  o.target = name;
  return choose_formats(m, o, nullptr);
}

arch::Model result_of(ByLayers& run) {
  arch::Model out = run.outline();
  for (const arch::Parameter& p : out.parameters)
    if (out.weights.at(p.name).bytes.size() == 0) out.weights[p.name] = run.weight(p);
  return out;
}

double error_of(const std::vector<RoundedTensor>& report) {
  double sum = 0;
  for (const RoundedTensor& t : report) sum += t.rank > 0 ? t.error * t.error : 0;
  return sum;
}

TEST(Branch, TakesTheLeadingPartAndLeavesTheRest) {
  const int64_t rows = 24, columns = 32, rank = 3;
  std::vector<float> values(rows * columns);
  for (int64_t i = 0; i < rows * columns; ++i)
    values[i] =
        static_cast<float>((i / columns % 5 - 2) * (i % columns % 3 - 1) + (i / columns % 7) * (i % columns % 4));
  RoundingTask task;
  task.rows = rows;
  task.columns = columns;
  task.values = values;
  BranchOptions how;
  how.rank = rank;
  // A sum of two products is what the branch holds, up to f32.
  const Branch b =
      branch_of(branch_engine(), task, values, {graph::Dim(rows), graph::Dim(columns)}, rank, how, 0.01, 0);
  EXPECT_EQ(b.a.rows(), rank);
  EXPECT_EQ(b.b.columns(), rank);
  std::vector<float> rest = values;
  b.add(branch_engine(), -1, rest);
  for (const float x : rest) EXPECT_LT(std::abs(x), 1e-4);
  b.add(branch_engine(), 1, rest);
  for (size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], values[i], 1e-5);
}

TEST(Branch, EachMethodIsNearerThanRoundingAlone) {
  const arch::Model m = wide_model();
  const auto formats = formats_for(m, "int3_g32");
  const TestFolder folder;
  ByLayers alone(branch_engine(), m, formats, some_text(), options_in(folder / "alone", "gptq", "eora", 0));
  ASSERT_TRUE(alone.run());
  std::map<std::string, double> outputs;
  for (const RoundedTensor& t : alone.report()) outputs[t.name] = t.output_error;
  for (const char* method : {"svdquant", "eora", "lqer"}) {
    ByLayers run(branch_engine(), m, formats, some_text(), options_in(folder / method, "gptq", method));
    ASSERT_TRUE(run.run());
    size_t beside = 0, nearer = 0;
    for (const RoundedTensor& t : run.report()) {
      if (t.rank == 0) continue;
      ++beside;
      nearer += t.output_error < outputs.at(t.name);
    }
    EXPECT_EQ(beside, 14U) << "every matrix of the layers, and not the output";
    EXPECT_GE(nearer, method == std::string("eora") ? 14U : 10U) << method;
    // The file computes what the report's numbers are of.
    const arch::Model out = result_of(run);
    EXPECT_EQ(out.weights.size(), out.parameters.size());
    EXPECT_EQ(out.weights.at("layers.0.wq.a").type.element.format->name, "bf16");
    EXPECT_EQ(low_rank_branches(out).size(), 14U);
    for (const RoundedTensor& t : run.report()) {
      if (t.name != "blk.1.ffn_down.weight") continue;
      std::vector<float> sum = values_of(branch_engine(), out.weights.at("layers.1.down"));
      Branch{out.weights.at("layers.1.down.a"), out.weights.at("layers.1.down.b")}.add(branch_engine(), 1, sum);
      const std::span<const float> want = m.weights.at("layers.1.down").f32();
      double off = 0, all = 0;
      for (size_t i = 0; i < sum.size(); ++i) {
        off += (sum[i] - want[i]) * (sum[i] - want[i]);
        all += want[i] * want[i];
      }
      EXPECT_NEAR(std::sqrt(off / all), t.error, 1e-5) << method;
    }
  }
  ByLayers nearest(branch_engine(), m, formats, some_text(), options_in(folder / "few", "rtn", "svdquant", 4));
  ByLayers more(branch_engine(), m, formats, some_text(), options_in(folder / "more", "rtn", "svdquant", 32));
  ASSERT_TRUE(nearest.run() && more.run());
  EXPECT_LT(error_of(more.report()), error_of(nearest.report()));
}

// A process that is killed; then the run goes on here.
TEST(Branch, EndedAtAnyMomentARunGivesTheSameBytes) {
  const arch::Model m = wide_model();
  const auto formats = formats_for(m, "int3_g32");
  for (const char* method : {"svdquant", "eora"}) {
    const TestFolder folder;
    ByLayers whole(branch_engine(), m, formats, some_text(), options_in(folder / "whole", "gptq", method));
    ASSERT_TRUE(whole.run());
    const arch::Model want = result_of(whole);
    for (int round = 1; round <= 6; ++round) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        run::Engine own(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
        ByLayers run(own, m, formats, some_text(), options_in(folder / "killed", "gptq", method));
        run.run();
        _exit(0);
      }
      usleep(60'000 * round);
      kill(child, SIGKILL);
      int status = 0;
      waitpid(child, &status, 0);
    }
    ByLayers run(branch_engine(), m, formats, some_text(), options_in(folder / "killed", "gptq", method));
    ASSERT_TRUE(run.run());
    const arch::Model got = result_of(run);
    ASSERT_EQ(got.weights.size(), want.weights.size());
    for (const auto& [name, w] : want.weights) EXPECT_TRUE(got.weights.at(name).bytes == w.bytes) << method << name;
  }
}

TEST(Branch, WhatIsRefused) {
  const arch::Model m = wide_model();
  const auto formats = formats_for(m, "int3_g32");
  const TestFolder folder;
  const auto says = [&](const arch::Model& of, ByLayersOptions o, const std::string& what) {
    try {
      ByLayers(branch_engine(), of, formats, some_text(), std::move(o));
      ADD_FAILURE() << what;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
    }
  };
  says(m, options_in(folder / "a", "autoround", "svdquant"), "a branch that is computed before quantization");
  says(m, options_in(folder / "b", "gptaq", "svdquant"), "a branch that is computed before quantization");
  ByLayersOptions blocks = options_in(folder / "c", "rtn", "svdquant");
  blocks.branch.format = test_library()->formats().get("q8_0");
  says(m, blocks, "do not divide into blocks of 'q8_0'");
  EXPECT_THROW(branch_method("svd"), Error);
  ByLayers once(branch_engine(), m, formats, some_text(), options_in(folder / "d", "rtn", "lqer"));
  ASSERT_TRUE(once.run());
  says(result_of(once), options_in(folder / "e", "rtn", "lqer"), "already has low-rank branches");
  // What was rounded together may have a branch of what that took.
  ByLayersOptions together = options_in(folder / "f", "autoround", "eora");
  together.numbers.steps = 2;
  ByLayers learned(branch_engine(), m, formats, some_text(), together);
  EXPECT_TRUE(learned.run());
}

}  // namespace
}  // namespace lumen::model::compress
