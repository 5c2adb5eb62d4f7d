// Needs: a chip that LUMEN_STAND_IN_AMD names. The interpreter itself: it executes a kernel right, and finds what is
// planted: waits and barriers that are gone, bits that are turned, operands that are swapped, objects that are damaged.
#include <gtest/gtest.h>

#include <random>

#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/machine/relatives.h"
#include "tests/amd/fault.h"
#include "tests/amd/gpu_code.h"
#include "tests/ladder/wave_case.h"

namespace lumen::test {
namespace {

constexpr int64_t kLanes = 128, kBlocks = 3;

std::span<const uint8_t> bytes_of(const std::string& object) {
  return {reinterpret_cast<const uint8_t*>(object.data()), object.size()};
}

// Every lane brings a number to shared memory and takes the one of the lane that faces it, twice as large, less its
// own.
loop::Kernel exchange() {
  loop::Builder b("exchange");
  const auto x = b.param("x", kBlocks * kLanes * 4, false), y = b.param("y", kBlocks * kLanes * 4, true);
  b.loop(loop::LoopKind::grid, b.i64(0), b.i64(kBlocks), 1, [&](loop::Expr block) {
    const auto shared = b.alloc(kLanes * 4, 16, loop::Space::shared);
    const loop::VType f32{Scalar::f32, 1};
    b.loop(loop::LoopKind::lane, b.i64(0), b.i64(kLanes), 1,
           [&](loop::Expr lane) { b.store(shared, b.load(x, f32, (block * kLanes + lane) * 4, 4), lane * 4, 4); });
    b.barrier();
    b.loop(loop::LoopKind::lane, b.i64(0), b.i64(kLanes), 1, [&](loop::Expr lane) {
      const loop::Expr mine = b.load(x, f32, (block * kLanes + lane) * 4, 4);
      const loop::Expr faced = b.load(shared, f32, (kLanes - 1 - lane) * 4, 4);
      b.store(y, faced + faced - mine, (block * kLanes + lane) * 4, 4);
    });
  });
  return b.finish();
}

class AmdTool : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* name = std::getenv("LUMEN_STAND_IN_AMD");
    chip_ = amd::find_chip(name ? name : "");
    if (!chip_) GTEST_SKIP() << "LUMEN_STAND_IN_AMD names no chip";
    std::mt19937 random(7);
    for (size_t i = 0; i < kBlocks * kLanes; ++i) {
      const auto f = static_cast<float>(random() % 1000) - 500;
      std::memcpy(before_[0].data() + 4 * i, &f, 4);
    }
    want_ = before_;
    std::vector<std::span<uint8_t>> spans(want_.begin(), want_.end());
    loop::eval(kernel_, spans, nullptr, chip_->wave);
  }
  // "" when the result is right, what was found otherwise.
  std::string found(GpuCode& code) {
    std::vector<Blob> got = before_;
    std::vector<std::span<uint8_t>> spans(got.begin(), got.end());
    try {
      code.run(kernel_, spans);
    } catch (const amd::Fault& f) {
      return f.what();
    }
    return got == want_ ? "" : "another result";
  }
  // With instruction `n` changed.
  template <class F>
  std::string found_with(size_t n, F change) {
    GpuCode code(*chip_);
    if (object_.empty()) object_ = emit::emit({&kernel_, 1}, *machine::find_machine(chip_->name), emit::Output::object);
    code.prepare({kernel_}, object_);
    EXPECT_EQ(found(code), "");  // decoded now
    change(code.kernel(kernel_).instructions[n]);
    return found(code);
  }
  std::vector<amd::Instruction> instructions() {
    GpuCode code(*chip_);
    code.prepare({kernel_});
    EXPECT_EQ(found(code), "");
    return code.kernel(kernel_).instructions;
  }

  const amd::Chip* chip_ = nullptr;
  loop::Kernel kernel_ = exchange();
  std::string object_;
  std::vector<Blob> before_{Blob(kBlocks * kLanes * 4), Blob(kBlocks * kLanes * 4)}, want_;
};

TEST_F(AmdTool, ExecutesAKernelRight) {
  GpuCode code(*chip_);
  EXPECT_EQ(found(code), "");
}

