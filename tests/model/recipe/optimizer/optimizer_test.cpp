// needs: none. Optimizers as texts: five steps of each against formulas written down in double, states in formats, what
// is refused. tests/model/recipe/optimizer/optimizer_reference.py compares the same five steps with PyTorch's.
#include "model/recipe/optimizer/optimizer.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>

#include "base/error.h"
#include "graph/ir/verify.h"
#include "number/codec/codec.h"
#include "tests/model/tiny.h"

namespace lumen::model::recipe {
namespace {

using Numbers = std::vector<double>;
constexpr int kSteps = 5;
constexpr double kRate = 0.02;

arch::Parameter parameter(const std::string& name, graph::Shape shape, const std::string& role) {
  arch::Parameter p;
  p.name = name;
  p.decays = shape.size() > 1;
  p.shape = std::move(shape);
  p.role = role;
  return p;
}

std::vector<arch::Parameter> parameters() {
  return {parameter("wide", {6, 32}, "ffn_up"), parameter("tall", {40, 32}, "ffn_down"),
          parameter("embed", {9, 32}, "embedding"), parameter("norm", {32}, "norm"),
          parameter("experts", {2, 4, 32}, "ffn_up")};
}

Numbers drawn(const arch::Parameter& p, uint32_t seed, double size) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, size);
  Numbers out(static_cast<size_t>(p.count()));
  for (double& x : out) x = static_cast<float>(normal(random));
  return out;
}

Numbers beginning(const arch::Parameter& p) {
  return drawn(p, static_cast<uint32_t>(p.count()), 0.3);
}
Numbers gradient(const arch::Parameter& p, int step) {
  return drawn(p, static_cast<uint32_t>(p.count() * 100 + step), 0.01 * step);
}

// An optimizer's part of a step on a device, with gradients from outside.
class Stepper {
 public:
  Stepper(run::Engine& engine, const Optimizer& optimizer, std::vector<arch::Parameter> trained)
      : engine_(engine), optimizer_(optimizer), trained_(std::move(trained)) {
    const graph::Graph g = apply_step(trained_, optimizer_);
    EXPECT_EQ(graph::verify(g), "");
    program_ = engine_.compile(g, {});
    for (const std::string& name : program_->input_names()) {
      tensors_[name] = std::make_shared<run::DeviceTensor>(engine_.device(), program_->input_type(name));
      program_->bind(name, tensors_[name]);
    }
    for (const arch::Parameter& p : trained_) put(p.name, beginning(p));
  }

  void step(int step) {
    for (const arch::Parameter& p : trained_) put(kGradient + p.name, gradient(p, step));
    still(step);
  }

  // With the gradients that are there: zeros after a step.
  void still(int step) {
    for (const auto& [name, value] : optimizer_.numbers(step, kRate)) put(name, {value});
    if (tensors_.contains(kRoundingSeed)) {
      const uint32_t seed = rounding_seed(1, step);
      tensors_[kRoundingSeed]->upload(&seed, sizeof seed);
    }
    program_->run();
  }

  void put(const std::string& name, const Numbers& numbers) {
    const std::vector<float> values(numbers.begin(), numbers.end());
    tensors_.at(name)->upload(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  }
  std::vector<float> get(const std::string& name) const {
    const run::DeviceTensor& t = *tensors_.at(name);
    std::vector<float> out(static_cast<size_t>(graph::elements(t.type().shape).number()));
    t.download(out.data(), t.bytes());
    return out;
  }
  std::vector<uint8_t> bytes(const std::string& name) const {
    const run::DeviceTensor& t = *tensors_.at(name);
    std::vector<uint8_t> out(static_cast<size_t>(t.bytes()));
    t.download(out.data(), t.bytes());
    return out;
  }
  const graph::Type& type(const std::string& name) const { return tensors_.at(name)->type(); }

 private:
  run::Engine& engine_;
  const Optimizer& optimizer_;
  std::vector<arch::Parameter> trained_;
  std::shared_ptr<run::Program> program_;
  std::map<std::string, run::DeviceTensorRef> tensors_;
};

double range(const Numbers& x) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  return *high - *low;
}

// ---- the formulas, one parameter each; `s` are states that begin empty

using States = std::map<std::string, Numbers>;
struct Site {
  const arch::Parameter& p;
  int step;
  double decay;  // 0 for vectors
  Numbers& state(States& s, const std::string& name, size_t size) const {
    Numbers& n = s[name];
    n.resize(size);
    return n;
  }
};
using Formula = std::function<void(const Site&, Numbers& x, const Numbers& g, States& s)>;

