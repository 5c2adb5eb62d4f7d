// needs: a folder named by LUMEN_EXCHANGE_DIR; run by functions_reference.py, which computes what is written here of
// the library's convolutions, poolings, norms and recurrences once more.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/match/access.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"

namespace lumen::graph {
namespace {

struct Case {
  std::string function;
  std::vector<std::pair<std::string, std::vector<int64_t>>> inputs;
  std::vector<std::pair<std::string, double>> settings;
};

// Convolutions and poolings of drawn shapes, strides, paddings, dilations and groups.
void add_drawn(std::vector<Case>& all) {
  std::mt19937 random(11);
  const auto from = [&](int64_t least, int64_t most) { return least + int64_t(random() % uint32_t(most - least + 1)); };
  for (int round = 0; round < 60; ++round) {
    const size_t axes = round % 2 + 1;
    const int64_t stride = from(1, 3), dilation = from(1, 3), padding = from(0, 4), groups = from(1, 3);
    const int64_t in = from(1, 3), out = from(1, 3);  // of a group
    std::vector<int64_t> x = {from(1, 2)}, w = {groups * out}, gradient = x, back = {in}, pooled = x;
    const int64_t size = from(1, 4), around = from(0, size / 2);
    for (size_t d = 0; d < axes; ++d) {
      const int64_t window = from(1, 4), whole = dilation * (window - 1) + 1;
      w.push_back(window);
      x.push_back(std::max<int64_t>(whole - 2 * padding, 1) + from(0, 6));
      pooled.push_back(std::max<int64_t>(size - 2 * around, 1) + from(0, 6));
      const int64_t reach = 2 * padding + 1 - whole;  // what a transposed one must have before it is cut
      gradient.push_back(std::max<int64_t>(1, (reach + stride - 1) / stride + 1) + from(0, 3));
      back.push_back(window);
    }
    x.push_back(groups * in);
    w.push_back(in);
    pooled.push_back(in);
    gradient.push_back(in);
    back.push_back(out);
    const decltype(Case::settings) window = {
        {"stride", double(stride)}, {"padding", double(padding)}, {"dilation", double(dilation)}};
    decltype(Case::settings) grouped = window, more = window;
    grouped.emplace_back("groups", double(groups));
    more.emplace_back("more", double(from(0, std::max(stride, dilation) - 1)));
    const std::string kind = axes == 1 ? "1d" : "2d";
    all.push_back({"conv" + kind, {{"x", x}, {"w", w}}, grouped});
    if (axes == 2) all.push_back({"conv_transpose2d", {{"x", gradient}, {"w", back}}, more});
    const decltype(Case::settings) pool = {
        {"size", double(size)}, {"stride", double(stride)}, {"padding", double(around)}};
    all.push_back({(round % 4 < 2 ? "max_pool" : "avg_pool") + kind, {{"x", pooled}}, pool});
  }
}

// Cells over sequences of drawn batches, lengths and widths.
void add_recurrent(std::vector<Case>& all) {
  std::mt19937 random(12);
  const auto from = [&](int64_t least, int64_t most) { return least + int64_t(random() % uint32_t(most - least + 1)); };
  for (int round = 0; round < 12; ++round) {
    const bool is_long = round % 2 == 1;
    const int64_t batch = from(1, 5), steps = from(1, 9), width = from(1, 7), hidden = from(1, 8);
    const int64_t gates = (is_long ? 4 : 3) * hidden;
    Case one{is_long ? "lstm" : "gru", {{"x", {batch, steps, width}}, {"h", {batch, hidden}}}, {}};
    if (is_long) one.inputs.push_back({"m", {batch, hidden}});
    const decltype(Case::inputs) weights = {
        {"w", {gates, width}}, {"u", {gates, hidden}}, {"b", {gates}}, {"c", {gates}}};
    one.inputs.insert(one.inputs.end(), weights.begin(), weights.end());
    all.push_back(std::move(one));
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& function, decltype(Case::inputs) inputs, decltype(Case::settings) settings) {
    all.push_back({function, std::move(inputs), std::move(settings)});
  };
  const auto window = [](double stride, double padding, double dilation) {
    return decltype(Case::settings){{"stride", stride}, {"padding", padding}, {"dilation", dilation}};
  };
  const auto grouped = [&](double stride, double padding, double dilation, double groups) {
    auto s = window(stride, padding, dilation);
    s.emplace_back("groups", groups);
    return s;
  };
  for (const auto& s : {window(1, 0, 1), window(2, 1, 1), window(1, 4, 2), window(3, 2, 2)}) {
    add("conv1d", {{"x", {2, 13, 4}}, {"w", {6, 3, 4}}}, s);
    add("conv2d", {{"x", {2, 9, 8, 3}}, {"w", {4, 3, 2, 3}}}, s);
  }
  add("conv1d", {{"x", {2, 12, 6}}, {"w", {4, 3, 3}}}, grouped(2, 1, 1, 2));
  add("conv1d", {{"x", {2, 12, 4}}, {"w", {4, 4, 1}}}, grouped(1, 3, 1, 4));
  add("conv2d", {{"x", {2, 7, 7, 6}}, {"w", {4, 3, 3, 3}}}, grouped(1, 1, 1, 2));
  add("conv2d", {{"x", {2, 8, 7, 4}}, {"w", {4, 3, 3, 1}}}, grouped(2, 1, 1, 4));
  add("conv2d", {{"x", {2, 8, 8, 3}}, {"w", {6, 3, 3, 1}}}, grouped(1, 2, 2, 3));
  add("conv2d", {{"x", {2, 8, 8, 3}}, {"w", {6, 1, 1, 3}}}, window(2, 0, 1));
  for (const double more : {0.0, 1.0}) {
    auto s = window(2, 1, 1);
    s.emplace_back("more", more);
    add("conv_transpose2d", {{"x", {2, 5, 4, 3}}, {"w", {3, 3, 3, 2}}}, s);
  }
  add("conv_transpose2d", {{"x", {2, 5, 4, 3}}, {"w", {3, 2, 3, 2}}}, window(1, 0, 2));
  add("conv_transpose2d", {{"x", {2, 5, 6, 3}}, {"w", {3, 3, 3, 2}}}, window(1, 3, 1));
  for (const std::string kind : {"max", "avg"}) {
    add(kind + "_pool1d", {{"x", {2, 11, 4}}}, {{"size", 3}, {"stride", 2}, {"padding", 1}});
    add(kind + "_pool2d", {{"x", {2, 8, 6, 3}}}, {{"size", 2}, {"stride", 2}, {"padding", 0}});
    add(kind + "_pool2d", {{"x", {2, 9, 7, 3}}}, {{"size", 3}, {"stride", 2}, {"padding", 1}});
    add(kind + "_pool2d", {{"x", {2, 5, 6, 3}}}, {{"size", 3}, {"stride", 1}, {"padding", 0}});
  }
  add("group_norm", {{"x", {2, 5, 4, 6}}, {"w", {6}}, {"b", {6}}}, {{"groups", 3}});
  add("group_norm", {{"x", {2, 5, 4, 6}}, {"w", {6}}, {"b", {6}}}, {{"groups", 1}});
  add("batch_norm", {{"x", {3, 5, 4, 6}}, {"w", {6}}, {"b", {6}}}, {});
  add("batch_norm_of", {{"x", {3, 5, 4, 6}}, {"w", {6}}, {"b", {6}}, {"mean_of", {6}}, {"variance", {6}}}, {});
  add("batch_norm_remembered", {{"x", {3, 5, 4, 6}}, {"w", {6}}, {"b", {6}}, {"mean_of", {6}}, {"variance", {6}}},
      {{"rate", 0.1}});
  const decltype(Case::inputs) gates = {{"w", {12, 5}}, {"u", {12, 4}}, {"b", {12}}, {"c", {12}}};
  decltype(Case::inputs) cell = {{"x", {3, 5}}, {"h", {3, 4}}}, steps = {{"x", {3, 7, 5}}, {"h", {3, 4}}};
  cell.insert(cell.end(), gates.begin(), gates.end());
  steps.insert(steps.end(), gates.begin(), gates.end());
  add("gru_cell", cell, {});
  add("gru", steps, {});
  add("timestep_embedding", {{"t", {5}}}, {{"width", 8}});
  add_drawn(all);
  add_recurrent(all);
  return all;
}

std::string text_of(const Case& c) {
  const bool remembers = c.function == "batch_norm_remembered";
  std::string head, call;
  for (const auto& [name, shape] : c.inputs) {
    const bool state = remembers && (name == "mean_of" || name == "variance");
    head +=
        fmt::format("{}{}: {}f32[{}]", head.empty() ? "" : ", ", name, state ? "state " : "", fmt::join(shape, ", "));
    call += fmt::format("{}{}", call.empty() ? "" : ", ", name);
  }
  for (const auto& [name, value] : c.settings) call += fmt::format(", {} = {}", name, value);
  return fmt::format("fn f({}) = {}({})", head, c.function, call);
}

TEST(FunctionsExchange, Write) {
  const char* folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "run tests/graph/elaborate/functions_reference.py THIS_PROGRAM";
  const std::filesystem::path path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models" / "functions.lum";
  const lang::File library = lang::parse_file(std::make_shared<Source>(Source{"functions.lum", read_file(path)}));
  std::mt19937 random(5);
  std::uniform_real_distribution<float> number(-1, 1);
  nlohmann::json out;
  for (const Case& c : cases()) {
    SCOPED_TRACE(text_of(c));
    const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"case.lum", text_of(c)}));
    Scope scope;
    scope.files = {&library, &file};
    Graph g = elaborate_function(scope, file.functions[0]);
    inline_calls(g);
    nlohmann::json line = {{"function", c.function}};
    for (const auto& [name, value] : c.settings) line["settings"][name] = value;
    std::map<std::string, Tensor> in;
    std::vector<ValueId> wanted;
    const auto draw = [&](const std::string& name, const Type& type) {
      Tensor t{type, {}, {}};
      for (int64_t k = elements(type.shape).number(); k > 0; --k)
        t.values.push_back(name == "variance" ? std::abs(number(random)) + 0.1F : number(random));
      in[name] = t;
      line["inputs"][name] = {{"shape", extents_of(type.shape)}, {"values", t.values}};
    };
    for (const ValueId v : g.inputs()) draw(g[v].attributes.name, g[v].type);
    Builder b(g);
    const ValueId y = g.results[0];
    const size_t results = g.results.size();
    const ValueId weights = b.input("weights", Role::data, b.type(y));
    draw("weights", b.type(y));
    for (const auto& [name, shape] : c.inputs)
      if (g[g.find_input(name)].attributes.role != Role::state) wanted.push_back(g.find_input(name));
    std::vector<int> axes;
    for (size_t d = 0; d < b.type(y).shape.size(); ++d) axes.push_back(static_cast<int>(d));
    const ValueId loss = b.reshape(b.reduce(b.mul(y, weights), Reduction::sum, axes), {});
    const std::vector<ValueId> gradients = differentiate(g, loss, wanted);
    for (const ValueId v : gradients) {
      g.results.push_back(v);
      g.result_names.emplace_back();
    }
    const std::vector<Tensor> got = eval(g, in);
    for (size_t i = 0; i < results; ++i)
      line["results"].push_back({{"shape", extents_of(got[i].type.shape)}, {"values", got[i].values}});
    for (size_t i = 0; i < wanted.size(); ++i)
      line["gradients"][g[wanted[i]].attributes.name] = got[results + i].values;
    out.push_back(line);
  }
  write_file_atomic(std::filesystem::path(folder) / "functions.json", out.dump());
}

}  // namespace
}  // namespace lumen::graph
