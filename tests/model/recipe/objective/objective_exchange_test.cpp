// needs: a folder named by LUMEN_EXCHANGE_DIR; run by objective_reference.py, which computes the losses, metrics and
// gradients written here once more.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file/file.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/random.h"
#include "model/recipe/objective/objective.h"
#include "tests/model/tiny.h"

namespace lumen::model::recipe {
namespace {

using graph::Tensor;

constexpr int64_t kRows = 6, kLength = 7, kVocabulary = 13;

Tensor drawn(const graph::Shape& shape, uint32_t seed, double low, double high) {
  Tensor t;
  t.type = {shape, {Scalar::f32, nullptr}};
  t.values.resize(static_cast<size_t>(graph::elements(shape).number()));
  for (size_t i = 0; i < t.values.size(); ++i)
    t.values[i] = static_cast<float>(low + (high - low) * static_cast<double>(graph::uniform_random(seed, 7, i)));
  return t;
}

// A model's function that gives what it is given.
graph::Graph given(const std::string& name, const graph::Shape& shape) {
  graph::Graph g;
  graph::Builder b(g);
  b.input("tokens", graph::Role::data, {{kRows, kLength}, {Scalar::i32, nullptr}});
  b.input("targets", graph::Role::data, {{kRows, kLength}, {Scalar::i32, nullptr}});
  g.results = {b.input(name, graph::Role::data, {shape, {Scalar::f32, nullptr}})};
  g.result_names = {arch::kResult};
  return g;
}

TEST(ObjectiveExchange, Write) {
  const char* folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "run tests/model/recipe/objective/objective_reference.py THIS_PROGRAM";
  std::map<std::string, Tensor> in;
  in["tokens"] = integers({kRows, kLength}, std::vector<double>(kRows * kLength, 0));
  std::vector<double> targets, weights;
  for (int64_t i = 0; i < kRows * kLength; ++i) {
    targets.push_back(static_cast<double>(i * 5 % kVocabulary));
    weights.push_back(i % kLength > i / kLength % 3 && i % kLength < kLength - i / kLength % 2 ? 1 : 0);
  }
  in["targets"] = integers({kRows, kLength}, targets);
  in["weights"] = drawn({kRows, kLength}, 0, 0, 0);
  in["weights"].values = weights;
  in["losses"] = drawn({kRows, kLength}, 1, 0.1, 4);
  in["scores"] = drawn({kRows, kLength, kVocabulary}, 2, -3, 3);
  in["theirs"] = drawn({kRows, kLength, kVocabulary}, 3, -3, 3);
  in[kReference] = drawn({kRows}, 4, -14, -4);
  in[kLabels] = drawn({kRows}, 5, 0, 0);
  in[kLabels].values = {1, 0, 0, 1, 1, 0};
  in[kDivergence] = drawn({}, 6, 0.4, 0.6);
  nlohmann::json out;
  for (const auto& [name, t] : in) out["inputs"][name] = t.values;
  out["rows"] = kRows;
  out["length"] = kLength;
  out["vocabulary"] = kVocabulary;
  const graph::Graph teacher = given("theirs", {kRows, kLength, kVocabulary});
  for (const std::string& name : objective_names()) {
    std::vector<std::map<std::string, double>> cases = {{}};
    const std::map<std::string, double> defaults = Objective(*test_library(), {name, "", {}}).settings();
    if (!defaults.empty()) {  // and with other numbers
      cases.push_back({});
      for (const auto& [setting, value] : defaults)
        cases[1][setting] = setting == "label_smoothing" ? 0.2 : value * 0.75;
    }
    for (const auto& settings : cases) {
      const Objective objective(*test_library(), {name, "", settings});
      const bool of_logits = objective.reads("logits");
      const std::string by = of_logits ? "scores" : "losses";
      const graph::Shape shape = of_logits ? graph::Shape{kRows, kLength, kVocabulary} : graph::Shape{kRows, kLength};
      graph::Graph g = objective.over(given(by, shape), true, &teacher);
      nlohmann::json line = {{"objective", name}, {"settings", objective.settings()}, {"by", by}};
      g.results.push_back(graph::differentiate(g, g.results[0], {g.find_input(by)})[0]);
      g.result_names.push_back("gradient");
      const std::vector<Tensor> got = graph::eval(g, in);
      for (size_t i = 0; i + 1 < got.size(); ++i) line["values"][g.result_names[i]] = got[i].values.at(0);
      line["gradient"] = got.back().values;
      out["objectives"].push_back(line);
    }
  }
  write_file_atomic(std::filesystem::path(folder) / "objectives.json", out.dump());
}

}  // namespace
}  // namespace lumen::model::recipe
