// needs: aarch64-linux-gnu-gcc, its C library, and qemu-aarch64 (packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross,
// qemu-user; skipped without). Instruction rows and dots of the AArch64 machines under emulation leave the bytes the
// evaluator leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "arm_emulated.h"
#include "dot_cases.h"
#include "kernel/loop/text.h"
#include "kernel/machine/relatives.h"
#include "row_kernel.h"

namespace lumen {
namespace {

using dot_test::Case;
using dot_test::expect_equal_emulated;
using dot_test::have;

// Plans multiply two rows by two wherever the machine can.
void expect_squares(const std::vector<Case>& cases, const machine::Machine& m) {
  for (const machine::DotRow& d : m.squares) {
    const bool used = std::ranges::any_of(
        cases, [&](const Case& c) { return loop::print(c.kernel).find(" " + d.row + " %") != std::string::npos; });
    EXPECT_TRUE(used) << m.name << " " << d.row;
  }
}

TEST(DotArm, RowsAndDotsUnderEmulation) {
  if (!have("aarch64-linux-gnu-gcc")) GTEST_SKIP() << "install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross";
  if (!have("qemu-aarch64")) GTEST_SKIP() << "install qemu-user";
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (!m->triple.starts_with("aarch64")) continue;
    std::vector<Case> cases = dot_test::dot_cases(*m);
    expect_squares(cases, *m);
    for (const machine::Row& row : m->rows) cases.push_back(dot_test::row_case(*m, row));
    expect_equal_emulated(std::move(cases), *m);
  }
}

// The other lengths and generations of scalable vectors: their rows, and a few dots.
TEST(DotArm, OtherLengthsUnderEmulation) {
  if (!have("aarch64-linux-gnu-gcc")) GTEST_SKIP() << "install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross";
  if (!have("qemu-aarch64")) GTEST_SKIP() << "install qemu-user";
  std::set<int> lengths;
  for (const machine::MachineRef& m : machine::relatives()) {
    if (!m->triple.starts_with("aarch64") || !m->tiles.empty()) continue;
    lengths.insert(m->vector_bits);
    std::vector<Case> cases = dot_test::few_dot_cases(*m);
    expect_squares(cases, *m);
    for (const machine::Row& row : m->rows) cases.push_back(dot_test::row_case(*m, row));
    expect_equal_emulated(std::move(cases), *m);
  }
  EXPECT_EQ(lengths, (std::set<int>{128, 256, 512, 1024, 2048}));
}

}  // namespace
}  // namespace lumen
