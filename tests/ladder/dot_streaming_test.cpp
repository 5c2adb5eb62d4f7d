// needs: aarch64-linux-gnu-gcc, its C library, and qemu-aarch64 (packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross,
// qemu-user; skipped without). Outer products of Arm's matrix unit at every streaming length, under emulation: their
// rows, and products of matrices in each type that they multiply, whose rows and columns fill no tile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "arm_emulated.h"
#include "dot_cases.h"
#include "kernel/loop/text.h"
#include "kernel/machine/relatives.h"
#include "row_kernel.h"
#include "tests/graph/matrix_product.h"

namespace lumen {
namespace {

using dot_test::Case;

struct Extents {
  int64_t m, n, k;
};

FormatLibrary formats() {
  FormatLibrary library = FormatLibrary::builtin();
  library.add(lang::parse_file(std::make_shared<Source>(Source{"unsigned.lum", R"(format unsigned_scaled : block 512 {
  s : f32
  q : u8[512]
  decode(i) = s * q[i]
  fit(x) { s = invertible((max(j) abs(x[j])) / 255) }
  code(v) = clamp(rint(v * recip(s)), 0, 255)
})"})));
  return library;
}

// QEMU 7.2 adds products of bytes wrongly, 10.0 as the architecture says. Kernels of bytes are left out where it does
// not.
bool multiplies_bytes() {
  std::string folder = (std::filesystem::temp_directory_path() / "lumen-bytes-XXXXXX").string();
  if (!::mkdtemp(folder.data())) return false;
  write_file_atomic(folder + "/none.c", "const int table_size = 0;\nvoid* const table[1];\n");
  const std::string compile = fmt::format(
      "aarch64-linux-gnu-gcc -static -O1 -DLUMEN_OUTER -o {0}/probe {1}/tests/ladder/arm_runner.c {0}/none.c", folder,
      LUMEN_SOURCE_DIR);
  const bool is_right =
      std::system(compile.c_str()) == 0 && std::system(("qemu-aarch64 -cpu max " + folder + "/probe").c_str()) == 0;
  std::filesystem::remove_all(folder);
  return is_right;
}

bool adds_bytes(const Case& c, const machine::Machine& m) {
  return std::ranges::any_of(m.tiles, [&](const machine::TileRow& t) {
    return !is_float(t.acc) && loop::print(c.kernel).find(" " + t.row + " %") != std::string::npos;
  });
}

// A packed weight in codes of either sign, in numbers that become bf16, and in f32 where activations stay that.
void add_packed(std::vector<Case>& out, const machine::Machine& m, int64_t rows, int64_t columns) {
  const FormatLibrary library = formats();
  const auto add = [&](const char* name, int64_t k, bool exact, bool maps) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    const graph::Graph g = dot_test::contract_of({rows, k}, dot_test::type_of({columns, k}, f), "mk", "nk", "mn", maps);
    dot_test::add_cases(out, g, m, exact);
  };
  add("int8_row", 256, false, true);
  add("unsigned_scaled", 512, false, false);
  add("fp8_e4m3", 96, false, true);
  add("q4_0", 96, true, true);
}

void expect_outer(const std::vector<Case>& cases, const machine::Machine& m) {
  for (const machine::TileRow& t : m.tiles) {
    if (t.b == Scalar::u8 && t.a == Scalar::u8) continue;  // as the others of whole numbers
    const bool used = std::ranges::any_of(
        cases, [&](const Case& c) { return loop::print(c.kernel).find(" " + t.row + " %") != std::string::npos; });
    EXPECT_TRUE(used) << m.name << " " << t.row;
  }
}

TEST(DotStreaming, ProductsUnderEmulation) {
  if (!dot_test::have("aarch64-linux-gnu-gcc")) GTEST_SKIP() << "install gcc-aarch64-linux-gnu, libc6-dev-arm64-cross";
  if (!dot_test::have("qemu-aarch64")) GTEST_SKIP() << "install qemu-user";
  const bool bytes = multiplies_bytes();
  if (!bytes) std::cout << "this qemu-aarch64 adds outer products of bytes wrongly: those kernels are not executed\n";
  std::set<int> lengths;
  for (const machine::MachineRef& found : machine::relatives()) {
    if (!found->triple.starts_with("aarch64") || found->tiles.empty()) continue;
    auto m = std::make_shared<machine::Machine>(*found);
    m->dots.clear();  // or short vectors would not need the unit
    m->squares.clear();
    const int side = m->tiles[0].rows;
    lengths.insert(side * 32);
    const bool is_long = side > 16;  // slow to evaluate
    const Extents e = is_long ? Extents{side + 1, 19, 5} : Extents{side + 5, side + 3, 37};
    std::vector<Case> cases;
    for (const Scalar s : {Scalar::f32, Scalar::bf16, Scalar::f16})
      for (const char* ia : {"mk", "km"})
        for (const char* ib : {"nk", "kn"}) {  // all of them at one length, elsewhere one of each type
          const std::string own = s == Scalar::f32 ? "mk nk" : s == Scalar::bf16 ? "km kn" : "mk kn";
          if ((side == 16 && s != Scalar::f16) || own == fmt::format("{} {}", ia, ib))
            dot_test::add_cases(cases, graph::matrix_product(e.m, e.n, e.k, s, ia, ib), *m, true);
        }
    if (!is_long) {
      add_packed(cases, *m, e.m, e.n);
      for (const Scalar read : {Scalar::i8, Scalar::u8}) dot_test::add_convolution_cases(cases, *m, read);
      expect_outer(cases, *m);
    }
    for (const machine::TileRow& t : m->tiles) cases.push_back(dot_test::row_case(*m, *m->find_row(t.row)));
    if (!bytes) std::erase_if(cases, [&](const Case& c) { return adds_bytes(c, *m); });
    dot_test::expect_equal_emulated(std::move(cases), *m);
  }
  EXPECT_EQ(lengths, (std::set<int>{128, 256, 512, 1024, 2048}));
}

}  // namespace
}  // namespace lumen
