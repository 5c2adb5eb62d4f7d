// Needs: aarch64-linux-gnu-gcc and qemu-aarch64 (skipped without). Every scalar operation and the rows of the AArch64
// machines, emulated: equal to the evaluator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file/file.h"
#include "scalar_cases.h"
#include "tests/verified.h"

namespace lumen::emit {
namespace {

using loop::Expr;

bool have(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-foreign-XXXXXX").string();
    if (::mkdtemp(name.data())) path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

void put(std::string& out, uint64_t x) {
  out.append(reinterpret_cast<const char*>(&x), 8);
}

// Results of all cases as the emulated machine computes them: the last buffer of each.
std::vector<Bytes> run_emulated(const std::vector<Case>& cases, const machine::Machine& m) {
  const Folder folder;
  std::vector<loop::Kernel> kernels;
  std::string table = "typedef void (*kernel)(void* const*, long, long, long*);\n", names, input;
  for (const Case& c : cases) {
    kernels.push_back(c.kernel);
    const std::string symbol = symbol_name(c.kernel);
    table += "void " + symbol + "(void* const*, long, long, long*);\n";
    names += symbol + ", ";
    put(input, c.buffers.size());
    put(input, static_cast<uint64_t>(c.kernel.tasks));
    for (const Bytes& b : c.buffers) {
      put(input, b.size());
      input.append(b.begin(), b.end());
    }
  }
  table += "const kernel table[] = {" + names + "};\nconst int table_size = " + std::to_string(cases.size()) + ";\n";
  const auto in = [&](const char* name) { return (folder.path / name).string(); };
  write_file_atomic(in("kernels.o"), emit(kernels, m, Output::object));
  write_file_atomic(in("table.c"), table);
  write_file_atomic(in("input"), input);
  const std::string build = "aarch64-linux-gnu-gcc -static -O1 -o " + in("runner") + " " + LUMEN_SOURCE_DIR +
                            "/tests/emit/foreign_runner.c " + in("table.c") + " " + in("kernels.o");
  EXPECT_EQ(std::system(build.c_str()), 0) << build;
  const std::string length = m.scalable ? fmt::format(",sve-default-vector-length={}", m.vector_bits / 8) : "";
  EXPECT_EQ(
      std::system(
          ("qemu-aarch64 -cpu max" + length + " " + in("runner") + " < " + in("input") + " > " + in("output")).c_str()),
      0);
  const std::string output = read_file(in("output"));
  std::vector<Bytes> results;
  size_t at = 0;
  for (const Case& c : cases) {
    const size_t size = c.buffers.back().size();
    if (at + size + 16 > output.size()) break;
    results.emplace_back(output.begin() + static_cast<std::ptrdiff_t>(at),
                         output.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size + 16;
  }
  return results;
}

void check_emulated(const std::vector<Case>& cases, const machine::Machine& m) {
  std::vector<Bytes> got = run_emulated(cases, m);
  ASSERT_EQ(got.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    Bytes want = run_eval(c.kernel, c.buffers, [&](std::string_view row) { return m.meaning(row); }).back();
    quiet(want, c.result);
    quiet(got[i], c.result);
    EXPECT_EQ(want, got[i]) << m.name << ": " << c.kernel.name;
  }
}

class Foreign : public testing::Test {
 protected:
  void SetUp() override {
    if (!have("aarch64-linux-gnu-gcc") || !have("qemu-aarch64")) GTEST_SKIP() << "no AArch64 compiler or emulator here";
  }
};

TEST_F(Foreign, ScalarOperations) {
  std::vector<Case> cases;
  for (int op = 0; op < static_cast<int>(ScalarOp::input); ++op)
    for (const int lanes : {1, 13})
      for (Case& c : cases_of(static_cast<ScalarOp>(op), lanes)) cases.push_back(std::move(c));
  check_emulated(cases, *machine::find_machine("neon"));
  test::verified("neon", "scalars", "interpreted");
}

TEST_F(Foreign, CountedAccesses) {
  std::vector<Case> cases;
  for (const Scalar s : {Scalar::i8, Scalar::u16, Scalar::f16, Scalar::f32, Scalar::f64, Scalar::boolean}) {
    Builder b("counted");
    Case c{{}, {random_numbers(s, 64, 3), Bytes(512, 0x5A)}, s};
    quiet(c.buffers[0], s);
    const loop::BufferId x = b.param("x", static_cast<int64_t>(c.buffers[0].size()), false),
                         y = b.param("y", 512, true);
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(20), 1, [&](Expr i) {
      const Expr count = i - 2;
      b.store(y, b.load(x, {s, 16}, b.i64(0), 1, count), i * 16, 1, count);
    });
    c.kernel = b.finish();
    cases.push_back(std::move(c));
  }
  check_emulated(cases, *machine::find_machine("neon"));
}

TEST_F(Foreign, RowsOfEveryMachine) {
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (m->kind != machine::Kind::cpu || !m->triple.starts_with("aarch64")) continue;
    std::vector<Case> cases;
    for (const machine::Row& row : m->rows) {
      const loop::Function* f = m->meaning(row.name);
      Builder b("row " + row.name);
      const VType result = f->body.value_types[static_cast<size_t>(f->result)];
      Case c{{}, {}, result.scalar};
      std::vector<loop::BufferId> in;
      for (size_t i = 0; i < f->params.size(); ++i) {
        const VType t = f->body.value_types[static_cast<size_t>(f->params[i])];
        c.buffers.push_back(random_numbers(t.scalar, static_cast<size_t>(t.lanes), 5 + i));
        in.push_back(b.param("x", static_cast<int64_t>(c.buffers.back().size()), false));
      }
      c.buffers.emplace_back(static_cast<size_t>(result.lanes * scalar_bytes(result.scalar)));
      const loop::BufferId y = b.param("y", static_cast<int64_t>(c.buffers.back().size()), true);
      b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) {
        std::vector<Expr> x;
        for (size_t i = 0; i < in.size(); ++i)
          x.push_back(b.load(in[i], f->body.value_types[static_cast<size_t>(f->params[i])], at));
        b.store(y, b.inst(row.name, result, x), at);
      });
      c.kernel = b.finish();
      cases.push_back(std::move(c));
    }
    ASSERT_FALSE(cases.empty()) << m->name;
    check_emulated(cases, *m);
    test::verified(m->name, "instructions", "interpreted");
  }
}

}  // namespace
}  // namespace lumen::emit
