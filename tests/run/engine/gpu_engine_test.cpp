// Needs: cpu. The whole engine on a stand-in GPU that executes this processor's code: memory nobody here can read,
// launches that are done later, recordings. Results equal the processor's bit for bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "run/engine/format_check.h"
#include "run/engine/program/tune.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

using graph::Role;

class GpuEngine : public testing::TestWithParam<GpuVendor> {
 protected:
  GpuEngine() : fake(GetParam()) { fake.run_machine_code(); }
  // Kernels are compiled once for all tests, unless a test is about that.
  static std::string kept() { return (std::filesystem::temp_directory_path() / "lumen-test-cache").string(); }
  Engine::Options on_gpu(const std::string& folder = kept()) const {
    Engine::Options o = options(folder);
    o.device = fake.device();
    o.machine = machine::native_machine();
    o.tries = false;
    return o;
  }
  int64_t calls(const char* name) { return fake->count(symbol_of(GetParam(), name)); }

  StandIn fake;
};

TEST_P(GpuEngine, ANetworkGivesTheProcessorsBits) {
  const graph::Graph g = small_network();
  const auto inputs = random_inputs(g, 2);
  Engine here(options(kept())), there(on_gpu());
  const auto expected = run_once(here, g, inputs), got = run_once(there, g, inputs);
  for (const char* name : {"logits", "norm"}) EXPECT_EQ(bytes_of(got->result(name)), bytes_of(expected->result(name)));
  EXPECT_GT(there.totals().kernels, 0);
}

// One direct run, then one recording that is replayed; another address means another recording.
TEST_P(GpuEngine, StepsAreRecordedOnceAndReplayed) {
  const graph::Graph g = small_network();
  const auto inputs = random_inputs(g, 3);
  Engine here(options(kept())), there(on_gpu());
  const auto expected = bytes_of(run_once(here, g, inputs)->result("logits"));
  const auto program = run_once(there, g, inputs);
  const int64_t launches = calls("launch");
  EXPECT_GT(launches, 0);
  EXPECT_EQ(calls("capture_begin"), 0) << "one run is not worth a recording";
  for (int i = 0; i < 4; ++i) {
    program->run();
    EXPECT_EQ(bytes_of(program->result("logits")), expected);
  }
  EXPECT_EQ(calls("capture_begin"), 1);
  EXPECT_EQ(calls("graph_launch"), 4);
  EXPECT_EQ(calls("launch"), 2 * launches);

  auto other = inputs;
  other["w2"] = random_tensor(other["w2"].type, 77);
  program->bind("w2", upload(there, other["w2"]));
  program->run();
  EXPECT_EQ(calls("capture_begin"), 1);
  program->run();
  EXPECT_EQ(calls("capture_begin"), 2);
  EXPECT_EQ(bytes_of(program->result("logits")), bytes_of(run_once(here, g, other)->result("logits")));
}

TEST_P(GpuEngine, WithoutRecordingsResultsAreTheSame) {
  fake->captures = false;
  const graph::Graph g = small_network();
  const auto inputs = random_inputs(g, 4);
  Engine here(options(kept())), there(on_gpu());
  testing::internal::CaptureStderr();
  const auto program = run_once(there, g, inputs);
  for (int i = 0; i < 3; ++i) program->run();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("one by one"), std::string::npos) << said;
  EXPECT_EQ(said.find("one by one"), said.rfind("one by one")) << "said once";
  EXPECT_EQ(calls("graph_launch"), 0);
  EXPECT_EQ(bytes_of(program->result("norm")), bytes_of(run_once(here, g, inputs)->result("norm")));
}

// Direct and replayed runs report a failed guard as the processor does, and the next run starts clean.
TEST_P(GpuEngine, GuardsAreReportedAndForgotten) {
  const graph::Graph g = small_network();
  auto inputs = random_inputs(g, 6);
  Engine engine(on_gpu());
  const auto program = run_once(engine, g, inputs);
  const auto good = bytes_of(program->result("logits"));
  const auto x = upload(engine, inputs["x"]);
  program->bind("x", x);
  auto bad = inputs["x"];
  bad.values[17] = 11;
  const std::vector<uint8_t> good_bytes = to_bytes(inputs["x"]), bad_bytes = to_bytes(bad);
  for (int i = 0; i < 4; ++i) {
    x->upload(bad_bytes.data(), x->bytes());
    try {
      program->run();
      FAIL() << "index 11 of 11 rows was accepted in run " << i;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::user);
      EXPECT_NE(std::string(e.what()).find("gather 'x': index 11 is outside 0..10"), std::string::npos) << e.what();
    }
    x->upload(good_bytes.data(), x->bytes());
    program->run();
    EXPECT_EQ(bytes_of(program->result("logits")), good);
  }
  EXPECT_GT(calls("graph_launch"), 0);
}

TEST_P(GpuEngine, StatesLiveOnTheDevice) {
  graph::Graph g;
  graph::Builder b(g);
  const auto count = b.input("count", Role::state, f32({2, 9})), x = b.input("x", Role::data, f32({2, 9}));
  g.results = {b.update(count, b.add(count, x))};
  g.result_names = {"count"};
  Engine engine(on_gpu());
  const auto program = engine.compile(g, {});
  program->bind("count", std::make_shared<DeviceTensor>(engine.device(), f32({2, 9})));
  program->bind("x", upload(engine, {f32({2, 9}), std::vector<double>(18, 0.5), {}}));
  for (int i = 0; i < 6; ++i) program->run();
  EXPECT_EQ(floats_of(program->result("count")), std::vector<float>(18, 3.0F));
}

