#include "grid.h"

#include <algorithm>

#include "cases.h"
#include "tests/kernel/synth/attention/attend_cases.h"
#include "tests/kernel/synth/codes_cases.h"
#include "tests/kernel/synth/picked_cases.h"

namespace lumen::golden {
namespace {

// A user's own last (tests/golden/formats).
const std::vector<std::string> kFormats = {"f32",  "bf16", "f16",   "fp8_e4m3", "q8_0",     "q4_0",
                                           "q4_k", "q6_k", "mxfp4", "nf4",      "int3_g64", "squared5"};
constexpr int64_t kWide = 4096;

Case case_of(std::string name, const test::G& t, Scalar products = Scalar::f32) {
  Case c{std::move(name), t.g, {}};
  c.options.products = products;
  return c;
}

void add_products(std::vector<Case>& cases) {
  for (const std::string& f : kFormats) {
    for (const int64_t m : {1, 2, 4, 8, 32})
      cases.push_back(product(fmt::format("{} rows {}", f, m), {.m = m, .n = kWide, .k = kWide, .format = f}));
    cases.push_back(product(f + " prompt", {.m = 512, .n = kWide, .k = kWide, .format = f}));
  }
  for (const std::string f : {"f32", "bf16", "q4_0", "q4_k", "nf4"})
    cases.push_back(product(f + " ragged", {.m = 77, .n = 1001, .k = 2048, .format = f}));
  for (const std::string f : {"q8_0", "q4_k", "mxfp4"})
    cases.push_back(product(f + " exact", {.m = 3, .n = kWide, .k = kWide, .format = f, .exact = true}));
  // Beside a frozen weight.
  for (const std::string f : {"f32", "fp8_e4m3", "q4_0", "nf4", "squared5"})
    for (const auto& [name, order] : {std::pair{"forward", Order::forward}, {"dx", Order::dx}})
      cases.push_back(
          product(fmt::format("{} bf16 {}", f, name),
                  {.m = 1024, .n = 1024, .k = 2048, .order = order, .format = f, .products = Scalar::bf16}));
  for (const auto& [name, order] : {std::pair{"forward", Order::forward}, {"dx", Order::dx}, {"dw", Order::dw}}) {
    for (const Scalar s : {Scalar::f32, Scalar::bf16, Scalar::f16})
      cases.push_back(product(fmt::format("train {} {}", scalar_name(s), name),
                              {.m = 1024, .n = 1024, .k = 2048, .order = order, .scalar = s, .products = s}));
    cases.push_back(product(fmt::format("train fp8 {}", name),
                            {.m = 1024, .n = 1024, .k = 2048, .order = order, .both = "fp8_e4m3"}));
  }
}

void add_attention(std::vector<Case>& cases) {
  using test::attention_graph;
  const FormatRef q8 = format_of("q8_0");
  cases.push_back(
      case_of("attention decode",
              attention_graph({.queries = 1, .keys = 2048, .groups = 8, .repeat = 4, .depth = 128, .width = 128})));
  cases.push_back(
      case_of("attention decode q8_0",
              attention_graph(
                  {.queries = 1, .keys = 2048, .groups = 8, .repeat = 4, .depth = 128, .width = 128, .format = q8})));
  cases.push_back(case_of(
      "attention few window",
      attention_graph(
          {.batch = 2, .queries = 4, .keys = 700, .groups = 2, .repeat = 2, .depth = 96, .width = 96, .window = 256})));
  for (const Scalar s : {Scalar::f32, Scalar::bf16, Scalar::f16}) {
    const std::string name(scalar_name(s));
    cases.push_back(case_of(
        "attention prompt " + name,
        attention_graph({.queries = 512, .keys = 512, .groups = 8, .repeat = 4, .depth = 128, .width = 128}), s));
    cases.push_back(
        case_of("attention bias " + name,
                attention_graph({.queries = 70, .keys = 70, .groups = 3, .depth = 80, .width = 80, .bias = true}), s));
    cases.push_back(case_of("attention gradient " + name, test::gradient_graph(2, 256, 4, 2, 64, 64), s));
    cases.push_back(case_of("attention gradient wide " + name, test::gradient_graph(1, 200, 2, 1, 128, 128), s));
  }
  cases.push_back(
      case_of("attention pages",
              test::table_graph(
                  {.texts = 3, .queries = 1, .keys = 300, .places = 1000, .groups = 2, .repeat = 4, .depth = 128})));
  cases.push_back(case_of("attention pages q8_0", test::table_graph({.texts = 3,
                                                                     .queries = 2,
                                                                     .keys = 300,
                                                                     .places = 1000,
                                                                     .groups = 2,
                                                                     .repeat = 4,
                                                                     .depth = 128,
                                                                     .format = q8,
                                                                     .window = 64})));
}

void add_experts(std::vector<Case>& cases) {
  for (const std::string f : {"q4_k", "mxfp4"})
    for (const int64_t rows : {1, 4, 128}) {
      const test::Experts e{
          .rows = rows, .picked = 4, .experts = 16, .wide = 768, .deep = 1024, .format = format_of(f)};
      cases.push_back(case_of(fmt::format("experts first {} rows {}", f, rows), test::first_of_experts(e)));
      cases.push_back(case_of(fmt::format("experts second {} rows {}", f, rows), test::second_of_experts(e)));
    }
  for (const Scalar s : {Scalar::f32, Scalar::bf16}) {
    const test::Experts e{.rows = 256, .picked = 2, .experts = 8, .wide = 512, .deep = 512, .scalar = s};
    const std::string name(scalar_name(s));
    cases.push_back(case_of("experts dx " + name, test::rows_gradient(e), s));
    cases.push_back(case_of("experts dw " + name, test::weight_gradient(e), s));
  }
}

void add_others(std::vector<Case>& cases) {
  for (const std::string& f : kFormats) {
    if (f == "f32") continue;
    cases.push_back(encoding("encode " + f, f, 64, kWide));
    cases.push_back(decoding("decode " + f, f, 64, kWide));
  }
  cases.push_back(elementwise("map gate", 100, kWide));
  cases.push_back(elementwise("map one row", 1, 1000));
  cases.push_back(dropout("map dropout", 64, 1024));
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 4096}, {300, 2048}, {7, 5000}}) {
    cases.push_back(softmax(fmt::format("reduce softmax {}x{}", rows, columns), rows, columns));
    cases.push_back(norm(fmt::format("reduce norm {}x{}", rows, columns), rows, columns));
    cases.push_back(norm_gradient(fmt::format("reduce norm gradient {}x{}", rows, columns), rows, columns));
    cases.push_back(column_sums(fmt::format("reduce columns {}x{}", rows, columns), rows, columns));
  }
  cases.push_back(cross_entropy("reduce cross entropy", 64, 32000));
  cases.push_back(total("reduce total", 1 << 20));
  cases.push_back(gather("move gather f32", "f32", 32000, 2048, 64));
  cases.push_back(gather("move gather q6_k", "q6_k", 32000, 2048, 64));
  cases.push_back(scatter("move scatter", 32000, 2048, 512));
  cases.push_back(scatter("move scatter few rows", 40, 100, 2000));
  cases.push_back(transposition("move transposition", 1000, 515));
  cases.push_back(concatenation("move concatenation", 64, 1024));
  cases.push_back(cache_update("move cache f32", "f32", 2048, 128));
  cases.push_back(cache_update("move cache q8_0", "q8_0", 2048, 128));
  cases.push_back(case_of("move codes", test::codes_graph({{256, 512}, {256, 512}})));
  const test::CodesCase activation{{256, 512}, {256, 512}, true, "fp8_e4m3", Scalar::bf16};
  cases.push_back(case_of("move codes largest", test::extreme_codes_graph({activation, true})));
}

}  // namespace

const std::vector<Case>& grid() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> out;
    add_products(out);
    add_attention(out);
    add_experts(out);
    add_others(out);
    std::sort(out.begin(), out.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
    return out;
  }();
  return cases;
}

}  // namespace lumen::golden
