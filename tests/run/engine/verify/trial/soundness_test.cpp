// Needs: cpu. Kernels on trial on this processor: what is right passes; wrong rows of the machine's table are found,
// named and done without; wrong machine code without a row to blame is the device's fault.
#include "run/engine/verify/trial/soundness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "run/device/choose/choose.h"
#include "run/engine/verify/trial/determinism.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

const std::filesystem::path& trial_cache() {
  static const TemporaryFolder folder;
  return folder.path();
}

CompileContext trial_shop(const std::string& device, machine::MachineRef machine) {
  CompileContext shop;
  shop.device = open_device(parse_device(device), std::move(machine), 2, load_here);
  shop.cache = std::make_shared<KernelCache>(shop.device, std::make_shared<SealedFolder>(trial_cache()));
  shop.threads = 2;
  return shop;
}

Soundness sound_as(const std::string& device, const machine::MachineRef& machine, std::vector<Trial> trials) {
  return find_soundness(trial_shop(device, machine), std::move(trials),
                        [&](machine::MachineRef m) { return trial_shop(device, std::move(m)); });
}

const std::vector<Trial>& first_trials() {
  static const std::vector<Trial> trials = trials_for(*machine::native_machine(), TrialDepth::first_use);
  return trials;
}

std::vector<Trial> products_only() {
  std::vector<Trial> out;
  for (const Trial& t : first_trials())
    if (t.what.starts_with("product") || t.what.starts_with("map")) out.push_back(t);
  return out;
}

// A sum as matrix units form it that keep 14 bits: terms of 32 products are cut to digits of the largest.
double short_sum(const std::vector<double>& terms) {
  double sum = 0;
  for (size_t at = 0; at < terms.size(); at += 32) {
    const auto end = terms.begin() + std::ptrdiff_t(std::min(terms.size(), at + 32));
    double largest = std::abs(sum);
    for (auto i = terms.begin() + std::ptrdiff_t(at); i != end; ++i) largest = std::max(largest, std::abs(*i));
    const double unit = std::exp2(std::floor(std::log2(largest)) - 13);
    double next = std::trunc(sum / unit);
    for (auto i = terms.begin() + std::ptrdiff_t(at); i != end; ++i) next += std::trunc(*i / unit);
    sum = next * unit;
  }
  return sum;
}

TEST(Soundness, SumsThatKeepFewDigitsMayLoseThemAndNoProduct) {
  const machine::MachineRef m = machine::find_machine("sm_90a");
  EXPECT_TRUE(has_short_sums(*m, {"map", "product.64x64x32.e4m3e4m3.f32"}));
  EXPECT_FALSE(has_short_sums(*m, {"product.64x64x16.bf16bf16.f32"}));
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  double worst = 0, least_lost = 1e9;
  for (const int64_t n : {64, 128, 256})
    for (int round = 0; round < 2000; ++round) {
      std::vector<double> terms(static_cast<size_t>(n));
      double sum = 0, sizes = 0;
      for (double& t : terms) t = normal(random) * normal(random), sum += t, sizes += std::abs(t);
      const double allowed = units_of_sum(n + 4) + units_of_short_sum(n);
      worst = std::max(worst, std::abs(short_sum(terms) - sum) / sizes / allowed);
      least_lost = std::min(least_lost, 1 / double(n) / allowed);
    }
  EXPECT_LT(worst, 0.5);
  EXPECT_GT(worst, 0.02);      // it is no bound that anything meets
  EXPECT_GT(least_lost, 1.5);  // a term of ordinary size that is left out
  EXPECT_GT(units_of_short_sum(256), units_of_short_sum(4096));
}

// One trial alone has too few kernels for all threads of a machine.
TEST(Soundness, KernelsOfManyTrialsAreMadeAtOneTime) {
  const TemporaryFolder folder;
  CompileContext shop = trial_shop("cpu", nullptr);
  shop.cache = std::make_shared<KernelCache>(shop.device, std::make_shared<SealedFolder>(folder.path()));
  const auto files = [&] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  };
  std::vector<const Trial*> some;
  for (const Trial& t : first_trials())
    if (t.what.starts_with("map") || t.what.starts_with("product 1x64")) some.push_back(&t);
  ASSERT_GT(some.size(), 3U);
  find_kernels(shop, some);
  const size_t made = files();
  EXPECT_GT(made, some.size());
  for (const Trial* t : some) EXPECT_TRUE(try_out(shop, *t).ok) << t->what;
  EXPECT_EQ(files(), made) << "a trial compiled what was not there";
  // Trials are the same for any number of threads.
  const std::vector<Trial> again = trials_for(*machine::native_machine(), TrialDepth::first_use, 2);
  ASSERT_EQ(again.size(), first_trials().size());
  for (size_t i = 0; i < again.size(); ++i)
    EXPECT_EQ(again[i].what + again[i].wanted, first_trials()[i].what + first_trials()[i].wanted);
}