void adamw(const Site& site, Numbers& x, const Numbers& g, States& s, double beta1 = 0.9, double beta2 = 0.95) {
  Numbers &m = site.state(s, "m", x.size()), &v = site.state(s, "v", x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    m[i] = beta1 * m[i] + (1 - beta1) * g[i];
    v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    const double mh = m[i] / (1 - std::pow(beta1, site.step)), vh = v[i] / (1 - std::pow(beta2, site.step));
    x[i] -= kRate * (mh / (std::sqrt(vh) + 1e-8) + site.decay * x[i]);
  }
}

void lion(const Site& site, Numbers& x, const Numbers& g, States& s) {
  Numbers& m = site.state(s, "m", x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double blend = 0.9 * m[i] + 0.1 * g[i];
    x[i] = x[i] * (1 - kRate * site.decay) - kRate * (blend > 0 ? 1 : blend < 0 ? -1 : 0);
    m[i] = 0.99 * m[i] + 0.01 * g[i];
  }
}

Formula sgd(bool nesterov) {
  return [nesterov](const Site& site, Numbers& x, const Numbers& g, States& s) {
    Numbers& m = site.state(s, "m", x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = g[i] + site.decay * x[i];
      m[i] = 0.9 * m[i] + d;
      x[i] -= kRate * (nesterov ? d + 0.9 * m[i] : m[i]);
    }
  };
}

double root_mean_square(const Numbers& x) {
  double sum = 0;
  for (const double e : x) sum += e * e;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

void adafactor(const Site& site, Numbers& x, const Numbers& g, States& s) {
  constexpr double kEpsilon = 1.1920928955078125e-07;
  const double fresh = std::pow(site.step, -0.8), rho = std::min(kRate, 1 / std::sqrt(site.step));
  const double alpha = std::max(1e-3, root_mean_square(x)) * rho;
  Numbers estimate(x.size());
  if (site.p.shape.size() < 2) {
    Numbers& v = site.state(s, "v", x.size());
    for (size_t i = 0; i < x.size(); ++i) estimate[i] = v[i] += (g[i] * g[i] - v[i]) * fresh;
  } else {
    const auto columns = static_cast<size_t>(site.p.shape.back().number());
    const auto rows = static_cast<size_t>(site.p.shape[site.p.shape.size() - 2].number());
    const size_t matrices = x.size() / rows / columns;
    Numbers &r = site.state(s, "r", matrices * rows), &c = site.state(s, "c", matrices * columns);
    for (size_t e = 0; e < matrices; ++e) {
      const auto at = [&](size_t i, size_t j) { return (e * rows + i) * columns + j; };
      double mean = 0;
      for (size_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (size_t j = 0; j < columns; ++j) sum += g[at(i, j)] * g[at(i, j)];
        double& own = r[e * rows + i];
        own += (sum / static_cast<double>(columns) - own) * fresh;
        mean += own / static_cast<double>(rows);
      }
      for (size_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (size_t i = 0; i < rows; ++i) sum += g[at(i, j)] * g[at(i, j)];
        double& own = c[e * columns + j];
        own += (sum / static_cast<double>(rows) - own) * fresh;
        for (size_t i = 0; i < rows; ++i) estimate[at(i, j)] = r[e * rows + i] * own / std::max(mean, kEpsilon);
      }
    }
  }
  for (size_t i = 0; i < x.size(); ++i) estimate[i] = g[i] / std::sqrt(std::max(estimate[i], kEpsilon * kEpsilon));
  const double most = std::max(1.0, root_mean_square(estimate));
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] * (1 - kRate * site.decay) - alpha / most * estimate[i];
}

// rows x columns, rows <= columns.
Numbers orthogonal(Numbers y, size_t rows, size_t columns) {
  double norm = 0;
  for (const double e : y) norm += e * e;
  for (double& e : y) e /= std::max(std::sqrt(norm), 1e-7);
  for (int step = 0; step < 5; ++step) {
    Numbers gram(rows * rows), factor(rows * rows), next(y.size());
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < rows; ++j)
        for (size_t k = 0; k < columns; ++k) gram[i * rows + j] += y[i * columns + k] * y[j * columns + k];
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < rows; ++j) {
        for (size_t k = 0; k < rows; ++k) factor[i * rows + j] += 2.0315 * gram[i * rows + k] * gram[k * rows + j];
        factor[i * rows + j] -= 4.775 * gram[i * rows + j];
      }
    for (size_t i = 0; i < rows; ++i)
      for (size_t k = 0; k < columns; ++k) {
        next[i * columns + k] = 3.4445 * y[i * columns + k];
        for (size_t j = 0; j < rows; ++j) next[i * columns + k] += factor[i * rows + j] * y[j * columns + k];
      }
    y = next;
  }
  return y;
}