// Every wave executes the code once from its beginning to its end: there is no loop in it.
TEST_F(AmdTool, CountsWhatEachWaveExecutes) {
  GpuCode code(*chip_);
  amd::Machine::Counts counts;
  code.chip().count_instructions(&counts);
  EXPECT_EQ(found(code), "");
  const auto& all = code.kernel(kernel_).instructions;
  ASSERT_EQ(std::ssize(counts), kBlocks * kLanes / chip_->wave);
  uint64_t sum = 0;
  for (const std::vector<uint64_t>& wave : counts) {
    ASSERT_EQ(wave.size(), all.size());
    bool ended = false;
    for (size_t n = 0; n < all.size(); ++n) {
      EXPECT_EQ(wave[n], ended ? 0U : 1U) << all[n].text;
      ended = ended || all[n].text.starts_with("s_endpgm");
      sum += wave[n];
    }
  }
  EXPECT_EQ(sum, code.chip().executed());
}

TEST_F(AmdTool, FindsWaitsAndBarriersThatAreGone) {
  const auto all = instructions();
  int waits = 0, found_waits = 0, barriers = 0, found_barriers = 0;
  for (size_t n = 0; n < all.size(); ++n) {
    const std::string& text = all[n].text;
    const bool wait =
        text.starts_with("s_wait") && !text.starts_with("s_wait_alu") && !text.starts_with("s_waitcnt_depctr");
    const bool barrier = text.starts_with("s_barrier");
    if (!wait && !barrier) continue;
    const std::string what =
        found_with(n, [](amd::Instruction& i) { i.run = [](amd::Wave&, const amd::Instruction&) {}; });
    (wait && !text.starts_with("s_barrier") ? waits : barriers) += 1;
    if (!what.empty()) (wait ? found_waits : found_barriers) += 1;
    EXPECT_TRUE(!wait || what != "another result") << text;
  }
  EXPECT_GE(waits, 3);
  EXPECT_EQ(found_waits, waits);
  EXPECT_GE(barriers, 1);
  EXPECT_EQ(found_barriers, barriers);
}

TEST_F(AmdTool, FindsOperandsThatAreSwapped) {
  const auto all = instructions();
  int swapped = 0;
  for (size_t n = 0; n < all.size(); ++n) {
    const std::string& text = all[n].text;
    if (!text.starts_with("v_sub_f32") && !text.starts_with("v_lshlrev_b32")) continue;
    ++swapped;
    const std::string what = found_with(n, [](amd::Instruction& i) { std::swap(i.at[1], i.at[2]); });
    EXPECT_NE(what, "") << text;
  }
  EXPECT_GE(swapped, 2);
}

// Turned bits of code are found as another result, an access outside, a register that was not waited for, or as no
// instruction; a few mean nothing (fields that are not used, hints).
TEST_F(AmdTool, FindsBitsThatAreTurned) {
  GpuCode plain(*chip_);
  plain.prepare({kernel_});
  EXPECT_EQ(found(plain), "");
  const amd::KernelCode& at = plain.kernel(kernel_).code;
  uint64_t end = 0;
  for (const amd::Instruction& i : plain.kernel(kernel_).instructions)
    if (end == 0 && i.text.starts_with("s_endpgm")) end = i.address - at.entry;
  std::mt19937 random(11);
  int turned = 0, found_turned = 0;
  const std::string object = emit::emit({&kernel_, 1}, *machine::find_machine(chip_->name), emit::Output::object);
  const auto elf = amd::read_code_object(*chip_, bytes_of(object));
  const std::string text(elf.elf.memory.begin() + static_cast<std::ptrdiff_t>(at.entry),
                         elf.elf.memory.begin() + static_cast<std::ptrdiff_t>(at.entry + at.code_bytes));
  const size_t place = object.find(text);
  ASSERT_NE(place, std::string::npos);
  for (int trial = 0; trial < 150; ++trial) {
    GpuCode code(*chip_);
    const uint64_t bit = random() % (8 * end);
    std::string damaged = object;
    damaged[place + bit / 8] = static_cast<char>(damaged[place + bit / 8] ^ 1 << (bit % 8));
    code.prepare({kernel_}, damaged);
    ++turned;
    if (!found(code).empty()) ++found_turned;
  }
  EXPECT_GT(found_turned, turned * 3 / 5) << found_turned << " of " << turned;
  RecordProperty("found", found_turned);
}

