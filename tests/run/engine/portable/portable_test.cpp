// Needs: cpu. Programs without an engine, built by a C compiler and run: this processor's, and where there are
// compilers and emulators AArch64's and a microcontroller's, against the graph evaluator.
#include "run/engine/portable/portable.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file/file.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "run/engine/stages.h"
#include "tests/run/engine/portable/bare_program.h"
#include "tests/run/functions.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Graph;
using graph::ValueId;

// A function whose inputs of these names are parameters.
Graph with_parameters(const std::string& text, const std::string& names) {
  Graph g = function_of(text);
  for (const ValueId v : g.inputs())
    if (names.find(g[v].attributes.name) != std::string::npos) g[v].attributes.role = graph::Role::parameter;
  return g;
}

PortableProgram program_of(const Graph& g, const std::map<std::string, Tensor>& inputs, const std::string& machine,
                           const CompileOptions& compile = {}) {
  return portable_program(g, compile, machine, [&](const std::string& name) { return to_bytes(inputs.at(name)); });
}

// What compiles C, and what runs that here. `library`: there is one; else Linux is asked directly.
struct Target {
  std::string machine, compile, link, emulator;
  bool library = true;
};

std::vector<Target> targets() {
  std::vector<Target> out;
  if (is_installed("cc")) out.push_back({native_machine_name(), "cc -O1 -c", "cc -o program", ""});
  if (is_installed("aarch64-linux-gnu-gcc") && is_installed("qemu-aarch64"))
    out.push_back({"neon", "aarch64-linux-gnu-gcc -O1 -c", "aarch64-linux-gnu-gcc -static -o program", "qemu-aarch64"});
  const std::string clang = is_installed("clang-22") ? "clang-22" : "clang";
  if (is_installed(clang) && is_installed("ld.lld-22") && is_installed("qemu-arm"))
    out.push_back({"cortex-m4",
                   clang + " --target=thumbv7em-none-eabihf -mcpu=cortex-m4 -O1 -fomit-frame-pointer -ffreestanding -c",
                   "ld.lld-22 -o program", "qemu-arm -cpu max", false});
  return out;
}

// Reads every input, and writes every result of two runs: nothing is left of the first.
std::string runner(const Graph& g, bool library) {
  std::string arrays, inputs, results, reads, writes;
  const auto array = [&](const std::string& name, ValueId v, std::string* list) {
    arrays += fmt::format("static char {}[{}] __attribute__((aligned(64)));\n", name, graph::byte_size(g[v].type));
    *list += name + ", ";
  };
  for (const ValueId v : g.inputs()) {
    if (g[v].attributes.role != graph::Role::data) continue;
    const std::string name = fmt::format("in{}", v);
    array(name, v, &inputs);
    reads += fmt::format("  if (!take({0}, sizeof {0})) leave(3);\n", name);
  }
  for (size_t i = 0; i < g.results.size(); ++i) {
    const std::string name = fmt::format("out{}", i);
    array(name, g.results[i], &results);
    writes += fmt::format("  give({0}, sizeof {0});\n", name);
  }
  return std::string(library ? kWithLibrary : kWithoutLibrary) +
         "int lumen_run(const void* const* inputs, void* const* results);\n" + arrays + "BEGIN {\n" + reads +
         "  const void* inputs[] = {" + inputs + "};\n  void* results[] = {" + results + "};\n" +
         "  for (int run = 0; run < 2; ++run) {\n    if (lumen_run(inputs, results)) leave(1);\n" + writes +
         "  }\n  leave(0);\n  __builtin_unreachable();\n}\n";
}

// Results of the second run, one after another.
std::string run_of(const Graph& g, const std::map<std::string, Tensor>& inputs, const PortableProgram& made,
                   const Target& target) {
  const TemporaryFolder folder;
  const std::string at = folder.path().string() + "/";
  write_file_atomic(at + "kernels.o", made.object);
  write_file_atomic(at + "model.c", made.source);
  write_file_atomic(at + "main.c", runner(g, target.library));
  std::string given;
  for (const ValueId v : g.inputs()) {
    if (g[v].attributes.role != graph::Role::data) continue;
    const std::vector<uint8_t> bytes = to_bytes(inputs.at(g[v].attributes.name));
    given.append(bytes.begin(), bytes.end());
  }
  write_file_atomic(at + "given", given);
  const std::string build =
      fmt::format("cd {0} && {1} main.c -o main.o && {1} model.c -o model.o && {2} main.o model.o kernels.o", at,
                  target.compile, target.link);
  EXPECT_EQ(std::system(build.c_str()), 0) << build;
  EXPECT_EQ(std::system(fmt::format("cd {} && {} ./program < given > made", at, target.emulator).c_str()), 0);
  const std::string both = read_file(at + "made");
  EXPECT_EQ(both.substr(0, both.size() / 2), both.substr(both.size() / 2));
  return both.substr(both.size() / 2);
}

void check_everywhere(const Graph& g, const std::map<std::string, Tensor>& inputs, const std::vector<Tensor>& want,
                      const CompileOptions& compile = {}) {
  for (const Target& target : targets()) {
    SCOPED_TRACE(target.machine);
    const std::string made = run_of(g, inputs, program_of(g, inputs, target.machine, compile), target);
    size_t at = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(i);
      double range = 1e-3;
      for (const double x : want[i].values) range = std::max(range, std::abs(x));
      std::vector<float> got(want[i].values.size());
      ASSERT_LE(at + 4 * got.size(), made.size());
      std::memcpy(got.data(), made.data() + at, 4 * got.size());
      at += 4 * got.size();
      for (size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], want[i].values[k], 1e-5 * range) << k;
    }
    EXPECT_EQ(at, made.size());
  }
}

