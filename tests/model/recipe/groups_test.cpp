// needs: none. Parameter groups of a recipe: which parameters they hold, and what a step then does with those.
#include "model/recipe/groups.h"

#include <cmath>

#include "base/error.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::recipe {
namespace {

Recipe with_groups(const std::string& text) {
  Recipe base = train::small_recipe();
  base.batch = 2;
  base.length = 8;
  return parse_recipe(text, "test", base);
}

struct SmallCase : train::AdapterCase {
  SmallCase()
      : train::AdapterCase("llama", {{"hidden", 32}, {"layers", 2}, {"heads", 4}, {"kv_heads", 2}, {"ffn", 32}}) {}
};

TEST(Groups, HoldByNameAndRole) {
  const SmallCase s;
  const Recipe r = with_groups(
      "[[group]]\nrole = \"embedding\"\nrate = 0.5\n"
      "[[group]]\nvalue = [\"layers.0.*\", \"embed\"]\nrate = 3\nweight_decay = 0.25\n"
      "[[group]]\nvalue = \"layers.1.w?\"\nfrozen = true\n");
  ASSERT_EQ(r.groups.size(), 3U);
  std::vector<arch::Parameter> all;
  for (const arch::Parameter& p : s.model.parameters)
    if (!p.frozen) all.push_back(p);
  const std::vector<arch::Parameter> kept = grouped(all, r.groups);
  const auto find = [&](const std::string& name) -> const arch::Parameter* {
    for (const arch::Parameter& p : kept)
      if (p.name == name) return &p;
    return nullptr;
  };
  for (const char* gone : {"layers.1.wq", "layers.1.wk", "layers.1.wv", "layers.1.wo"})
    EXPECT_FALSE(find(gone)) << gone;
  EXPECT_EQ(kept.size() + 4, all.size());
  ASSERT_TRUE(find("embed") && find("layers.0.wq") && find("layers.1.down"));
  EXPECT_EQ(find("embed")->rate, 1.5) << "rates multiply";
  EXPECT_EQ(find("embed")->weight_decay, 0.25);
  EXPECT_EQ(find("layers.0.wq")->rate, 3);
  EXPECT_EQ(find("layers.1.down")->rate, 1);
  EXPECT_FALSE(find("layers.1.down")->weight_decay);
  // What is printed is read again.
  EXPECT_EQ(parse_recipe(describe(r), "test").groups, r.groups);
}

TEST(Groups, WhatIsWrongIsSaid) {
  const SmallCase s;
  const auto refused = [&](const std::string& text, const std::string& words) {
    try {
      const Recipe r = with_groups(text);
      run::Engine engine = train::make_engine(1);
      train::Trainer(engine, s.model, r, s.data);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE((std::string(e.what()) + e.hint()).find(words), std::string::npos) << e.what();
    }
  };
  refused("[[group]]\nrate = 2\n", "role");
  refused("[[group]]\nvalue = \"*\"\nrate = -1\n", "rate");
  refused("[[group]]\nvalue = \"no_such.*\"\n", "no_such.*");
  refused("[[group]]\nrole = \"sideways\"\n", "role sideways");
  refused("[[group]]\nvalue = \"*\"\nfrozen = true\n", "freeze every parameter");
  refused("[[group]]\nvalue = \"*\"\nspeed = 3\n", "speed");
}

// By how much a step of plain gradient descent moves each parameter.
std::map<std::string, std::vector<double>> moves(const SmallCase& s, const std::string& groups) {
  run::Engine engine = train::make_engine(2);
  Recipe r = with_groups(groups);
  r.optimizer.name = "sgd";
  r.optimizer.max_norm = 0;
  r.schedule.warmup = 0;
  train::Trainer trainer(engine, s.model, r, s.data);
  (void)trainer.step();
  std::map<std::string, std::vector<double>> out;
  for (const auto& [name, w] : trainer.model().weights) {
    const std::span<const float> before = s.model.weights.at(name).f32(), after = w.f32();
    for (size_t i = 0; i < before.size(); ++i) out[name].push_back(static_cast<double>(after[i]) - before[i]);
  }
  return out;
}

TEST(Groups, ChangeWhatAStepDoes) {
  const SmallCase s;
  const auto plain = moves(s, "");
  const auto some = moves(s,
                          "[[group]]\nrole = \"embedding\"\nfrozen = true\n"
                          "[[group]]\nvalue = \"layers.0.wq\"\nrate = 4\n"
                          "[[group]]\nvalue = \"layers.1.down\"\nweight_decay = 0.5\n");
  const double rate = 1e-2;
  for (const auto& [name, moved] : plain) {
    const std::span<const float> before = s.model.weights.at(name).f32();
    double most = 0;
    for (const double x : moved) most = std::max(most, std::abs(x));
    for (size_t i = 0; i < moved.size(); ++i) {
      const double expected = name == "embed"           ? 0
                              : name == "layers.0.wq"   ? 4 * moved[i]
                              : name == "layers.1.down" ? moved[i] - rate * 0.5 * before[i]
                                                        : moved[i];
      ASSERT_NEAR(some.at(name)[i], expected, 1e-3 * most + 1e-6 * std::abs(before[i])) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace lumen::model::recipe
