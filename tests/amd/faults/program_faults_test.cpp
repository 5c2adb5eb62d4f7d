// Needs: the stand-in for libamdhip64 (LUMEN_HIP_LIBRARY) as a chip that LUMEN_STAND_IN_AMD names. Kernels of compiled
// programs are tried before they are trusted: right ones are not refused, a fault that is planted in the chip is found
// in the kernel that has it, which is named, and the next way is right; what was found is kept.
#include <dlfcn.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "graph/ir/build.h"
#include "number/library/library.h"
#include "run/device/choose/choose.h"
#include "run/engine/feedback/feedback_steps.h"
#include "run/engine/verify/lone_steps/conversion.h"
#include "run/engine/verify/trial/soundness.h"
#include "run/engine/verify/verify.h"
#include "tests/amd/chip.h"
#include "tests/amd/faults/planted_faults.h"
#include "tests/run/damage.h"

namespace lumen::run {
namespace {

class AmdPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* name = std::getenv("LUMEN_STAND_IN_AMD");
    if (!name || !amd::find_chip(name) || !std::getenv("LUMEN_HIP_LIBRARY")) GTEST_SKIP() << "no chip is named";
    chip_ = name;
    all_ = trials_for(*machine::find_machine(chip_), TrialDepth::first_use);
    folder_ = std::filesystem::temp_directory_path() / fmt::format("lumen-programs-{}-{}", name, ::getpid());
  }
  void TearDown() override {
    ::unsetenv("LUMEN_STAND_IN_FAULT");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  // A start of a program.
  struct Start {
    LaunchTrialCounts counts;
    std::string said, plans;
  };
  Start start(const Trial& t, const std::string& fault) const {
    ::setenv("LUMEN_STAND_IN_FAULT", fault.c_str(), 1);
    CompileContext shop;
    shop.device = open_device(parse_device("hip"), nullptr, 1, load_here);
    shop.cache = std::make_shared<KernelCache>(shop.device, std::make_shared<SealedFolder>(folder_));
    shop.threads = 2;
    const auto results = std::make_shared<TrialResults>(shop);
    shop.judge = results;
    Start out;
    testing::internal::CaptureStderr();
    try {
      const LaunchList list = compile(shop, t.graph, t.options);
      for (const Launch& launch : list.launches) out.plans += launch.plan + "; ";
    } catch (const Error& error) {
      out.plans = fmt::format("error {}: {}", exit_code(error.code()), error.what());
    }
    out.counts = results->counts();
    out.said = testing::internal::GetCapturedStderr();
    return out;
  }
  // The same of kernels that belong to no program; `plans`: empty where the device's own are trusted.
  Start start(const LoneSteps& work, const std::string& fault) const {
    ::setenv("LUMEN_STAND_IN_FAULT", fault.c_str(), 1);
    CompileContext shop;
    shop.device = open_device(parse_device("hip"), nullptr, 1, load_here);
    shop.cache = std::make_shared<KernelCache>(shop.device, std::make_shared<SealedFolder>(folder_));
    const auto results = std::make_shared<TrialResults>(shop);
    shop.judge = results;
    const auto processor = [] {
      CompileContext here;
      here.device = open_cpu(machine::native_machine(), 1, load_here);
      here.cache = std::make_shared<KernelCache>(here.device, std::make_shared<SealedFolder>(""));
      return here;
    };
    Start out;
    CompileReport report;
    testing::internal::CaptureStderr();
    try {
      if (choose_steps(shop, work, processor, &report).instead) out.plans = "the processor's";
    } catch (const Error& error) {
      out.plans = fmt::format("error {}: {}", exit_code(error.code()), error.what());
    }
    out.counts = results->counts();
    out.said = testing::internal::GetCapturedStderr();
    return out;
  }
  // What rounds and reads a matrix, columns in order and in another one.
  static std::vector<LoneSteps> lone_kernels() {
    const FormatRef f = FormatLibrary::builtin().get("q4_k"), g = FormatLibrary::builtin().get("int4_g32_asym");
    const synth::FeedbackShape shape{40, 64, 32, synth::FeedbackOrder::columns, false};
    synth::FeedbackShape in_order = shape;
    in_order.order = synth::FeedbackOrder::given;
    return {encode_steps(g, 40, 64, synth::Importance::none), encode_steps(f, 9, 256, synth::Importance::columns),
            decode_steps(f, 9, 256), feedback_steps(g, shape), feedback_steps(g, in_order)};
  }
  static uint64_t planted() {
    void* library = ::dlopen(std::getenv("LUMEN_HIP_LIBRARY"), RTLD_NOW);
    return reinterpret_cast<uint64_t (*)()>(::dlsym(library, "lumen_stand_in_planted"))();
  }
  const Trial& trial(const std::string& begin) const {
    return *std::find_if(all_.begin(), all_.end(), [&](const Trial& t) { return t.what.starts_with(begin); });
  }
  std::filesystem::path kept() const { return folder_ / fmt::format("user-{}", ::geteuid()) / "trials"; }
  bool is_cdna() const { return chip_.starts_with("gfx9"); }
  // The matrix instruction of products of bf16.
  std::string instruction() const { return is_cdna() ? "v_mfma_f32_" : "v_wmma_f32_16x16x16_bf16"; }

  std::string chip_;
  std::vector<Trial> all_;
  std::filesystem::path folder_;
};

// A part of what the self-test tries; LUMEN_AMD_LONG=1: all of it.
TEST_F(AmdPrograms, RightKernelsAreTrusted) {
  const bool all = std::getenv("LUMEN_AMD_LONG") != nullptr;
  int64_t tried = 0;
  for (const Trial& t : all_) {
    const bool few =
        t.what == "map" || t.what == "move: scatter" || t.what.starts_with("attend bf16") || t.what == "encode bf16";
    if (!all && !few) continue;
    const Start s = start(t, "");
    EXPECT_EQ(s.counts.refused, 0) << t.what << ": " << s.said << s.plans;
    EXPECT_EQ(s.counts.not_tried, 0) << t.what << ": " << s.said;
    tried += s.counts.tried;
  }
  EXPECT_GE(tried, 6);
}

TEST_F(AmdPrograms, AFaultIsNamedAndTheNextWayIsTaken) {
  const Trial& product = trial("product 48x80x96 bf16");
  const Start first = start(product, "lanes " + instruction());
  EXPECT_GE(first.counts.refused, 1);
  EXPECT_NE(first.said.find("computes wrongly: element ["), std::string::npos) << first.said;
  EXPECT_NE(first.said.find("takes its place"), std::string::npos) << first.said;
  EXPECT_EQ(first.plans.find("error"), std::string::npos) << first.plans;
  // What was found is kept, and damage to it is no trust.
  const Start second = start(product, "lanes " + instruction());
  EXPECT_EQ(second.counts.tried, 0);
  EXPECT_GE(second.counts.kept, 2);
  EXPECT_EQ(second.said, first.said);
  EXPECT_EQ(second.plans, first.plans);
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(kept())) {
    std::string content = read_file(file.path());
    content.back() = char(content.back() ^ 1);
    put_in_place(file.path(), content);
    ++files;
  }
  const Start third = start(product, "lanes " + instruction());
  EXPECT_EQ(third.counts.tried, files);
  EXPECT_EQ(third.plans, first.plans);
}