// Cells of the library, forwards and backwards, over items that rows of a table stand for; a scan in a scan; what a
// step began with; carries that are made of each other; no carry; and one step. One input is read by nothing.
constexpr const char* kEverything =
    "fn back(h: f32[D], m: f32[D], x: f32[I], w: f32[4 * D, I], u: f32[4 * D, D], b: f32[4 * D]) "
    "-> f32[D], f32[D], f32[D] {\n"
    "  let (now, memory) = lstm_cell(reshape(x, [1, I]), reshape(h, [1, D]), reshape(m, [1, D]), w, u, b, b)\n"
    "  return reshape(now, [D]), reshape(memory, [D]), h\n"
    "}\n"
    "fn inner(h: f32[D], x: f32[D], k: f32[D]) -> f32[D], f32[D] {\n"
    "  let next = tanh(h * k + x)\n"
    "  return next, next\n"
    "}\n"
    "fn outer(h: f32[D], n: i32, rows: f32[S, D], k: f32[D]) -> f32[D], i32, f32[D] {\n"
    "  let (last, all) = scan(inner, [h], [rows], k, reverse = 1)\n"
    "  return last, n + 1, sum(all * f32(n), 0)[0, :]\n"
    "}\n"
    "fn turned(a: f32[D], b: f32[D], x: f32[D]) -> f32[D], f32[D] { return b, a * x }\n"
    "fn alone(x: f32[D], k: f32[D]) = x * tanh(k * x)\n"
    "fn f(items: i32[1, 7], unread: f32[3], blocks: f32[5, 3, 4], table: f32[11, 5], w: f32[18, 5], u: f32[18, 6], "
    "b: f32[18], w4: f32[16, 5], u4: f32[16, 4], b4: f32[16], k: f32[4])\n"
    "    -> f32[1, 7, 6], f32[4], f32[7, 4], f32[4], f32[5, 4], f32[4], f32[4], f32[5, 3, 4], f32[1, 1, 6] {\n"
    "  let x = table[items]\n"
    "  let states = gru(x, broadcast(0.0, [1, 6]), w, u, b, b)\n"
    "  let (h, m, before) = scan(back, [broadcast(0.5, [4]), k], [reshape(x, [7, 5])], w4, u4, b4, reverse = 1)\n"
    "  let (deep, count, sums) = scan(outer, [k, broadcast(1, [])], [blocks], k)\n"
    "  let (p, q) = scan(turned, [k, deep], [blocks[:, 0, :]])\n"
    "  let singles = reshape(scan(alone, [], [reshape(blocks, [15, 4])], k), [5, 3, 4])\n"
    "  let once = gru(x[:, 2:3, :], broadcast(0.0, [1, 6]), w, u, b, b)\n"
    "  return states, h, before, deep, sums, p, q, singles, once\n"
    "}\n";

TEST(Portable, ScansAreLoops) {
  const Graph g = with_parameters(kEverything, "table w4 u4 b4 k");
  const auto inputs = random_inputs(g, 21);
  check_everywhere(g, inputs, graph::eval(g, inputs));
}

// Weights lie as they are stored, and are decoded in the steps.
TEST(Portable, StepsReadWeightsInFormats) {
  const Graph g = with_parameters(
      "fn f(x: f32[2, 4, 32], h: f32[2, 32], w: f32[96, 32], u: f32[96, 32], b: f32[96]) = gru(x, h, w, u, b, b)\n",
      "w u b");
  const FormatRef f = FormatLibrary::builtin().get("q8_0");
  auto inputs = random_inputs(g, 9), decoded = inputs;
  CompileOptions compile;
  compile.exact = true;
  for (const char* weight : {"u", "w"}) {
    compile.assignments.push_back({graph::FormatAssignment::What::stored, weight, f, FieldSource::fitted});
    Tensor& t = inputs.at(weight);
    t.blob = encode(*f, std::vector<float>(t.values.begin(), t.values.end()), 96, 32, {});
    t.type.element.format = f;
    const std::vector<float> back = decode(*f, t.blob, 96, 32);
    decoded.at(weight).values.assign(back.begin(), back.end());
  }
  check_everywhere(g, inputs, graph::eval(g, decoded), compile);
}

// Memory is that of the carries and one step, products of what comes in included; inputs and results are the caller's.
TEST(Portable, MemoryDoesNotGrowWithSteps) {
  std::vector<PortableProgram> made;
  for (const int steps : {1, 5, 80}) {
    const Graph g = with_parameters(
        fmt::format(
            "fn f(x: f32[{0}, 1, 12], h: f32[1, 8], w: f32[24, 12], u: f32[24, 8], b: f32[24]) -> f32[1, 8] {{\n"
            "  let (last, all) = scan(gru_next, [h], [x], w, u, b, b)\n  return last\n}}\n",
            steps),
        "w u b");
    made.push_back(program_of(g, random_inputs(g, 3), "cortex-m4"));
    EXPECT_EQ(made.back().arena_bytes, made[0].arena_bytes) << steps;
    EXPECT_EQ(made.back().kernels, made[0].kernels) << steps;
    EXPECT_EQ(made.back().launches, made[0].launches) << steps;
    EXPECT_EQ(made.back().constant_bytes, 4 * (24 * 12 + 24 * 8 + 24)) << steps;
  }
  // Two places of the state, what both products give, and the rest of one step.
  EXPECT_LE(made[0].arena_bytes, 1024);
}

TEST(Portable, StatesAreRefused) {
  Graph g = function_of("fn f(x: f32[4], s: f32[4]) = x + s\n");
  g[g.find_input("s")].attributes.role = graph::Role::state;
  const auto inputs = random_inputs(g, 1);
  EXPECT_THROW(program_of(g, inputs, "neon"), Error);
}

}  // namespace
}  // namespace lumen::run
