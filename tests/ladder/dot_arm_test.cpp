// needs: aarch64-linux-gnu-gcc, its C library, and qemu-aarch64 (packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross,
// qemu-user; skipped without). Instruction rows and dots of the AArch64 machines under emulation leave the bytes the
// evaluator leaves.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file/file.h"
#include "dot_cases.h"
#include "kernel/loop/text.h"
#include "kernel/machine/relatives.h"
#include "row_kernel.h"
#include "tests/verified.h"

namespace lumen {
namespace {

using dot_test::Bytes;
using dot_test::Case;

bool have(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

void put(std::string& out, uint64_t x) {
  out.append(reinterpret_cast<const char*>(&x), 8);
}

void expect_equal_emulated(std::vector<Case> cases, const machine::Machine& m) {
  std::string folder = (std::filesystem::temp_directory_path() / "lumen-arm-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::vector<loop::Kernel> kernels;
  std::string table = "typedef void (*kernel)(void* const*, long, long, long*);\n", names, input;
  for (size_t i = 0; i < cases.size(); ++i) {
    Case& c = cases[i];
    c.kernel.name = "case" + std::to_string(i) + "_" + c.kernel.name;  // equal kernels occur twice
    kernels.push_back(c.kernel);
    const std::string symbol = emit::symbol_name(c.kernel);
    table += "void " + symbol + "(void* const*, long, long, long*);\n";
    names += symbol + ", ";
    put(input, c.before.size());
    put(input, static_cast<uint64_t>(c.kernel.tasks));
    for (const Bytes& b : c.before) {
      put(input, b.size());
      input.append(b.begin(), b.end());
    }
  }
  table += "const kernel table[] = {" + names + "};\nconst int table_size = " + std::to_string(cases.size()) + ";\n";
  write_file_atomic(folder + "/kernels.o", emit::emit(kernels, m, emit::Output::object));
  write_file_atomic(folder + "/table.c", table);
  write_file_atomic(folder + "/input", input);
  const std::string build = "aarch64-linux-gnu-gcc -static -O1 -o " + folder + "/runner " + LUMEN_SOURCE_DIR +
                            "/tests/ladder/arm_runner.c " + folder + "/table.c " + folder + "/kernels.o";
  ASSERT_EQ(std::system(build.c_str()), 0) << build;
  // A processor without the second generation where there is one with such vectors.
  const std::string cpu = m.name == "sve-128" || m.name == "sve-512" ? "a64fx" : "max";
  const std::string length = m.scalable ? fmt::format(",sve-default-vector-length={}", m.vector_bits / 8) : "";
  const std::string run =
      fmt::format("qemu-aarch64 -cpu {0}{1} {2}/runner < {2}/input > {2}/output", cpu, length, folder);
  ASSERT_EQ(std::system(run.c_str()), 0) << run;
  const std::string output = read_file(folder + "/output");
  std::filesystem::remove_all(folder);
  size_t at = 0;
  for (const Case& c : cases)
    for (size_t i = 0; i < c.after.size(); ++i) {
      const size_t size = c.after[i].size();
      ASSERT_LE(at + size, output.size());
      EXPECT_TRUE(std::memcmp(output.data() + at, c.after[i].data(), size) == 0)
          << m.name << " " << c.kernel.name << " buffer " << i;
      at += size;
    }
  for (const char* kind : {"dot", "instructions"}) test::verified(m.name, kind, "interpreted");
}

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
    if (!m->triple.starts_with("aarch64")) continue;
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