// No instruction of the table is to blame: no way is right.
TEST_F(AmdPrograms, WithoutAnyRightWayThereIsNoProgram) {
  for (const auto& [fault, of] :
       {std::pair{"operands v_sub_f32", "reduce: softmax"}, {"lanes v_rcp_f32", "reduce: softmax"}}) {
    const Start s = start(trial(of), fault);
    EXPECT_TRUE(s.plans.starts_with("error")) << fault << ": " << s.plans;
  }
}

// Kernels outside of programs: without a fault they are trusted, with one the processor's take their place.
TEST_F(AmdPrograms, LoneKernelsAreTriedToo) {
  for (const LoneSteps& work : lone_kernels()) {
    const Start right = start(work, "");
    EXPECT_EQ(right.plans, "") << right.said;
    EXPECT_EQ(right.counts.tried, 1) << work.meaning;
    std::filesystem::remove_all(kept());
    const Start wrong = start(work, "lanes v_cvt");
    EXPECT_EQ(wrong.plans, "the processor's") << work.meaning;
    EXPECT_NE(wrong.said.find("computes wrongly: byte "), std::string::npos) << wrong.said;
    EXPECT_EQ(start(work, "lanes v_cvt").counts.tried, 0) << "it is kept";
  }
}

// By hand, with LUMEN_AMD_LONG=1: results that lie in other lanes, are zero or are not there, in every instruction that
// computes. What is the same in all lanes, or is not used, is no fault for these kernels; which those are is printed.
TEST_F(AmdPrograms, FaultsOfLoneKernelsAreFound) {
  if (!std::getenv("LUMEN_AMD_LONG")) GTEST_SKIP() << "takes half a minute";
  int found = 0, same = 0, stopped = 0, none = 0;
  for (const LoneSteps& work : lone_kernels()) {
    for (const char* words : {"v_mul_f32", "v_add_f32", "v_sub_f32", "v_fma", "v_max", "v_min", "v_cvt", "v_rcp",
                              "v_rndne", "v_cndmask", "global_load", "global_store", "v_lshl", "v_bfe", "v_perm"})
      for (const char* kind : {"lanes", "rows", "halves", "off", "gone"}) {
        std::fflush(stdout);
        const pid_t child = ::fork();
        if (child == 0) {
          std::filesystem::remove_all(kept());
          const Start s = start(work, fmt::format("{} {}", kind, words));
          const bool error = s.plans.starts_with("error");
          if (!error && s.plans.empty() && planted() > 0)
            std::printf("same: %s %s in %s\n", kind, words, work.meaning.c_str());
          std::fflush(stdout);
          ::_exit(error ? 2 : !s.plans.empty() ? 0 : planted() > 0 ? 1 : 3);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 4) << kind << " " << words;
        int* const counts[] = {&found, &same, &stopped, &none};
        ++*counts[WEXITSTATUS(status)];
      }
  }
  std::printf("%s: %d found, %d change nothing, %d stopped by the driver, %d not in these kernels\n", chip_.c_str(),
              found, same, stopped, none);
  EXPECT_GE(found, 150);
}

