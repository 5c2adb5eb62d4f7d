// Needs: none. Whole texts of small kernels, of every kind and for every class of machines, against tests/golden/loop.
#include <gtest/gtest.h>

#include <algorithm>

#include "cases.h"
#include "golden_text.h"
#include "kernel/loop/text.h"
#include "tests/kernel/synth/attention/attend_cases.h"
#include "tests/kernel/synth/codes_cases.h"
#include "tests/kernel/synth/picked_cases.h"

namespace lumen::golden {
namespace {

// A small kernel and the machines whose text is kept.
struct Small {
  Case kernel;
  std::vector<std::string> machines;
  std::string only = {};  // of its steps those whose plan contains this
};

// Longer kernels are read by nobody: of those their beginning is kept, and a digest.
constexpr size_t kWhole = 260, kBeginning = 60;

Case case_of(std::string name, const test::G& t, Scalar products = Scalar::f32) {
  Case c{std::move(name), t.g, {}};
  c.options.products = products;
  return c;
}

// Products on processors: tiles, panels for dots of integers and 16-bit floats, matrix units, few rows.
void add_cpu_products(std::vector<Small>& out) {
  out.push_back({product("tiles f32", {.m = 2, .n = 8, .k = 4}), {"x86-64-v3", "avx512", "neon"}});
  out.push_back({product("tiles dx", {.m = 8, .n = 8, .k = 32, .order = Order::dx}), {"x86-64-v3"}});
  out.push_back({product("tiles dw", {.m = 8, .n = 8, .k = 32, .order = Order::dw}), {"avx512"}});
  out.push_back({product("panel integers", {.m = 7, .n = 8, .k = 32, .format = "q4_0"}),
                 {"x86-64-v3", "avx512-vnni", "neon-dotprod"}});
  out.push_back({product("panel bf16", {.m = 7, .n = 16, .k = 32, .scalar = Scalar::bf16}), {"amx"}});
  out.push_back({product("panel outer", {.m = 16, .n = 16, .k = 32}), {"sme-256"}});
  out.push_back({product("rows f32", {.m = 1, .n = 16, .k = 64}), {"x86-64-v3", "neon"}});
  out.push_back({product("rows q4_0", {.m = 1, .n = 16, .k = 64, .format = "q4_0"}),
                 {"x86-64-v3", "avx512-vnni", "neon-dotprod"}});
  out.push_back({product("rows q4_k", {.m = 1, .n = 4, .k = 256, .format = "q4_k"}), {"x86-64-v3"}});
  out.push_back({product("rows nf4", {.m = 1, .n = 16, .k = 64, .format = "nf4"}), {"avx512-bf16"}});
}

// Products on GPUs: blocks of lanes by every kind of instruction, streaming weights.
void add_gpu_products(std::vector<Small>& out) {
  out.push_back({product("blocks bf16", {.m = 128, .n = 128, .k = 64, .scalar = Scalar::bf16}),
                 {"sm_80", "gfx906", "gfx942", "gfx1100"}});
  out.push_back({product("blocks f32", {.m = 64, .n = 64, .k = 32}), {"sm_80", "gfx90a"}});
  out.push_back(
      {product("blocks dw", {.m = 64, .n = 64, .k = 64, .order = Order::dw, .scalar = Scalar::bf16}), {"sm_80"}});
  out.push_back({product("blocks q4_0", {.m = 64, .n = 64, .k = 64, .format = "q4_0"}), {"gfx1201"}});
  out.push_back(
      {product("blocks in shared memory", {.m = 512, .n = 4096, .k = 256, .scalar = Scalar::bf16}), {"sm_90a"}});
  out.push_back({product("blocks split-k", {.m = 64, .n = 64, .k = 2048, .scalar = Scalar::bf16}), {"sm_90a"}});
  out.push_back({product("skinny dot q4_0", {.m = 1, .n = 64, .k = 1024, .format = "q4_0"}), {"sm_80", "gfx1030"}});
  out.push_back({product("skinny dot f32", {.m = 1, .n = 64, .k = 1024}), {"sm_80", "gfx942"}});
  out.push_back({product("skinny mma q4_0", {.m = 8, .n = 64, .k = 1024, .format = "q4_0"}), {"sm_80", "gfx942"}});
  out.push_back({product("skinny mma nf4", {.m = 8, .n = 64, .k = 1024, .format = "nf4"}), {"sm_90a"}});
}

void add_attention(std::vector<Small>& out) {
  using test::attention_graph;
  out.push_back({case_of("attention one query", attention_graph({.keys = 32, .repeat = 2})), {"x86-64-v3", "sm_90a"}});
  out.push_back({case_of("attention queries", attention_graph({.queries = 16, .keys = 16})), {"x86-64-v3"}});
  out.push_back({case_of("attention split-kv", attention_graph({.keys = 2000, .repeat = 4})), {"sm_80"}});
  out.push_back({case_of("attention blocks", attention_graph({.queries = 64, .keys = 64}), Scalar::bf16),
                 {"sm_80", "sm_90a", "gfx942", "gfx1100"},
                 "attend "});
  out.push_back({case_of("attention gradient", test::gradient_graph(1, 16, 1, 1, 16, 16), Scalar::bf16),
                 {"x86-64-v3", "sm_80", "gfx942"},
                 "attend gradient"});
  out.push_back({case_of("attention pages", test::table_graph({.keys = 16})), {"x86-64-v3"}});
}

void add_others(std::vector<Small>& out) {
  out.push_back({elementwise("map", 4, 64), {"avx512", "neon", "sm_90a", "gfx1100"}});
  out.push_back({dropout("map dropout", 4, 64), {"x86-64-v3"}});
  out.push_back({softmax("softmax", 3, 50), {"x86-64-v3", "gfx942"}});
  out.push_back({norm("norm", 4, 64), {"avx512", "sm_90a"}});
  out.push_back({norm_gradient("norm gradient", 16, 64), {"x86-64-v3", "gfx942"}});
  out.push_back({cross_entropy("cross entropy", 4, 40), {"x86-64-v3"}});
  out.push_back({column_sums("column sums", 64, 48), {"x86-64-v3", "sm_90a"}});
  out.push_back({total("total", 100000), {"x86-64-v3"}});
  out.push_back({encoding("encode q8_0", "q8_0", 2, 32), {"x86-64-v3", "sm_90a"}});
  out.push_back({encoding("encode q4_0", "q4_0", 2, 32), {"neon"}});
  out.push_back({encoding("encode mxfp4", "mxfp4", 2, 32), {"gfx942"}});
  out.push_back({decoding("decode q4_0", "q4_0", 2, 64), {"x86-64-v3", "neon", "gfx1100"}});
  out.push_back({decoding("decode q6_k", "q6_k", 1, 256), {"avx512"}});
  out.push_back({gather("gather", "q8_0", 10, 32, 3), {"neon", "sm_80"}});
  out.push_back({scatter("scatter", 5, 16, 9), {"x86-64-v3", "sm_90a"}});
  out.push_back({transposition("transposition", 32, 48), {"x86-64-v3", "sm_90a"}});
  out.push_back({concatenation("concatenation", 2, 32), {"avx512"}});
  out.push_back({cache_update("cache", "q8_0", 8, 64), {"x86-64-v3"}});
  out.push_back({case_of("codes", test::codes_graph({{32, 64}, {32, 64}})), {"sm_90a"}});
  const test::Experts experts{.rows = 4, .picked = 2, .experts = 3, .wide = 16, .deep = 32};
  out.push_back({case_of("experts", test::second_of_experts(experts)), {"x86-64-v3", "sm_90a"}});
}

std::vector<Small> all() {
  std::vector<Small> out;
  add_cpu_products(out);
  add_gpu_products(out);
  add_attention(out);
  add_others(out);
  return out;
}

TEST(Loops, AreAsCommitted) {
  std::set<std::string> files;
  for (const Small& small : all())
    for (const std::string& name : small.machines) {
      const std::vector<Made> made = make(small.kernel, *machine::find_machine(name), false);
      std::string file = fmt::format("{}.{}.loop", small.kernel.name, name);
      std::replace(file.begin(), file.end(), ' ', '-');
      EXPECT_TRUE(files.insert(file).second) << file;
      expect_text("loop/" + file, text_of(made, small.only, kWhole, kBeginning));
    }
  expect_no_others("loop", files);
}

// "CASE | MACHINE | PLAN | SUMMARY | DIGEST" for each kernel, and how each product is computed.
TEST(Loops, HaveTheirSummaries) {
  std::string table;
  for (const Small& small : all())
    for (const std::string& name : small.machines) {
      const machine::Machine& m = *machine::find_machine(name);
      for (const std::string& schedule : schedules(small.kernel, m))
        table += fmt::format("{} | {} | schedule | {}\n", small.kernel.name, name, schedule);
      for (const Made& made : make(small.kernel, m, false))
        for (const synth::Step& step : made.chosen.steps)
          if (step.plan.find(small.only) != std::string::npos)
            table += fmt::format("{} | {} | {} | {} | {}\n", small.kernel.name, name, step.plan,
                                 summary_of(step.kernel), digest(step.kernel));
    }
  expect_text("kernels.txt", table);
}

}  // namespace
}  // namespace lumen::golden
