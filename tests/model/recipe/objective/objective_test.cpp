// needs: none. Objectives as texts: their losses and metrics by formulas written once more, gradients by differences.
#include "model/recipe/objective/objective.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "graph/grad/reverse.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "model/recipe/optimizer/optimizer.h"
#include "tests/model/tiny.h"

namespace lumen::model::recipe {
namespace {

using graph::Tensor;
using Inputs = std::map<std::string, Tensor>;

constexpr int64_t kRows = 4, kLength = 6;

Tensor floats(graph::Shape shape, std::vector<double> values) {
  Tensor t;
  t.type = {std::move(shape), {Scalar::f32, nullptr}};
  t.values = std::move(values);
  return t;
}

graph::Graph bound(const arch::Model& m, const std::string& function) {
  graph::Graph g = m.family->function(function, m.config);
  return graph::bind_symbols(g, {{"B", kRows}, {"T", kLength}});
}

graph::EvalOptions wide() {
  graph::EvalOptions o;
  o.wide = true;
  return o;
}

// Rows with prompts of 1 and 2 tokens and answers of different lengths.
Inputs inputs_of(const arch::Model& m) {
  Inputs in = tiny_inputs(m, kRows, kLength);
  std::vector<double> weights;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t t = 0; t < kLength; ++t) weights.push_back(t >= 1 + r % 2 && t < 4 + r % 3 ? 1 : 0);
  in["weights"] = floats({kRows, kLength}, weights);
  in[kReference] = floats({kRows}, {-8.5, -9.25, -7.5, -6.0});
  in[kLabels] = floats({kRows}, {1, 0, 0, 1});
  in[kDivergence] = floats({}, {0.75});
  return in;
}

// What objectives are made of, by the oracle.
struct Rows {
  std::vector<double> logp, lengths, reference;
  explicit Rows(const arch::Model& m) : logp(kRows, 0), lengths(kRows, 0) {
    const Inputs in = inputs_of(m);
    const Tensor losses = graph::eval(bound(m, "token_loss"), in, wide())[0];
    for (size_t i = 0; i < losses.values.size(); ++i) {
      if (in.at("weights").values[i] == 0) continue;
      logp[i / kLength] -= losses.values[i];
      lengths[i / kLength] += 1;
    }
    reference = in.at(kReference).values;
  }
  double mean(size_t row) const { return logp[row] / lengths[row]; }
  double ratio(size_t pair) const {
    return logp[2 * pair] - reference[2 * pair] - logp[2 * pair + 1] + reference[2 * pair + 1];
  }
};

double log_sigmoid(double x) {
  return -std::log1p(std::exp(-x));
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

std::map<std::string, double> values_of(const arch::Model& m, const ObjectiveSettings& settings) {
  const Objective objective(*test_library(), settings);
  const graph::Graph g = objective.over(bound(m, objective.function()), true);
  EXPECT_EQ(graph::verify(g), "");
  const std::vector<Tensor> got = graph::eval(g, inputs_of(m), wide());
  std::map<std::string, double> out;
  for (size_t i = 0; i < got.size(); ++i) out[g.result_names[i]] = got[i].values.at(0);
  return out;
}

TEST(Objectives, PairsAgainstAReference) {
  const arch::Model m = tiny_model();
  const Rows r(m);
  const auto at = [&](double beta, double smooth) {
    double sum = 0;
    for (const size_t p : {0U, 1U})
      sum -= (1 - smooth) * log_sigmoid(beta * r.ratio(p)) + smooth * log_sigmoid(-beta * r.ratio(p));
    return sum / 2;
  };
  const auto plain = values_of(m, {"dpo", "", {}});
  EXPECT_NEAR(plain.at("loss"), at(0.1, 0), 1e-6);
  EXPECT_NEAR(plain.at("rewards_margin"), 0.1 * (r.ratio(0) + r.ratio(1)) / 2, 1e-6);
  EXPECT_NEAR(plain.at("rewards_chosen") - plain.at("rewards_rejected"), plain.at("rewards_margin"), 1e-6);
  EXPECT_NEAR(plain.at("rewards_accuracy"), ((r.ratio(0) > 0) + (r.ratio(1) > 0)) / 2.0, 1e-9);
  EXPECT_NEAR(values_of(m, {"dpo", "", {{"beta", 0.5}, {"label_smoothing", 0.2}}}).at("loss"), at(0.5, 0.2), 1e-6);

  double hinge = 0, ipo = 0;
  for (const size_t p : {0U, 1U}) {
    hinge += std::max(0.0, 1 - 0.3 * r.ratio(p)) / 2;
    const double h = (r.logp[2 * p] - r.reference[2 * p]) / r.lengths[2 * p] -
                     (r.logp[2 * p + 1] - r.reference[2 * p + 1]) / r.lengths[2 * p + 1];
    ipo += (h - 1 / (2 * 0.3)) * (h - 1 / (2 * 0.3)) / 2;
  }
  EXPECT_NEAR(values_of(m, {"dpo_hinge", "", {{"beta", 0.3}}}).at("loss"), hinge, 1e-6);
  EXPECT_NEAR(values_of(m, {"ipo", "", {{"beta", 0.3}}}).at("loss"), ipo, 1e-6);
}

TEST(Objectives, PairsWithoutAReference) {
  const arch::Model m = tiny_model();
  const Rows r(m);
  double simpo = 0, odds = 0;
  for (const size_t p : {0U, 1U}) {
    const double a = r.mean(2 * p), b = r.mean(2 * p + 1);
    simpo -= log_sigmoid(2.0 * (a - b) - 0.5) / 2;
    odds -= log_sigmoid((a - b) - (std::log1p(-std::exp(a)) - std::log1p(-std::exp(b)))) / 2;
  }
  const double chosen = -(r.logp[0] + r.logp[2]) / (r.lengths[0] + r.lengths[2]);
  EXPECT_NEAR(values_of(m, {"simpo", "", {}}).at("loss"), simpo, 1e-6);
  EXPECT_NEAR(values_of(m, {"orpo", "", {{"beta", 0.25}}}).at("loss"), chosen + 0.25 * odds, 1e-6);
  EXPECT_NEAR(values_of(m, {"orpo", "", {}}).at("chosen_loss"), chosen, 1e-6);
}

TEST(Objectives, AnswersWithLabels) {
  const arch::Model m = tiny_model();
  const Rows r(m);
  const std::vector<double> labels = inputs_of(m).at(kLabels).values;
  double want = 0;
  for (size_t i = 0; i < kRows; ++i) {
    const double ratio = r.logp[i] - r.reference[i];
    want += labels[i] > 0 ? 1.5 * (1 - sigmoid(0.2 * (ratio - 0.75))) : 1 - sigmoid(0.2 * (0.75 - ratio));
  }
  const auto got = values_of(m, {"kto", "", {{"beta", 0.2}, {"desirable", 1.5}}});
  EXPECT_NEAR(got.at("loss"), want / kRows, 1e-6);
  EXPECT_NEAR(got.at("rewards_chosen"), 0.2 * (r.logp[0] - r.reference[0] + r.logp[3] - r.reference[3]) / 2, 1e-6);
}

TEST(Objectives, NextTokenIsTheWeightedLoss) {
  const arch::Model m = tiny_model();
  const graph::Graph want =
      graph::bind_symbols(weighted_loss(m.family->function("token_loss", m.config)), {{"B", kRows}, {"T", kLength}});
  EXPECT_NEAR(values_of(m, {"next_token", "", {}}).at("loss"), graph::eval(want, inputs_of(m), wide())[0].values[0],
              1e-9);
}

// Another model of the same family; its inputs are called otherwise.
graph::Graph teacher_of(const arch::Model& m) {
  graph::Graph g = bound(m, "forward");
  for (graph::Node& n : g.nodes)
    if (n.op == graph::Op::input_ && n.attributes.role == graph::Role::parameter) n.attributes.name += ".teacher";
  return g;
}
Inputs with_teacher(Inputs in, const arch::Model& teacher) {
  for (const auto& [name, w] : teacher.weights) in[name + ".teacher"] = f32_tensor(w);
  return in;
}

TEST(Objectives, DistillationIsTheDivergenceOfBothDistributions) {
  const arch::Model m = tiny_model(), other = tiny_model(7);
  const Inputs in = with_teacher(inputs_of(m), other);
  const graph::Graph theirs = teacher_of(other);
  const std::vector<double> a = graph::eval(bound(m, "forward"), in, wide())[0].values,
                            b = graph::eval(theirs, in, wide())[0].values;
  const size_t vocab = 11;
  double want = 0;
  for (size_t i = 0; i < a.size() / vocab; ++i) {
    const auto log_p = [&](const std::vector<double>& x, size_t v) {
      double sum = 0;
      for (size_t k = 0; k < vocab; ++k) sum += std::exp(x[i * vocab + k] / 2);
      return x[i * vocab + v] / 2 - std::log(sum);
    };
    double d = 0;
    for (size_t v = 0; v < vocab; ++v) d += std::exp(log_p(b, v)) * (log_p(b, v) - log_p(a, v));
    want += 4 * in.at("weights").values[i] * d;
  }
  const Objective objective(*test_library(), {"distillation", "", {{"temperature", 2}}});
  EXPECT_STREQ(objective.function(), "forward");
  const graph::Graph g = objective.over(bound(m, "forward"), true, &theirs);
  EXPECT_NEAR(graph::eval(g, in, wide())[0].values[0], want, 1e-6);
}

// ---- gradients, in parts of the rows

constexpr int64_t kWords = 40;  // more than the few numbers of a row that may be whole

arch::Model wordy_model(uint32_t seed) {
  graph::Config config = tiny_config();
  config["vocab"] = kWords;
  arch::Model m = initialise(test_library()->family("llama"), config, seed);
  for (auto& [name, w] : m.weights) {
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values)
      if (m.find(name)->init != "ones" && !m.find(name)->frozen) v *= 15;
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

struct Trained {
  graph::Graph graph;
  std::vector<arch::Parameter> parameters;
};

Trained with_gradients(const arch::Model& m, const Objective& objective, const graph::Graph* teacher,
                       int64_t most_bytes) {
  Trained out;
  out.graph = objective.over(bound(m, objective.function()), true, teacher);
  for (const arch::Parameter& p : m.parameters)
    if (!p.frozen) out.parameters.push_back(p);
  std::vector<graph::ValueId> by, metrics(out.graph.results.begin() + 1, out.graph.results.end());
  for (const arch::Parameter& p : out.parameters) by.push_back(out.graph.find_input(p.name));
  graph::ValueId loss = out.graph.results[0];
  const auto d = graph::differentiate_by_rows(out.graph, loss, by, most_bytes, &metrics);
  out.graph.results = {loss};
  out.graph.results.insert(out.graph.results.end(), d.begin(), d.end());
  out.graph.results.insert(out.graph.results.end(), metrics.begin(), metrics.end());
  out.graph.result_names.assign(out.graph.results.size(), "");
  EXPECT_EQ(graph::verify(out.graph), "");
  graph::simplify(out.graph);
  return out;
}

int64_t widest_logits(const graph::Graph& g) {
  int64_t most = 0;
  for (const graph::Node& n : g.nodes)
    if (!n.type.shape.empty() && n.type.shape.back() == graph::Dim(kWords) && n.type.element.scalar == Scalar::f32 &&
        n.op != graph::Op::input_)
      most = std::max(most, graph::elements(n.type.shape).number());
  return most;
}

class ObjectiveGradients : public testing::TestWithParam<std::string> {};

TEST_P(ObjectiveGradients, AreFiniteDifferencesAndLogitsAreNeverWhole) {
  const arch::Model m = wordy_model(1), other = wordy_model(7);
  const graph::Graph theirs = teacher_of(other);
  const Objective objective(*test_library(), {GetParam(), "", {}});
  const graph::Graph* teacher = objective.reads("teacher") ? &theirs : nullptr;
  const int64_t products = teacher ? 2 : 1, part = 8;  // rows of 24
  const Trained whole = with_gradients(m, objective, teacher, int64_t{1} << 30),
                parts = with_gradients(m, objective, teacher, products * part * kWords * 4);
  EXPECT_EQ(widest_logits(whole.graph), kRows * kLength * kWords);
  EXPECT_LE(widest_logits(parts.graph), part * kWords);
  Inputs in = with_teacher(inputs_of(m), other);
  const auto a = graph::eval(whole.graph, in, wide()), b = graph::eval(parts.graph, in, wide());
  ASSERT_EQ(a.size(), b.size());
  for (size_t r = 0; r < a.size(); ++r)
    for (size_t i = 0; i < a[r].values.size(); ++i) ASSERT_NEAR(a[r].values[i], b[r].values[i], 1e-9) << r;

  for (const char* name : {"layers.0.wq", "layers.1.down", "output"}) {
    const auto p = std::find_if(whole.parameters.begin(), whole.parameters.end(),
                                [&](const arch::Parameter& q) { return q.name == name; });
    ASSERT_NE(p, whole.parameters.end());
    const auto& gradient = a[1 + static_cast<size_t>(p - whole.parameters.begin())].values;
    const auto largest =
        static_cast<size_t>(std::max_element(gradient.begin(), gradient.end(),
                                             [](double x, double y) { return std::abs(x) < std::abs(y); }) -
                            gradient.begin());
    double& weight = in.at(name).values[largest];
    const double old = weight, h = 1e-4;
    const auto loss = [&](double x) {
      weight = x;
      return graph::eval(whole.graph, in, wide())[0].values[0];
    };
    const double difference = (loss(old + h) - loss(old - h)) / (2 * h);
    weight = old;
    EXPECT_NEAR(difference, gradient[largest], 1e-4 * std::abs(gradient[largest]) + 1e-9) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ObjectiveGradients, testing::ValuesIn(objective_names()),
                         [](const auto& one) { return one.param; });

// ---- texts of users

TEST(Objectives, AUsersTextNeedsNoCode) {
  const arch::Model m = tiny_model();
  const TestFolder folder;
  write_file_atomic(folder / "mine.lum",
                    "fn gap(logp: f32[P, 2]) -> f32[P] = logp[:, 0] - logp[:, 1]\n"
                    "fn loss(logp: f32[P, 2], least: f32 = 1.0) -> f32[] = mean(relu(least - gap(logp)))\n"
                    "fn mean_gap(logp: f32[P, 2]) -> f32[] = mean(gap(logp))\n");
  ObjectiveSettings settings{(folder / "mine.lum").string(), "", {{"least", 20}}};
  take_text(settings);
  EXPECT_EQ(settings.name, "mine");
  const auto got = values_of(m, settings);
  const Rows r(m);
  const double first = r.logp[0] - r.logp[1], second = r.logp[2] - r.logp[3];
  EXPECT_NEAR(got.at("mean_gap"), (first + second) / 2, 1e-6);
  EXPECT_NEAR(got.at("loss"), (std::max(0.0, 20 - first) + std::max(0.0, 20 - second)) / 2, 1e-6);
  EXPECT_TRUE(Objective(*test_library(), settings).is_of_pairs());
}

std::string refusal(const ObjectiveSettings& settings) {
  try {
    (void)Objective(*test_library(), settings);
  } catch (const Error& e) {
    return std::string(e.what()) + " / " + e.hint();
  }
  return "accepted";
}

TEST(Objectives, WhatIsWrongIsSaid) {
  EXPECT_NE(refusal({"dpp", "", {}}).find("objectives: distillation, dpo"), std::string::npos)
      << refusal({"dpp", "", {}});
  EXPECT_NE(refusal({"dpo", "", {{"betta", 1}}}).find("its settings: beta, label_smoothing"), std::string::npos);
  EXPECT_NE(refusal({"x", "fn other(logp: f32[R]) -> f32[] = sum(logp)\n", {}}).find("function loss"),
            std::string::npos);
  EXPECT_NE(refusal({"x", "fn loss(rewards: f32[R]) -> f32[] = sum(rewards)\n", {}}).find("has no input 'rewards'"),
            std::string::npos);
  EXPECT_NE(refusal({"x", "fn loss(logp: f32[R]) -> f32[] = sum(logq)\n", {}}), "accepted");
  const arch::Model m = tiny_model();
  const Objective pairs(*test_library(), {"dpo", "", {}});
  graph::Graph odd = graph::bind_symbols(m.family->function("token_loss", m.config), {{"B", 3}, {"T", kLength}});
  try {
    (void)pairs.over(odd, true);
    FAIL() << "three rows are no pairs";
  } catch (const Error& e) {
    EXPECT_NE(e.hint().find("even --batch"), std::string::npos);
  }
}

}  // namespace
}  // namespace lumen::model::recipe
