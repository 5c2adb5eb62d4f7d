// Needs: cpu. Kernels that belong to no program are tried as those of programs are: a fault planted in one that
// encodes, decodes or rounds with feedback is found, named and kept, and what it is asked for comes out right by
// another way.
#include "run/engine/verify/lone_steps/lone_steps.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "run/engine/feedback/feedback.h"
#include "run/engine/feedback/feedback_steps.h"
#include "run/engine/panels/panels.h"
#include "run/engine/verify/lone_steps/conversion.h"
#include "run/engine/verify/policy.h"
#include "run/engine/verify/verify.h"
#include "tests/run/damage.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

constexpr int64_t kRows = 37, kColumns = 256;
using Bytes = std::vector<uint8_t>;

FormatRef format(const char* name) {
  return FormatLibrary::builtin().get(name);
}

std::vector<float> normals(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(random);
  return x;
}

Bytes bytes_of(const std::vector<float>& x) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(x.data());
  return {begin, begin + x.size() * sizeof(float)};
}

class LoneStepsTest : public testing::Test {
 protected:
  LoneStepsTest() : fake(GpuVendor::hip) {
    std::filesystem::remove_all(kept());
    fake.run_machine_code();
    set_launch_trials(LaunchTrials::automatic);
    const auto find = fake->find;
    const auto execute = fake->execute;
    fake->find = [this, find](const std::string& image, const std::string& symbol) {
      void* function = find(image, symbol);
      if (!planted.empty() && symbol.find(planted) != std::string::npos) wrong.insert(function);
      return function;
    };
    // One byte of what such a kernel writes is another.
    fake->execute = [this, execute](void* function, std::span<void* const> arguments, unsigned blocks,
                                    unsigned threads) {
      execute(function, arguments, blocks, threads);
      if (wrong.contains(function)) static_cast<char*>(arguments[spoiled])[0] = 0x5a;
    };
  }
  ~LoneStepsTest() override { set_launch_trials(LaunchTrials::automatic); }
  static void SetUpTestSuite() { shared_folder = std::make_unique<TemporaryFolder>(); }
  static void TearDownTestSuite() { shared_folder.reset(); }
  static std::filesystem::path folder() { return shared_folder->path(); }
  static std::filesystem::path kept() { return folder() / ("user-" + std::to_string(::geteuid())) / "trials"; }

  // A GPU that nobody has measured, whose chips are this processor.
  Engine::Options on_gpu() const {
    machine::Machine here = *machine::native_machine();
    here.tier = machine::Tier::compiled;
    Engine::Options o = options(folder());
    o.device = fake.device();
    o.machine = std::make_shared<const machine::Machine>(here);
    return o;
  }
  struct Start {
    Bytes result;
    std::string said;
    size_t launches = 0;
  };
  template <typename Work>
  Start start(Engine::Options o, Work work) {
    Start out;
    Engine engine(std::move(o));
    fake->launches.clear();
    testing::internal::CaptureStderr();
    try {
      out.result = work(engine);
    } catch (...) {
      out.said = testing::internal::GetCapturedStderr();
      throw;
    }
    out.said = testing::internal::GetCapturedStderr();
    out.launches = fake->launches.size();
    return out;
  }
  // Kernels whose name begins so are wrong: found once and named, the result is right, now and at the next start.
  template <typename Work>
  void expect_found(const std::string& symbol, size_t argument, Work work) {
    set_launch_trials(LaunchTrials::never);
    const Bytes right = start(options(folder()), work).result;
    EXPECT_EQ(start(on_gpu(), work).result, right);
    planted = symbol, spoiled = argument;
    const Start trusting = start(on_gpu(), work);
    std::string names;
    for (const fake::Launch& l : fake->launches) names += l.symbol + " ";
    EXPECT_NE(trusting.result, right) << "the fault is none in " << names;
    set_launch_trials(LaunchTrials::automatic);
    std::filesystem::remove_all(kept());
    size_t launches = 0;
    for (const bool again : {false, true}) {
      const Start found = start(on_gpu(), work);
      EXPECT_EQ(found.result, right) << symbol;
      EXPECT_NE(found.said.find("kernel '" + symbol), std::string::npos) << found.said;
      EXPECT_NE(found.said.find("computes wrongly: "), std::string::npos) << found.said;
      EXPECT_NE(found.said.find(": the processor takes its place"), std::string::npos) << found.said;
      EXPECT_EQ(std::count(found.said.begin(), found.said.end(), '\n'), 1) << "one line: " << found.said;
      if (again) {
        EXPECT_LT(found.launches, launches) << "it is not tried again";
      }
      launches = found.launches;
    }
    planted.clear(), wrong.clear();
    std::filesystem::remove_all(kept());
    const Start without = start(on_gpu(), work);
    EXPECT_EQ(without.result, right);
    EXPECT_EQ(without.said, "");
  }

  static inline std::unique_ptr<TemporaryFolder> shared_folder;
  StandIn fake;
  std::string planted;  // part of the name of kernels that are wrong
  size_t spoiled = 1;   // which argument
  std::set<void*> wrong;
};

TEST_F(LoneStepsTest, AWrongEncoderIsNamedAndTheProcessorEncodes) {
  const std::vector<float> x = normals(kRows * kColumns, 3), importance(kColumns, 2);
  // Rows that have fields together: of so many some elements are looked at.
  const int64_t many = 384;
  const std::vector<float> large = normals(many * many, 3);
  expect_found("encode", 1, [&](Engine& e) { return e.encode(format("fp8_tile"), large.data(), many, many); });
  expect_found("encode", 1, [&](Engine& e) { return e.encode(format("q4_k"), x.data(), kRows, kColumns, importance); });
}

