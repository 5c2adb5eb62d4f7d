// Needs: cpu. Which products of a program a vendor's library does: those it is measured to do faster, when it is
// allowed to; the choice is kept.
#include "run/engine/compile/product_choice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/error.h"
#include "run/device/gpu/product_symbols.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

class ProductChoice : public testing::TestWithParam<GpuVendor> {
 protected:
  ProductChoice() : fake(GetParam()) { fake.run_machine_code(); }
  Engine::Options on_gpu(bool libraries = true) const {
    Engine::Options o = options(folder.path().string());
    o.device = fake.device();
    o.machine = machine::native_machine();
    o.tries = false;
    o.libraries = libraries;
    return o;
  }
  int64_t products() { return fake->count(product_symbol(GetParam(), "multiply")); }

  TemporaryFolder folder;
  StandIn fake;
};

// z = x . w' + b, with b of z's shape.
graph::Graph product_and_sum() {
  graph::Graph g;
  graph::Builder b(g);
  using graph::Role;
  const auto x = b.input("x", Role::data, f32({24, 40})), w = b.input("w", Role::parameter, f32({32, 40}));
  const auto more = b.input("b", Role::data, f32({24, 32}));
  g.results = {b.add(more, b.contract(x, w, "mk", "nk", "mn"))};
  g.result_names = {"z"};
  return g;
}

TEST_P(ProductChoice, TheFasterOneIsTakenAndKept) {
  const graph::Graph g = product_and_sum();
  const auto inputs = random_inputs(g, 5);
  Engine here(options("off"));
  const auto expected = floats_of(run_once(here, g, inputs)->result("z"));
  for (const double milliseconds : {0.01, 4.0}) {
    const bool faster = milliseconds < 0.25;
    fake->product_milliseconds = milliseconds;
    int64_t measured = 0;
    for (const bool again : {false, true}) {
      Engine there(on_gpu());
      const int64_t before = products();
      const auto program = run_once(there, g, inputs);
      EXPECT_EQ(program->explain().find("by ") != std::string::npos, faster) << program->explain();
      if (!again) {
        measured = products() - before;
        EXPECT_GT(measured, 3);
      } else {
        EXPECT_EQ(products() - before, faster ? 1 : 0) << "nothing is measured again";
      }
      for (int i = 0; i < 3; ++i) {  // the second one is recorded, the third replayed
        const auto got = floats_of(program->result("z"));
        ASSERT_EQ(got.size(), expected.size());
        for (size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], expected[k], 1e-4) << k;
        program->run();
      }
    }
    std::filesystem::remove_all(folder.path() / ("user-" + std::to_string(::geteuid())) / "plans");
  }
}

TEST_P(ProductChoice, WhoComputesWrongIsNotUsed) {
  const graph::Graph g = product_and_sum();
  fake->product_milliseconds = 0.01;
  for (const double error : {1000.0, std::nan("")}) {
    fake->product_error = error;
    Engine there(on_gpu());
    testing::internal::CaptureStderr();
    const auto program = run_once(there, g, random_inputs(g, 5));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("is not used: element 0 is "), std::string::npos) << said;
    EXPECT_EQ(program->explain().find("by "), std::string::npos) << program->explain();
    std::filesystem::remove_all(folder.path() / ("user-" + std::to_string(::geteuid())) / "plans");
  }
}

TEST_P(ProductChoice, NothingOfItUnlessAllowed) {
  const graph::Graph g = product_and_sum();
  Engine there(on_gpu(false));
  fake->product_milliseconds = 0.01;
  run_once(there, g, random_inputs(g, 5));
  EXPECT_EQ(fake->count(product_symbol(GetParam(), "create")), 0);
}

TEST_P(ProductChoice, WhatItCannotDoOursDo) {
  const graph::Graph g = product_and_sum();
  Engine there(on_gpu());
  fake->multiplies = false;
  const auto program = run_once(there, g, random_inputs(g, 5));
  EXPECT_EQ(products(), 0);
}

TEST_P(ProductChoice, ProcessorsHaveNone) {
  Engine::Options o = options("off");
  o.libraries = true;
  try {
    Engine engine(o);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_NE(std::string(e.what()).find("only on GPUs"), std::string::npos) << e.what();
  }
}

// Without memory to measure, our kernels it is.
TEST_P(ProductChoice, AFailureWhileMeasuringIsNoFailure) {
  const graph::Graph g = product_and_sum();
  const auto inputs = random_inputs(g, 5);
  Engine there(on_gpu());
  fake->product_milliseconds = 0.01;
  fake->fail_symbol = product_symbol(GetParam(), "multiply");
  fake->fail_code = 13;
  const auto program = run_once(there, g, inputs);
  EXPECT_EQ(program->explain().find("by "), std::string::npos) << program->explain();
}

INSTANTIATE_TEST_SUITE_P(Vendors, ProductChoice, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& p) { return std::string(vendor_name(p.param)); });

}  // namespace
}  // namespace lumen::run
