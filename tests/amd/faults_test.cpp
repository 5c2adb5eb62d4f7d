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
#include "run/engine/trial/row_trial.h"
#include "tests/amd/chip.h"

namespace lumen::run {
namespace {

struct PlantedFault {
  std::string what;   // "KIND WORDS"
  std::string trial;  // of those whose names begin so
  bool row = true;    // a row of the table is to blame; no: the device is
};

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
    shop.cache = std::make_shared<KernelCache>(shop.device, folder_);
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

// Which instruction a trial's product goes through, by its name in the machine's table.
std::string instruction_of(const std::string& chip, const char* kind) {
  const bool wmma = chip.starts_with("gfx11") || chip.starts_with("gfx12");
  const std::string k = kind;
  if (wmma) return "v_wmma_" + std::string(k == "i8" ? "i32_16x16x16_iu8" : "f32_16x16x16_" + k);
  return "v_mfma_" + std::string(k == "i8" ? "i32_" : "f32_");
}

std::vector<PlantedFault> planted_faults(const std::string& chip) {
  std::vector<PlantedFault> out;
  const bool cdna = chip.starts_with("gfx9");
  for (const auto& [kind, trial] : {std::pair{"bf16", "product 48x80x96 bf16"}, {"f16", "product 48x80x96 f16"}}) {
    for (const char* fault : {"lanes", "rows", "halves", "registers", "off", "dropped", "operands", "gone"})
      out.push_back({fmt::format("{} {}", fault, instruction_of(chip, kind)), trial});
  }
  for (const char* fault : {"lanes", "rows", "halves", "registers", "off", "dropped", "operands", "bit"})
    out.push_back({fmt::format("{} {}", fault, instruction_of(chip, "i8")), "product 64x64x128 codes int8"});
  if (cdna)
    for (const char* fault : {"lanes", "registers", "off", "short", "dropped", "operands"})
      out.push_back({fmt::format("{} v_mfma_f32_16x16x4", fault), "product 48x80x96 f32"});
  if (chip == "gfx942" || chip == "gfx950" || chip == "gfx1201") {
    const std::string code = cdna ? "v_mfma_f32_16x16x32_fp8_fp8" : "v_wmma_f32_16x16x16_fp8_fp8";
    for (const char* fault : {"lanes", "rows", "halves", "registers", "off", "dropped", "short", "code"})
      out.push_back({fmt::format("{} {}", fault, code), "product 64x64x128 codes"});
    if (cdna) out.push_back({"generation " + code, "product 64x64x128 codes"});
  }
  const std::string dot = cdna ? "v_dot4" : "v_dot4_i32_iu8";
  for (const char* fault : {"off", "bit", "gone", "short"})
    out.push_back({fmt::format("{} {}", fault, dot), "product 1x64x256"});
  // What has no row in the table: the device is refused.
  for (const auto& [fault, trial] : {std::pair{"sign v_mul_f32", "reduce: norm"},

                                     {"lanes v_pk_mul_f32", "map"},
                                     {"off v_pk_add_f32", "map"},

                                     {"short v_pk_fma_f32", "map"},
                                     {"registers v_pk_mul_f32", "map"},
                                     {"off v_pk_fma_f32", "step"},
                                     {"lanes v_mul_f32", "map"},
                                     {"operands v_sub_f32", "reduce: softmax"},
                                     {"sign v_sub_f32", "reduce: softmax"},
                                     {"short v_add_f32", "reduce: norm"},
                                     {"off v_add_f32", "reduce: norm"},
                                     {"dpp v_add_f32", "reduce: norm"},
                                     {"short v_sqrt_f32", "reduce: norm"},
                                     {"lanes v_sqrt_f32", "reduce: norm"},
                                     {"short v_rsq_f32", "reduce: norm"},
                                     {"lanes v_rcp_f32", "reduce: softmax"},
                                     {"off v_rcp_f32", "reduce: norm"},
                                     {"short v_div_fixup_f32", "reduce: norm"},
                                     {"gone v_div_fixup_f32", "reduce: norm"},
                                     {"off v_div_fmas_f32", "reduce: norm"},
                                     {"lanes v_ldexp_f32", "reduce: softmax"},
                                     {"off v_ldexp_f32", "map"},
                                     {"lanes v_exp_f32", "attend bf16"},
                                     {"short v_exp_f32", "attend f32"},
                                     {"off v_exp_f32", "attend bf16"},
                                     {"lanes v_rndne_f32", "reduce: softmax"},
                                     {"bit v_cvt_i32_f32", "reduce: softmax"},
                                     {"lanes ds_bpermute_b32", "attend f32"},
                                     {"lanes v_max_f32", "reduce: softmax"},
                                     {"off v_max_f32", "reduce: softmax"},
                                     {"operands v_cndmask_b32", "reduce: softmax"},
                                     {"bit v_and_b32", "encode fp8"},
                                     {"bit v_or_b32", "encode fp8"},
                                     {"bit v_perm_b32", "encode"},

                                     {"off v_med3_f32", "encode"},
                                     {"bit v_lshlrev_b32", "encode fp8"},
                                     {"bit v_cvt_u32_f32", "encode"},
                                     {"lanes v_cvt_pk_fp8_f32", "encode"},
                                     {"operands v_cvt_pk_fp8_f32", "encode"},
                                     {"generation v_cvt_pk_fp8_f32", "encode"},

                                     {"gone v_add3_u32", "encode bf16"},
                                     {"bit v_bfe_u32", "encode bf16"},
                                     {"operands v_sub_f32", "update"},
                                     {"sign v_fma_f32", "update"},
                                     {"off v_floor_f32", "step"},
                                     {"lanes v_floor_f32", "step"},
                                     {"short v_fma_f32", "step"},
                                     {"offset ds_read", "reduce: norm"},
                                     {"offset ds_read2", "step"},
                                     {"offset ds_load", "reduce: norm"},
                                     {"offset ds_write", "product 48x80x96 bf16"},
                                     {"lanes v_cvt_f32_i32", "product 64x64x128 codes int8"},
                                     {"unwaited s_waitcnt vmcnt", "map"},
                                     {"unwaited s_waitcnt lgkmcnt", "product 48x80x96 bf16"},
                                     {"unwaited s_waitcnt lgkmcnt", "reduce: norm"},
                                     {"unwaited s_waitcnt vmcnt", "reduce: softmax"},
                                     {"unwaited s_waitcnt vmcnt", "attend f32"},
                                     {"unwaited s_waitcnt lgkmcnt", "attend bf16"},
                                     {"unwaited s_waitcnt lgkmcnt", "attend gradient"},
                                     {"unwaited s_waitcnt vmcnt", "encode fp8"},
                                     {"unwaited s_waitcnt vmcnt", "move: scatter"},
                                     {"unwaited s_waitcnt vmcnt", "update"},
                                     {"unwaited s_waitcnt vmcnt", "step"},
                                     {"unwaited s_waitcnt vmcnt", "product 1x64x256"},
                                     {"offset global_load", "map"},
                                     {"offset global_store", "map"},
                                     {"lanes v_cvt_f16_f32", "map: rounded"},
                                     {"bit v_cvt_f16_f32", "product 48x80x96 f16"},
                                     {"off v_cvt_f16_f32", "product 48x80x96 f16"},
                                     {"operands v_lshl_or_b32", "product 48x80x96 bf16"},
                                     {"bit v_add_u32", "move: scatter"},
                                     {"gone v_add_u32", "move: scatter"},
                                     {"sign v_sub_f32", "attend gradient"},
                                     {"off v_mul_f32", "attend gradient"}})
    out.push_back({fault, trial, false});
  return out;
}

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