TEST_F(LoneStepsTest, AWrongDecoderIsNamedAndTheProcessorDecodes) {
  const std::vector<float> x = normals(kRows * kColumns, 3);
  const Bytes blob = encode(*format("int8_row"), x, kRows, kColumns);
  expect_found("map", 1,
               [&](Engine& e) { return bytes_of(e.decode(format("int8_row"), blob.data(), kRows, kColumns)); });
}

TEST_F(LoneStepsTest, PanelsOfWrongKernelsAreConvertedByTheProcessor) {
  const std::vector<float> x = normals(kRows * kColumns, 3);
  expect_found("encode", 1, [&](Engine& e) {
    const auto panels = e.encode_panels(format("q8_0"), kRows, kColumns);
    Panels::Place place = panels->place();
    std::copy(x.begin(), x.end(), place.values());
    place.convert();
    return Bytes(place.blob(), place.blob() + blob_layout(*format("q8_0"), kRows, kColumns).total);
  });
}

// Columns in order, and in another order under stored fields.
TEST_F(LoneStepsTest, AWrongPanelOfFeedbackIsNamedAndTheProcessorRounds) {
  const std::vector<float> w = normals(kRows * kColumns, 3);
  std::vector<float> u = normals(kColumns * kColumns, 4);
  for (float& one : u) one *= 0.02F;
  std::vector<int32_t> order(kColumns);
  std::iota(order.rbegin(), order.rend(), 0);
  for (const bool in_order : {false, true}) {
    expect_found("feedback", 4, [&](Engine& e) {
      FeedbackRounder rounder(e, format("int4_g32_asym"), kRows, kColumns, {.weighs = false, .in_order = in_order});
      const FeedbackMatrix matrix(e, u, rounder.tiling());
      FeedbackRounder::Input input;
      input.w = w;
      if (in_order) input.order = order;
      return rounder.run(input, matrix).blob;
    });
  }
}

// Without a fault none of them is refused, and all can be tried.
TEST_F(LoneStepsTest, RightKernelsAreTrusted) {
  CompileContext shop;
  shop.device = open_cpu(machine::native_machine(), 2, load_here);
  shop.cache = std::make_shared<KernelCache>(shop.device, std::make_shared<SealedFolder>(""));
  shop.threads = 2;
  const auto results = std::make_shared<TrialResults>(shop);
  shop.judge = results;
  CompileReport report;
  const auto expect_trusted = [&](const LoneSteps& work) {
    const LaunchTrialCounts before = results->counts();
    EXPECT_FALSE(choose_steps(shop, work, {}, &report).instead);
    EXPECT_EQ(results->counts().tried, before.tried + 1) << work.meaning;
    EXPECT_EQ(results->counts().refused, 0) << work.meaning;
  };
  for (const char* name : {"q4_k", "fp8_tile", "nvfp4_tensor"}) {
    const FormatRef f = format(name);
    for (const synth::Importance i :
         {synth::Importance::none, synth::Importance::columns, synth::Importance::elements}) {
      if (i != synth::Importance::none && !f->weighs()) continue;
      expect_trusted(encode_steps(f, kRows, kColumns, i));
    }
    expect_trusted(decode_steps(f, kRows, kColumns));
    for (const bool weighs : {false, true}) {
      if (weighs && !f->weighs()) continue;
      synth::FeedbackShape shape{kRows, kColumns, synth::feedback_panel(*f, kColumns), {}, weighs};
      expect_trusted(feedback_steps(f, shape));
      if (weighs || !rounds_in_order(*f)) continue;
      shape.order = synth::FeedbackOrder::given;
      expect_trusted(feedback_steps(f, shape));
    }
  }
}

// What was found of a processor's kernels counts, too: the evaluator takes their place, and where it has no way the
// kernel is refused by name.
TEST_F(LoneStepsTest, AProcessorThatIsWrongGivesWayToTheEvaluator) {
  set_launch_trials(LaunchTrials::always);
  const std::vector<float> x = normals(kRows * kColumns, 3);
  const FormatRef f = format("int8_row");
  const auto converted = [&](Engine& e) { return e.encode(f, x.data(), kRows, kColumns); };
  const auto panel = [&](Engine& e) {
    const auto panels = e.encode_panels(f, kRows, kColumns);
    Panels::Place place = panels->place();
    std::copy(x.begin(), x.end(), place.values());
    place.convert();
    return Bytes(place.blob(), place.blob() + blob_layout(*f, kRows, kColumns).total);
  };
  const auto rounded = [&](Engine& e) {
    FeedbackRounder rounder(e, f, kRows, kColumns, {});
    FeedbackRounder::Input input;
    input.w = x;
    return rounder.run(input).blob;
  };
  const Bytes right = start(options(folder()), converted).result;
  EXPECT_EQ(right, encode(*f, x, kRows, kColumns));
  start(options(folder()), rounded);
  for (const auto& file : std::filesystem::directory_iterator(kept()))
    SealedFolder(folder()).write("trials", file.path().filename(), "wrong: kernel 'planted' computes wrongly");
  for (const Start& found : {start(options(folder()), converted), start(options(folder()), panel)}) {
    EXPECT_EQ(found.result, right);
    EXPECT_NE(found.said.find("'planted' computes wrongly: the evaluator"), std::string::npos) << found.said;
  }
  try {
    start(options(folder()), rounded);
    FAIL() << "a wrong kernel was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::verify);
    EXPECT_NE(std::string(e.what()).find("'planted' computes wrongly"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lumen::run
