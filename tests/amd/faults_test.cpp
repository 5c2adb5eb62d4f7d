// Needs: the stand-in for libamdhip64 (LUMEN_HIP_LIBRARY) as a chip that LUMEN_STAND_IN_AMD names. Faults planted in
// the chip (planted.h) are found by the self-test, named, and done without: the instruction is refused and the same
// products come out right by the next way; or, where no instruction of the table is to blame, the device is refused.
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
#include "run/device/choose/choose.h"
#include "run/engine/verify/trial/row_trial.h"
#include "tests/amd/chip.h"
#include "tests/amd/faults/planted_faults.h"

namespace lumen::run {
namespace {

class AmdFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* name = std::getenv("LUMEN_STAND_IN_AMD");
    if (!name || !amd::find_chip(name) || !std::getenv("LUMEN_HIP_LIBRARY")) GTEST_SKIP() << "no chip is named";
    chip_ = name;
    folder_ = std::filesystem::temp_directory_path() / fmt::format("lumen-faults-{}-{}", name, ::getpid());
    trials_ = trials_for(*machine::find_machine(chip_), TrialDepth::first_use);
  }
  void TearDown() override {
    ::unsetenv("LUMEN_STAND_IN_FAULT");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  CompileContext open(machine::MachineRef machine) const {
    CompileContext shop;
    shop.device = open_device(parse_device("hip"), std::move(machine), 1, load_here);
    shop.cache = std::make_shared<KernelCache>(shop.device, std::make_shared<SealedFolder>(folder_));
    shop.threads = 2;
    return shop;
  }
  std::vector<Trial> trials(const std::string& begin) const {
    std::vector<Trial> out;
    for (const Trial& t : trials_)
      if (t.what.starts_with(begin)) out.push_back(t);
    return out;
  }
  Soundness soundness(const std::string& begin, const std::string& fault) {
    ::setenv("LUMEN_STAND_IN_FAULT", fault.c_str(), 1);
    return find_soundness(open(nullptr), trials(begin), [&](machine::MachineRef m) { return open(std::move(m)); });
  }

  std::string chip_;
  std::filesystem::path folder_;
  std::vector<Trial> trials_;
};

// What became of a fault; the number a process ends with.
enum Outcome : int { kRowRefused, kDeviceRefused, kStopped, kMissed, kNotThere, kWrongAfter, kOutcomes };

TEST_F(AmdFaults, AreFoundNamedAndDoneWithout) {
  const auto outcome = [&](const PlantedFault& f) {
    Soundness s;
    try {
      s = soundness(f.trial, f.what);
    } catch (const Error& error) {
      std::printf("%-44s stopped: %.140s\n", f.what.c_str(), error.what());
      return kStopped;
    }
    void* library = ::dlopen(std::getenv("LUMEN_HIP_LIBRARY"), RTLD_NOW);
    const auto count = reinterpret_cast<uint64_t (*)()>(::dlsym(library, "lumen_stand_in_planted"));
    if (count() == 0) return kNotThere;
    if (!s.wrong.empty()) {
      std::printf("%-44s device refused: %s\n", f.what.c_str(), s.wrong.c_str());
      return kDeviceRefused;
    }
    for (const CheckLine& line : s.lines) {
      if (line.ran || !line.chosen) continue;
      std::printf("%-44s stopped: %.140s\n", f.what.c_str(), line.detail.c_str());
      return kStopped;
    }
    if (s.refused.empty()) {
      std::printf("%-44s NOT FOUND in %s\n", f.what.c_str(), f.trial.c_str());
      return kMissed;
    }
    std::printf("%-44s row refused: %s; %s\n", f.what.c_str(), s.refused[0].row.c_str(), s.refused[0].why.c_str());
    const bool well = std::all_of(s.lines.begin(), s.lines.end(), [](const CheckLine& line) { return line.ok; });
    return well ? kRowRefused : kWrongAfter;
  };
  int counts[kOutcomes] = {};
  for (const PlantedFault& f : planted_faults(chip_)) {
    if (trials(f.trial).empty()) continue;
    // A driver that a fault has stopped stays so: each has a process of its own.
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
      const Outcome o = outcome(f);
      std::fflush(stdout);
      ::_exit(o);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < kOutcomes) << f.what << " ends the process: " << status;
    const int o = WEXITSTATUS(status);
    ++counts[o];
    EXPECT_NE(o, kMissed) << f.what << " in " << f.trial;
    EXPECT_NE(o, kWrongAfter) << f.what << " in " << f.trial;
    if (f.row) {
      EXPECT_NE(o, kDeviceRefused) << f.what << ": no instruction was blamed";
    }
  }
  const int found = counts[kRowRefused] + counts[kDeviceRefused];
  std::printf(
      "%s: %d faults found: %d times the instruction is refused and the rest is right, %d times the device; %d "
      "more stopped by the driver, %d not in these kernels\n",
      chip_.c_str(), found, counts[kRowRefused], counts[kDeviceRefused], counts[kStopped], counts[kNotThere]);
  EXPECT_GE(found, 40);
}

// No plan has those with scales: a wave executes each alone, and what computes wrongly leaves the table.
TEST_F(AmdFaults, MatrixInstructionsWithScalesAreTriedAlone) {
  std::set<std::string> scaled;
  for (const machine::MatrixRow& r : machine::find_machine(chip_)->matrices)
    if (r.scale_group > 0) scaled.insert(r.row);
  if (scaled.empty()) GTEST_SKIP() << chip_ << " has none";
  EXPECT_EQ(scaled.size(), 6U);
  const auto tried = [&](const char* fault) {
    ::setenv("LUMEN_STAND_IN_FAULT", fault, 1);
    const CompileContext shop = open(nullptr);
    Soundness found;
    const bool whole = std::string(fault).empty();
    for (const machine::MatrixRow& r : shop.device->machine().matrices)  // as if plans had all others
      if (r.scale_group == 0 || (!whole && r.m != 16))
        found.lines.push_back({.what = r.row, .ok = true, .rows = {r.row}});
    try_other_rows(shop, &found);
    return found;
  };
  const Soundness right = tried("");
  EXPECT_TRUE(right.refused.empty() && !right.machine);
  for (const CheckLine& line : right.lines) {
    EXPECT_TRUE(line.ok) << line.what << ": " << line.detail;
    scaled.erase(line.rows[0]);
  }
  EXPECT_TRUE(scaled.empty()) << fmt::format("{}", fmt::join(scaled, " "));
  for (const char* fault : {"lanes", "rows", "registers", "off", "short", "dropped", "operands", "gone"}) {
    const Soundness wrong = tried(fmt::format("{} v_mfma_scale_f32_16x16x128", fault).c_str());
    EXPECT_EQ(wrong.refused.size(), 3U) << fault;
    for (const RefusedRow& r : wrong.refused) {
      EXPECT_TRUE(r.row.starts_with("mma.16x16x128.")) << r.row;
      EXPECT_EQ(wrong.machine->find_row(r.row), nullptr);
    }
  }
}

}  // namespace
}  // namespace lumen::run