// A generation's generic object runs on every member that the interpreter knows; on others it is refused.
TEST_F(AmdTool, GenericObjectsRunOnEveryMember) {
  const std::string generic = machine::generic_of(chip_->name);
  EXPECT_EQ(generic, chip_->generic);
  if (generic.empty()) GTEST_SKIP() << chip_->name << " runs its own code alone";
  const machine::MachineRef m = machine::find_machine(generic);
  std::vector<loop::Kernel> kernels{kernel_};
  std::vector<dot_test::Case> cases;
  for (const machine::MatrixRow& r : m->matrices)
    if (!is_float(r.acc) && cases.empty()) cases.push_back(dot_test::wave_case(*m, r));
  for (const dot_test::Case& c : cases) kernels.push_back(c.kernel);
  const std::string object = emit::emit(kernels, *m, emit::Output::object);
  int members = 0;
  for (const amd::Chip& chip : amd::all_chips()) {
    SCOPED_TRACE(chip.name);
    GpuCode code(chip);
    if (machine::generic_of(chip.name) != generic) {
      EXPECT_THROW(code.prepare(kernels, object), amd::Fault);
      continue;
    }
    ++members;
    code.prepare(kernels, object);
    EXPECT_EQ(found(code), "");
    for (const dot_test::Case& c : cases) {
      std::vector<Blob> got = c.before;
      std::vector<std::span<uint8_t>> spans(got.begin(), got.end());
      EXPECT_EQ(code.run(c.kernel, spans).code, 0);
      EXPECT_EQ(got[0], c.after[0]) << c.kernel.name;
    }
  }
  EXPECT_EQ(members, generic == "gfx12-generic" ? 2 : 8);
}

// One object for both settings of XNACK; one that is for a setting is refused under the other.
TEST_F(AmdTool, ObjectsAreForBothSettingsOfXnack) {
  std::string object = emit::emit({&kernel_, 1}, *machine::find_machine(chip_->name), emit::Output::object);
  for (const bool on : {false, true}) EXPECT_NO_THROW(amd::read_code_object(*chip_, bytes_of(object), on));
  if (!chip_->cdna()) return;
  object[49] = static_cast<char>(object[49] | 2);  // any becomes on
  EXPECT_NO_THROW(amd::read_code_object(*chip_, bytes_of(object), true));
  EXPECT_THROW(amd::read_code_object(*chip_, bytes_of(object), false), amd::Fault);
}

// Damaged objects are refused with words or load; nothing crashes.
TEST_F(AmdTool, RefusesDamagedObjects) {
  const std::string object = emit::emit({&kernel_, 1}, *machine::find_machine(chip_->name), emit::Output::object);
  const auto load = [&](const std::string& bytes) -> std::string {
    try {
      amd::Machine machine(*chip_);
      machine.load(bytes_of(bytes));
    } catch (const amd::Fault& f) {
      EXPECT_GT(std::string(f.what()).size(), 5U);
      return f.what();
    }
    return "";
  };
  EXPECT_EQ(load(object), "");
  EXPECT_EQ(load("no such thing"), "ELF: the header lies outside the file");
  EXPECT_EQ(load(std::string(64, 'x')), "ELF: this is no ELF file");
  int refused = 0;
  for (size_t n = 0; n < 400; ++n) refused += !load(object.substr(0, object.size() * n / 400)).empty();
  EXPECT_GT(refused, 100);
  std::mt19937 random(3);
  refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string damaged = object;
    for (int k = 0; k < 3; ++k)
      damaged[random() % std::min<size_t>(damaged.size(), 0x900)] = static_cast<char>(random());
    refused += !load(damaged).empty();
  }
  EXPECT_GT(refused, 500);
  std::string other = object;
  other[48] = static_cast<char>(other[48] ^ 1);
  EXPECT_NE(load(other).find("for another chip"), std::string::npos);
}

}  // namespace
}  // namespace lumen::test
