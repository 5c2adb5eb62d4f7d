// Kernels of an AArch64 machine under an emulator of the processor: every buffer holds afterwards what the evaluator
// leaves in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file/file.h"
#include "dot_native.h"
#include "tests/verified.h"

namespace lumen::dot_test {

inline bool have(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

inline void put(std::string& out, uint64_t x) {
  out.append(reinterpret_cast<const char*>(&x), 8);
}

inline void expect_equal_emulated(std::vector<Case> cases, const machine::Machine& m) {
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
  const std::string build = fmt::format(
      "aarch64-linux-gnu-gcc -static -O1 {}-o {}/runner {}/tests/ladder/arm_runner.c {}/table.c {}/kernels.o",
      m.tiles.empty() ? "" : "-DLUMEN_OUTER ", folder, LUMEN_SOURCE_DIR, folder, folder);
  ASSERT_EQ(std::system(build.c_str()), 0) << build;
  // A processor without the second generation where there is one with such vectors.
  const std::string cpu = m.name == "sve-128" || m.name == "sve-512" ? "a64fx" : "max";
  std::string length = m.scalable ? fmt::format(",sve-default-vector-length={}", m.vector_bits / 8) : "";
  if (!m.tiles.empty()) length += fmt::format(",sme-default-vector-length={}", m.tiles[0].rows * 4);
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

}  // namespace lumen::dot_test
