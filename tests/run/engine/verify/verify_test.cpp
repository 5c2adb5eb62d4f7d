// Needs: cpu. Kernels of a compiled program are tried before it runs, once; a fault that is planted in one of them is
// found and named, another takes its place, and what was found is kept with the code: for a GPU's stand-in, and here.
#include "run/engine/verify/verify.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "run/engine/verify/policy.h"
#include "tests/run/damage.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

using graph::Graph;

class LaunchTrialsTest : public testing::Test {
 protected:
  LaunchTrialsTest() : fake(GpuVendor::hip) {
    std::filesystem::remove_all(kept());
    fake.run_machine_code();
    set_launch_trials(LaunchTrials::always);
    const auto find = fake->find;
    const auto execute = fake->execute;
    fake->find = [this, find](const std::string& image, const std::string& symbol) {
      void* function = find(image, symbol);
      if (!planted.empty() && symbol.find(planted) != std::string::npos) wrong.insert(function);
      return function;
    };
    // The first number of what such a kernel writes, its last buffer, is another.
    fake->execute = [this, execute](void* function, std::span<void* const> arguments, unsigned blocks,
                                    unsigned threads) {
      execute(function, arguments, blocks, threads);
      if (wrong.contains(function)) static_cast<char*>(arguments[arguments.size() - 2])[3] ^= 0x40;
    };
  }
  ~LaunchTrialsTest() override { set_launch_trials(LaunchTrials::automatic); }

  static void SetUpTestSuite() { shared_folder = std::make_unique<TemporaryFolder>(); }
  static void TearDownTestSuite() { shared_folder.reset(); }
  // The devices' own tests are done once for all tests here.
  static std::filesystem::path folder() { return shared_folder->path(); }
  Engine::Options on_gpu() const {
    Engine::Options o = options(folder());
    o.device = fake.device();
    o.machine = machine::native_machine();
    return o;
  }
  std::filesystem::path kept() const { return folder() / ("user-" + std::to_string(::geteuid())) / "trials"; }
  // What a start with the program launches before it runs, and says.
  struct Start {
    std::vector<std::string> launched;
    std::string said;
    std::vector<uint8_t> result;
  };
  Start start(const Graph& g, const Engine::Options& o) {
    Start out;
    Engine engine(o);
    fake->launches.clear();
    testing::internal::CaptureStderr();
    std::shared_ptr<Program> program;
    try {
      program = engine.compile(g, {});
    } catch (...) {
      out.said = testing::internal::GetCapturedStderr();
      throw;
    }
    for (const fake::Launch& l : fake->launches) out.launched.push_back(l.symbol);
    for (const auto& [name, tensor] : random_inputs(g, 5)) program->bind(name, upload(engine, tensor));
    program->run();
    out.result = bytes_of(program->result(g.result_names[0]));
    out.said = testing::internal::GetCapturedStderr();
    return out;
  }

  static inline std::unique_ptr<TemporaryFolder> shared_folder;
  StandIn fake;
  std::string planted;  // part of the name of kernels that are wrong
  std::set<void*> wrong;
};

Graph one_product() {
  Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", graph::Role::data, f32({64, 96})), w = b.input("w", graph::Role::data, f32({128, 96}));
  g.results = {b.contract(x, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  return g;
}

TEST_F(LaunchTrialsTest, KernelsAreTriedOnceAndThatIsKept) {
  const Graph g = small_network();
  const Start first = start(g, on_gpu());
  EXPECT_GE(first.launched.size(), 3U);
  EXPECT_EQ(first.said, "");
  EXPECT_TRUE(start(g, on_gpu()).launched.empty());
  // Whatever part of a file is another, it says nothing: that kernel is tried again.
  const std::filesystem::path file = std::filesystem::directory_iterator(kept())->path();
  for (const auto& [what, content] : damaged_forms(read_file(file))) {
    if (what.starts_with("byte") && what != "byte 16 of the trailer") continue;  // sealed_test has them all
    put_in_place(file, content);
    EXPECT_GE(start(g, on_gpu()).launched.size(), 1U) << what;
  }
  SealedFolder(folder()).write("trials", file.filename(), "righ");
  EXPECT_GE(start(g, on_gpu()).launched.size(), 1U) << "a good seal, and no result";
  std::filesystem::remove_all(kept());
  set_launch_trials(LaunchTrials::never);
  EXPECT_TRUE(start(g, on_gpu()).launched.empty());
}

TEST_F(LaunchTrialsTest, AWrongKernelIsNamedAndTheNextTakesItsPlace) {
  const Graph g = one_product();
  set_launch_trials(LaunchTrials::never);
  const Start right = start(g, on_gpu());
  set_launch_trials(LaunchTrials::always);
  const std::string symbol = [&] {
    Engine engine(on_gpu());
    fake->launches.clear();
    engine.compile(g, {});
    return fake->launches.back().symbol;
  }();
  std::filesystem::remove_all(kept());
  planted = symbol;
  for (const bool again : {false, true}) {
    const Start found = start(g, on_gpu());
    EXPECT_EQ(found.result, right.result) << "all plans give the same bits";
    EXPECT_NE(found.said.find("computes wrongly: element [0, 0] of tensor<64x128xf32>, expected "), std::string::npos)
        << found.said;
    EXPECT_NE(found.said.find("takes its place"), std::string::npos) << found.said;
    EXPECT_EQ(std::count(found.said.begin(), found.said.end(), '\n'), 1) << "one line: " << found.said;
    EXPECT_EQ(found.launched.empty(), again);
  }
}

TEST_F(LaunchTrialsTest, NothingRightIsAnError) {
  planted = "dot";
  try {
    start(one_product(), on_gpu());
    FAIL() << "a wrong kernel was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::verify);
    EXPECT_NE(std::string(e.what()).find("computes wrongly"), std::string::npos) << e.what();
    EXPECT_FALSE(e.hint().empty());
  }
}

// By itself for GPUs whose tier says that nobody has measured them, and not for processors.
TEST_F(LaunchTrialsTest, WhoIsTried) {
  set_launch_trials(LaunchTrials::automatic);
  machine::Machine here = *machine::native_machine();
  for (const machine::Tier tier : {machine::Tier::measured, machine::Tier::emulated, machine::Tier::compiled}) {
    here.tier = tier;
    Engine::Options o = on_gpu();
    o.tries = false;
    o.machine = std::make_shared<const machine::Machine>(here);
    EXPECT_EQ(tries_launches(Engine(o).device()), tier != machine::Tier::measured);
    o.device = "cpu";
    EXPECT_FALSE(tries_launches(Engine(o).device()));
  }
  EXPECT_THROW(launch_trials_from_name("often"), Error);
  ::setenv("LUMEN_TRY", "never", 1);
  EXPECT_EQ(launch_trials(), LaunchTrials::automatic) << "what was set counts";
  ::unsetenv("LUMEN_TRY");
}

TEST_F(LaunchTrialsTest, ProcessorsAreTriedWhereThatIsAskedFor) {
  const Graph g = small_network();
  Engine engine(options());
  const Verbosity before = verbosity();
  set_verbosity(Verbosity::verbose);
  testing::internal::CaptureStderr();
  engine.compile(g, {});
  const std::string said = testing::internal::GetCapturedStderr();
  set_verbosity(before);
  EXPECT_NE(said.find("kernels tried in"), std::string::npos) << said;
  EXPECT_NE(said.find(", 0 refused"), std::string::npos) << said;
  EXPECT_EQ(said.find("could not be tried"), std::string::npos) << said;
}

}  // namespace
}  // namespace lumen::run