void muon(const Site& site, Numbers& x, const Numbers& g, States& s) {
  if (site.p.shape.size() < 2 || site.p.role == "embedding") return adamw(site, x, g, s);
  Numbers& m = site.state(s, "m", x.size());
  Numbers blend(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    m[i] += (g[i] - m[i]) * (1 - 0.95);
    blend[i] = g[i] + (m[i] - g[i]) * 0.95;
  }
  const auto columns = static_cast<size_t>(site.p.shape.back().number());
  const auto rows = static_cast<size_t>(site.p.shape[site.p.shape.size() - 2].number());
  const double scale = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
  for (size_t first = 0; first < x.size(); first += rows * columns) {
    const bool turned = rows > columns;
    const auto at = [&](size_t i, size_t j) { return turned ? j * rows + i : i * columns + j; };
    Numbers one(rows * columns);
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) one[at(i, j)] = blend[first + i * columns + j];
    one = orthogonal(std::move(one), std::min(rows, columns), std::max(rows, columns));
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) {
        double& own = x[first + i * columns + j];
        own = own * (1 - kRate * site.decay) - kRate * scale * one[at(i, j)];
      }
  }
}

struct Case {
  std::string name;
  OptimizerSettings settings;
  double decay;
  Formula formula;
};

std::vector<Case> cases() {
  const auto settings = [](const std::string& name, std::map<std::string, std::string> config = {}) {
    OptimizerSettings s;
    s.name = name;
    s.config = std::move(config);
    s.max_norm = 0;
    return s;
  };
  return {
      {"adamw", settings("adamw"), 0.1,
       [](const Site& site, Numbers& x, const Numbers& g, States& s) { adamw(site, x, g, s); }},
      {"lion", settings("lion"), 0.1, lion},
      {"sgd", settings("sgd", {{"weight_decay", "0.1"}}), 0.1, sgd(false)},
      {"nesterov", settings("sgd", {{"nesterov", "true"}}), 0, sgd(true)},
      {"adafactor", settings("adafactor", {{"weight_decay", "0.1"}}), 0.1, adafactor},
      {"muon", settings("muon"), 0.1, muon},
  };
}

class FiveSteps : public testing::TestWithParam<size_t> {};

TEST_P(FiveSteps, AreTheFormulas) {
  const Case c = cases()[GetParam()];
  const Optimizer optimizer(*test_library(), c.settings);
  Stepper stepper(engine(), optimizer, parameters());
  std::map<std::string, Numbers> values;
  std::map<std::string, States> states;
  for (const arch::Parameter& p : parameters()) values[p.name] = beginning(p);
  for (int step = 1; step <= kSteps; ++step) {
    stepper.step(step);
    for (const arch::Parameter& p : parameters())
      c.formula({p, step, p.decays ? c.decay : 0}, values[p.name], gradient(p, step), states[p.name]);
  }
  for (const arch::Parameter& p : parameters()) {
    const std::vector<float> ours = stepper.get(p.name);
    const Numbers& theirs = values[p.name];
    double moved = 0;
    for (size_t i = 0; i < theirs.size(); ++i) {
      ASSERT_NEAR(ours[i], theirs[i], 1e-5 * range(theirs)) << c.name << " " << p.name << " " << i;
      moved += std::abs(theirs[i] - beginning(p)[i]);
    }
    EXPECT_GT(moved / static_cast<double>(theirs.size()), 1e-4) << c.name << " " << p.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, FiveSteps, testing::Range<size_t>(0, 6),
                         [](const auto& test) { return cases()[test.param].name; });

// For optimizer_reference.py: beginnings, gradients and results of every case.
TEST(OptimizerExchange, WritesFiveSteps) {
  const char* folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "for optimizer_reference.py";
  const auto list = [](const auto& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); };
  std::string text;
  for (const Case& c : cases()) {
    const Optimizer optimizer(*test_library(), c.settings);
    Stepper stepper(engine(), optimizer, parameters());
    for (int step = 1; step <= kSteps; ++step) stepper.step(step);
    std::string tensors;
    for (const arch::Parameter& p : parameters()) {
      std::vector<int64_t> shape;
      for (const graph::Dim& d : p.shape) shape.push_back(d.number());
      std::vector<std::string> gradients;
      for (int step = 1; step <= kSteps; ++step) gradients.push_back(list(gradient(p, step)));
      tensors +=
          fmt::format("{}\"{}\": {{\"shape\": {}, \"role\": \"{}\", \"begin\": {}, \"gradients\": {}, \"end\": {}}}",
                      tensors.empty() ? "" : ",\n", p.name, list(shape), p.role, list(beginning(p)), list(gradients),
                      list(stepper.get(p.name)));
    }
    text += fmt::format("{}\"{}\": {{\"rate\": {}, \"decay\": {}, \"tensors\": {{{}}}}}", text.empty() ? "" : ",\n",
                        c.name, kRate, c.decay, tensors);
  }
  std::ofstream(std::filesystem::path(folder) / "optimizers.json") << "{" << text << "}\n";
}