TEST(Soundness, EveryTrialPassesAndGoesThroughWhatItIsFor) {
  const Soundness s = sound_as("cpu", nullptr, first_trials());
  EXPECT_TRUE(s.wrong.empty()) << s.wrong;
  EXPECT_TRUE(s.refused.empty() && !s.machine && s.whole);
  EXPECT_EQ(s.lines.size(), first_trials().size());
  for (size_t i = 0; i < s.lines.size(); ++i) {
    const CheckLine& line = s.lines[i];
    EXPECT_TRUE(line.ok && line.ran && line.chosen) << line.what << ": " << line.detail;
    EXPECT_FALSE(line.plan.empty()) << line.what;
    const std::string& wanted = first_trials()[i].wanted;
    if (!wanted.empty()) {
      EXPECT_TRUE(std::ranges::find(line.rows, wanted) != line.rows.end()) << line.what;
    }
  }
}

// Instructions of large tiles, which no small product would choose, are tried too, each on the table that it is planned
// on.
TEST(Soundness, EveryMatrixInstructionIsTried) {
  for (const char* name : {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_80", "sm_89"}) {
    const auto m = machine::find_machine(name);
    std::set<std::string> wanted;
    for (const Trial& t : product_trials(*m, TrialDepth::usual, 2)) {
      machine::Machine table = *m;
      for (const std::string& row : t.without) table = without_row(std::move(table), row);
      const TrialPlan plan = plan_of(table, t);
      EXPECT_TRUE(t.wanted.empty() || plan.rows.contains(t.wanted)) << name << ": " << t.what;
      wanted.insert(plan.rows.begin(), plan.rows.end());
    }
    for (const machine::MatrixRow& r : m->matrices) {
      if (r.scale_group > 0) continue;  // no plan has them: tests/amd/faults_test.cpp
      EXPECT_TRUE(wanted.contains(r.row)) << name << ": " << r.row;
    }
  }
}

TEST(Soundness, WhatNoPlanHasIsNoPass) {
  Trial t = first_trials().front();
  t.wanted = "nobody.has.this";
  const CheckLine line = try_out(trial_shop("cpu", nullptr), t);
  EXPECT_FALSE(line.chosen || line.ran);
  const std::vector<CheckLine> missing = rows_not_chosen(*machine::native_machine(), {line});
  EXPECT_EQ(missing.size(), machine::native_machine()->rows.size());
}

// Each instruction of the table that these products have does something else than the table says.
TEST(Soundness, WrongInstructionsAreRefusedAndDoneWithout) {
  const machine::Machine& right = *machine::native_machine();
  const std::vector<Trial> trials = products_only();
  std::set<std::string> used;
  for (const Trial& t : trials)
    if (!t.wanted.empty())
      for (const std::string& row : plan_of(right, t).rows) used.insert(row);
  int planted = 0;
  for (const std::string& row : used)
    for (const char* arguments : {"1 0", "0 0", "1 1"}) {
      machine::Machine wrong = right;
      const auto at = std::ranges::find(wrong.rows, row, &machine::Row::name);
      if (right.meaning(row)->params.size() != 2 || !at->arguments.empty()) continue;
      const auto type = [&](size_t i) { return right.meaning(row)->body.value_types[right.meaning(row)->params[i]]; };
      const auto as = [&](int i, size_t of) {  // the operand as that one's bits
        return fmt::format("{}:v{}i{}", i, type(of).lanes, scalar_bits(type(of).scalar));
      };
      if (std::string(arguments) == "1 0" && row.find("i16i16") != std::string::npos) continue;  // products commute
      at->arguments = fmt::format("{} {}", as(arguments[0] - '0', 0), as(arguments[2] - '0', 1));
      ++planted;
      const Soundness s = sound_as("cpu", std::make_shared<const machine::Machine>(wrong), trials);
      EXPECT_TRUE(s.wrong.empty()) << row << " " << arguments << ": " << s.wrong;
      ASSERT_FALSE(s.refused.empty()) << row << " with operands " << arguments << " was not found";
      EXPECT_TRUE(std::ranges::find(s.refused, row, &RefusedRow::row) != s.refused.end())
          << row << " " << arguments << " but refused " << s.refused[0].row;
      EXPECT_EQ(s.machine->find_row(row), nullptr);
      for (const CheckLine& line : s.lines) EXPECT_TRUE(line.ok) << line.what << ": " << line.detail;
    }
  if (right.triple.starts_with("x86_64")) {
    EXPECT_GE(planted, 5);
  }
}

#if defined(__x86_64__)
// Machine code whose vector instructions are others: opcodes behind a VEX prefix of that map and kind.
struct CodeFault {
  const char* what;
  int map, kind;  // 1: 0F, 2: 0F38; 0: none, 1: 66
  uint8_t from, to;
  const char* trial;
};
constexpr CodeFault kCodeFaults[] = {
    {"add is sub", 1, 0, 0x58, 0x5c, "reduce: norm"},
    {"sub is add", 1, 0, 0x5c, 0x58, "reduce: softmax"},
    {"mul is add", 1, 0, 0x59, 0x58, "map"},
    {"div is mul", 1, 0, 0x5e, 0x59, "reduce: norm"},
    {"max is min", 1, 0, 0x5f, 0x5d, "reduce: softmax"},
    {"sqrt is rsqrt", 1, 0, 0x51, 0x52, "reduce: norm"},
    {"fma subtracts", 2, 1, 0xb8, 0xba, "step"},
    {"fma of two others", 2, 1, 0xa8, 0xac, "map"},
    {"and is or", 1, 0, 0x54, 0x56, "reduce: softmax"},
    {"integers subtract", 1, 1, 0xfe, 0xfa, "reduce: softmax"},
    {"left is right", 1, 1, 0xf2, 0xd2, "map: rounded"},
};

int change_code(std::string* image, const CodeFault& f) {
  int changed = 0;
  const auto byte = [&](size_t i) { return uint8_t((*image)[i]); };
  for (size_t i = 0; i + 4 < image->size(); ++i) {
    const bool two = byte(i) == 0xc5 && f.map == 1 && (byte(i + 1) & 3) == f.kind && byte(i + 2) == f.from;
    const bool three =
        byte(i) == 0xc4 && (byte(i + 1) & 0x1f) == f.map && (byte(i + 2) & 3) == f.kind && byte(i + 3) == f.from;
    if (!two && !three) continue;
    (*image)[i + (two ? 2 : 3)] = char(f.to);
    ++changed;
  }
  return changed;
}

TEST(Soundness, WrongMachineCodeIsTheDevicesFault) {
  StandIn fake(GpuVendor::cuda);
  fake.run_machine_code();
  const auto whole = fake->find;
  int found = 0;
  for (const CodeFault& f : kCodeFaults) {
    int changed = 0;
    fake->find = [&](const std::string& image, const std::string& symbol) {
      std::string other = image;
      changed += change_code(&other, f);
      return whole(other, symbol);
    };
    std::vector<Trial> trials;
    for (const Trial& t : first_trials())
      if (t.what.starts_with(f.trial)) trials.push_back(t);
    ASSERT_FALSE(trials.empty()) << f.trial;
    const Soundness s = sound_as("cuda", machine::find_machine("x86-64-v3"), trials);
    if (changed == 0) continue;
    ++found;
    EXPECT_FALSE(s.wrong.empty() && s.refused.empty()) << f.what << " in " << f.trial;
  }
  EXPECT_GE(found, 6) << "these kernels have few of the instructions that are changed";
  fake->find = whole;
}
#endif

TEST(Soundness, AStepHasTheSameBitsForAnyNumberOfThreads) {
  const CompileContext shop = trial_shop("cpu", nullptr);
  CompileContext alone = shop;
  alone.device = open_device({}, nullptr, 1, load_here);
  alone.cache = std::make_shared<KernelCache>(alone.device, std::make_shared<SealedFolder>(trial_cache()));
  EXPECT_EQ(prove_determinism(shop, &alone).name, kAnyThreads);
  EXPECT_EQ(prove_determinism(shop, nullptr).name, kSameDevice);
}

}  // namespace
}  // namespace lumen::run