TEST_P(GpuEngine, ParametersAreCopiedNotMapped) {
  Engine engine(on_gpu());
  const std::vector<float> w = {1, 2, 3, 4};
  const auto keeper = std::make_shared<int>(0);
  const auto tensor = DeviceTensor::parameter(engine.device(), f32({4}), w.data(), keeper);
  EXPECT_NE(tensor->data(), static_cast<const void*>(w.data()));
  EXPECT_EQ(floats_of(tensor), w);
}

TEST_P(GpuEngine, EncodesAndDecodesAsTheCodec) {
  Engine engine(on_gpu());
  for (const char* name : {"q4_0", "q4_k", "mxfp4", "f16"}) {
    const FormatRef f = FormatLibrary::builtin().get(name);
    for (const CheckLine& line : check_kernels(engine, f))
      EXPECT_TRUE(line.ok) << name << " " << line.what << line.detail;
  }
}

// A GPU that computes wrongly is found out by the check.
TEST_P(GpuEngine, ChecksFindAGpuThatComputesWrongly) {
  fake->corrupts = true;
  Engine engine(on_gpu());
  int wrong = 0;
  for (const CheckLine& line : check_kernels(engine, FormatLibrary::builtin().get("q8_0"))) wrong += line.ok ? 0 : 1;
  EXPECT_GE(wrong, 2);
}

TEST_P(GpuEngine, CompiledCodeIsKeptForTheNextStart) {
  const TemporaryFolder folder;
  const graph::Graph g = small_network();
  const auto inputs = random_inputs(g, 8);
  const auto compiled = [&] {
    Engine engine(on_gpu(folder.path()));
    return run_once(engine, g, inputs)->report().compiled;
  };
  EXPECT_GT(compiled(), 0);
  EXPECT_EQ(compiled(), 0);
  // Another driver makes other code of the same text.
  fake->version += GetParam() == GpuVendor::cuda ? 10 : 1;
  EXPECT_GT(compiled(), 0);
  Engine here(options(folder.path()));
  EXPECT_GT(run_once(here, g, inputs)->report().compiled, 0) << "the processor's code is its own";
}

TEST_P(GpuEngine, TimesAreTakenWhenAskedFor) {
  const graph::Graph g = small_network();
  const auto inputs = random_inputs(g, 9);
  Engine::Options timed = on_gpu();
  timed.timed = true;
  for (const bool ask : {false, true}) {
    Engine engine(ask ? timed : on_gpu());
    const auto program = run_once(engine, g, inputs);
    for (int i = 0; i < 3; ++i) program->run();
    double seconds = 0;
    for (const KernelTime& t : program->times()) seconds += t.seconds;
    EXPECT_EQ(seconds > 0, ask);
    EXPECT_NE(program->explain().find("4 runs"), std::string::npos);
  }
}

// Launches are timed by the driver's events: the first ones, then those of other plans; between, and when all is
// decided, steps are replayed. The next program begins with what was decided.
TEST_P(GpuEngine, PlansAreTriedAndTheBestIsRemembered) {
  const TemporaryFolder folder;
  Engine::Options o = on_gpu(folder.path());
  o.tune = true;
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", Role::data, f32({64, 96})), w = b.input("w", Role::data, f32({128, 96}));
  g.results = {b.contract(x, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  const auto inputs = random_inputs(g, 5);
  const std::filesystem::path plans = folder.path() / ("user-" + std::to_string(::geteuid())) / "plans";
  {
    Engine engine(o);
    const auto program = run_once(engine, g, inputs);
    const auto expected = bytes_of(program->result("y"));
    int runs = 0;
    for (; runs < 3000 && !std::filesystem::exists(plans); ++runs) {
      program->run();
      ASSERT_EQ(bytes_of(program->result("y")), expected);
      engine.finish_tuning();
    }
    ASSERT_TRUE(std::filesystem::exists(plans));
    const int64_t replayed = calls("graph_launch"), launched = calls("launch");
    EXPECT_GT(replayed, runs / 2);
    EXPECT_GE(launched, 2 * Autotuner::kRounds);
    for (int i = 0; i < 3; ++i) program->run();
    EXPECT_EQ(calls("graph_launch"), replayed + 3);
    EXPECT_EQ(bytes_of(program->result("y")), expected);
  }
  // Nothing is left to try: as many points in time as without a tuner, those of copies.
  const auto events = [&](const Engine::Options& with) {
    const int64_t before = calls("event_record");
    Engine engine(with);
    run_once(engine, g, inputs)->run();
    return calls("event_record") - before;
  };
  EXPECT_EQ(events(o), events(on_gpu(folder.path())));
}

TEST_P(GpuEngine, WhatDoesNotFitIsRefused) {
  fake->bytes = int64_t{64} << 20;
  Engine engine(on_gpu());
  try {
    engine.require_memory("a large thing", {{"its parts", int64_t{1} << 30}});
    FAIL() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    EXPECT_NE(std::string(e.what()).find("a large thing needs at least 1.00 GiB of memory"), std::string::npos)
        << e.what();
  }
  engine.require_memory("a small thing", {{"all of it", 1 << 20}});
}

INSTANTIATE_TEST_SUITE_P(Vendors, GpuEngine, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& instance) { return std::string(vendor_name(instance.param)); });

}  // namespace
}  // namespace lumen::run