// ---- states in formats

TEST(Moments, AreHeldInTheFormatAndFollowTheirOwn) {
  for (const char* format : {"bf16", "mxfp8_e4m3", "q8_0", "int8_block"}) {
    OptimizerSettings settings;
    settings.max_norm = 0;
    const Optimizer exact(*test_library(), settings);
    settings.moments = format;
    const Optimizer packed(*test_library(), settings);
    Stepper a(engine(), exact, parameters()), b(engine(), packed, parameters());
    for (int step = 1; step <= kSteps; ++step) {
      a.step(step);
      b.step(step);
    }
    const FormatRef f = test_library()->formats().get(format);
    for (const arch::Parameter& p : parameters()) {
      const std::string m = optimizer_state("m", p.name), v = optimizer_state("v", p.name);
      if (p.is_vector()) {
        EXPECT_EQ(b.type(m).element.format, nullptr);
        EXPECT_EQ(b.bytes(m), a.bytes(m)) << p.name;
        continue;
      }
      ASSERT_EQ(b.type(m).element.format, f) << p.name;
      ASSERT_EQ(b.type(v).element.format, f) << p.name;
      const int64_t columns = p.shape.back().number(), rows = p.count() / columns;
      const std::vector<float> roots = decode(*f, b.bytes(v), rows, columns), squares = a.get(v);
      const std::vector<float> firsts = decode(*f, b.bytes(m), rows, columns), moments = a.get(m);
      double most = 0, root_most = 0, off = 0, root_off = 0;
      for (size_t i = 0; i < roots.size(); ++i) {
        most = std::max<double>(most, std::abs(moments[i]));
        root_most = std::max<double>(root_most, std::sqrt(squares[i]));
        off = std::max<double>(off, std::abs(firsts[i] - moments[i]));
        root_off = std::max<double>(root_off, std::abs(roots[i] - std::sqrt(squares[i])));
      }
      EXPECT_LT(off / most, 0.2) << format << " " << p.name;
      EXPECT_LT(root_off / root_most, 0.2) << format << " " << p.name;
    }
    EXPECT_LT(packed.state_bytes(parameters()), exact.state_bytes(parameters()) * 6 / 10) << format;
  }
}

// A mean over many draws of what is held is what was to be held: nothing is lost for being small.
TEST(Moments, StochasticRoundingKeepsTheMean) {
  const arch::Parameter p = parameter("w", {32, 32}, "");
  OptimizerSettings settings;
  settings.name = "sgd";
  settings.momentum = 0.99;  // a step of the format is 1/8 at most, what goes is 1/100
  settings.max_norm = 0;
  settings.moments = "mxfp8_e4m3";
  const Optimizer optimizer(*test_library(), settings);
  ASSERT_EQ(Optimizer::stochastic_bits(*test_library()->formats().get("mxfp8_e4m3")), 3);
  EXPECT_FALSE(Optimizer::stochastic_bits(*test_library()->formats().get("q8_0")));
  Stepper s(engine(), optimizer, {p});
  const FormatRef f = test_library()->formats().get("mxfp8_e4m3");
  const auto mean = [&] {
    double sum = 0;
    for (const float x : decode(*f, s.bytes(optimizer_state("m", "w")), 32, 32)) sum += std::abs(x);
    return sum / 1024;
  };
  s.step(5);
  const double before = mean();
  // Gradients of zero from here on: momentum decays.
  double size = 0;
  for (int step = 6; step < 46; ++step) {
    s.still(step);
    size = mean();
  }
  EXPECT_NEAR(size / before, std::pow(0.99, 40), 0.02);
}