// By hand, with LUMEN_AMD_LONG=1: all faults that the self-test is held against. Its trials compare every element and
// try every kernel again for each instruction; a program's trial has to find nearly as many.
TEST_F(AmdPrograms, NearlyAllFaultsAreFound) {
  if (!std::getenv("LUMEN_AMD_LONG")) GTEST_SKIP() << "takes a minute";
  enum Outcome : int { kFound, kMissed, kNotThere, kStopped, kOutcomes };
  int counts[kOutcomes] = {};
  for (const PlantedFault& f : planted_faults(chip_)) {
    std::fflush(stdout);
    const pid_t child = ::fork();  // a driver that a fault has stopped stays so
    if (child == 0) {
      std::filesystem::remove_all(kept());
      int outcome = kNotThere;
      for (const Trial& t : all_) {
        if (!t.what.starts_with(f.trial) || outcome == kFound || outcome == kStopped) continue;
        const Start s = start(t, f.what);
        if (s.counts.refused > 0)
          outcome = kFound;
        else if (s.plans.starts_with("error"))
          outcome = kStopped;
        else if (planted() > 0)
          outcome = kMissed;
      }
      if (outcome == kMissed) std::printf("missed: %s in %s\n", f.what.c_str(), f.trial.c_str());
      std::fflush(stdout);
      ::_exit(outcome);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < kOutcomes) << f.what;
    ++counts[WEXITSTATUS(status)];
  }
  std::printf("%s: %d found, %d missed, %d stopped by the driver, %d not in these kernels\n", chip_.c_str(),
              counts[kFound], counts[kMissed], counts[kStopped], counts[kNotThere]);
  EXPECT_GE(counts[kFound], 50);
  EXPECT_LE(counts[kMissed], 3);
}

}  // namespace
}  // namespace lumen::run