TEST(Optimizers, BytesOfStatesAreCounted) {
  const std::vector<arch::Parameter> p = parameters();
  int64_t all = 0;
  for (const arch::Parameter& q : p) all += q.count();
  const auto bytes = [&](const std::string& name) {
    OptimizerSettings s;
    s.name = name;
    return Optimizer(*test_library(), s).state_bytes(p);
  };
  EXPECT_EQ(bytes("adamw"), 8 * all);
  EXPECT_EQ(bytes("lion"), 4 * all);
  EXPECT_EQ(bytes("sgd"), 4 * all);
  EXPECT_EQ(bytes("adafactor"), 4 * (6 + 32 + 40 + 32 + 9 + 32 + 32 + 2 * (4 + 32)));
  EXPECT_EQ(bytes("muon"), 4 * (all + 9 * 32 + 32));
}

TEST(Optimizers, WhatIsWrongIsSaid) {
  const auto refused = [](const std::function<void(OptimizerSettings&)>& change, const std::string& part) {
    OptimizerSettings s;
    change(s);
    try {
      (void)Optimizer(*test_library(), s);
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused([](auto& s) { s.name = "adam"; }, "no optimizer is called 'adam'");
  refused([](auto& s) { s.momentum = 0.5; }, "optimizer 'adamw' has no momentum");
  refused([](auto& s) { s.config["beta1"] = "2"; }, "beta1 of optimizer 'adamw' must be 0 to 0.999999, not 2");
  refused([](auto& s) { s.config["beta1"] = "much"; }, "is no number");
  refused([](auto& s) { s.moments = "f8"; }, "f8");
  refused(
      [](auto& s) {
        s.name = "muon";
        s.config["adjust"] = "x";
      },
      "no choice of adjust");
}

TEST(Optimizers, OtherNamesAreTakenForWhatTheyMean) {
  OptimizerSettings s;
  s.name = "paged_adamw_8bit";
  std::string said;
  const OptimizerSettings r = resolved(*test_library(), s, &said);
  EXPECT_EQ(r.name, "adamw");
  EXPECT_EQ(r.moments, "mxfp8_e4m3");
  EXPECT_EQ(r.beta2, 0.95);
  EXPECT_NE(said.find("paged_adamw_8bit"), std::string::npos);
  s.name = "adamw_torch";
  EXPECT_EQ(resolved(*test_library(), s).moments, "f32");
}

TEST(Optimizers, AUsersTextIsOneOfThem) {
  const auto library = arch::Library::builtin();
  library->add_model_text(std::make_shared<Source>(Source{"mine.lum", R"(
optimizer halves(cfg) {
  config { share : f32 = 0.5, least 0, most 1 }
  fn scaled(step, rate) = rate * step
  fn elements(value: f32[...], gradient: f32[...], seen: state f32[...], rate: f32, scaled: f32) -> f32[...] {
    seen = update(seen, seen + 1.0)
    return value - gradient * cfg.share * scaled
  }
}
)"}));
  graph::check_file(library->scope(), *library->scope().files.back());
  OptimizerSettings settings;
  settings.name = "halves";
  settings.max_norm = 0;
  settings.config = {{"share", "0.25"}};
  const Optimizer optimizer(*library, settings);
  Stepper s(engine(), optimizer, parameters());
  s.step(1);
  s.step(2);
  for (const arch::Parameter& p : parameters()) {
    const Numbers begin = beginning(p), first = gradient(p, 1), second = gradient(p, 2);
    const std::vector<float> end = s.get(p.name);
    for (size_t i = 0; i < end.size(); ++i)
      ASSERT_NEAR(end[i], begin[i] - 0.25 * kRate * (first[i] + 2 * second[i]), 1e-6) << p.name;
    for (const float x : s.get(optimizer_state("seen", p.name))) ASSERT_EQ(x, 2);
  }
}

TEST(Optimizers, EveryTextOfTheLibraryIsSound) {
  for (const lang::File* file : test_library()->scope().files)
    if (std::any_of(file->models.begin(), file->models.end(), graph::is_optimizer))
      graph::check_file(test_library()->scope(), *file);
  EXPECT_GE(test_library()->optimizer_names().size(), 5);
}

}  // namespace
}  // namespace lumen::model::recipe
