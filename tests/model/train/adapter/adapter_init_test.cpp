// needs: none. Initializations of adapters that change the base: base and adapter together are the model as it was
// given, or closer to it than rounding alone, for products, stacked matrices and embeddings; and what contradicts.
#include "model/train/adapter_init/adapter_init.h"

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/linear/decomposition.h"
#include "model/train/trainer/forecast.h"
#include "run/engine/compile/repeat.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::train {
namespace {

arch::Weight random_weight(int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t k = 0; k < columns; ++k)
      values.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(n * n + 3 * k)) +
                                          std::cos(0.3 * static_cast<double>(n + 1) * static_cast<double>(k))));
  return arch::f32_weight({graph::Dim(rows), graph::Dim(columns)}, values);
}

std::vector<double> product(const linear::LowRankPair& pair) {
  const int64_t rows = pair.left.rows(), rank = pair.left.columns(), columns = pair.right.columns();
  std::vector<double> out(static_cast<size_t>(rows * columns));
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t r = 0; r < rank; ++r)
      for (int64_t k = 0; k < columns; ++k)
        out[static_cast<size_t>(n * columns + k)] +=
            static_cast<double>(pair.left.f32()[static_cast<size_t>(n * rank + r)]) *
            pair.right.f32()[static_cast<size_t>(r * columns + k)];
  return out;
}

// A subspace that is iterated ends at the exact one, for any number of threads; singular values are divided by the
// scale.
TEST(Decomposition, SubspacesEndAtTheExactOne) {
  run::Engine engine = make_engine(2), alone = make_engine(1);
  for (const auto& [rows, columns] : {std::pair(40, 33), {33, 48}}) {
    const arch::Weight w = random_weight(rows, columns);
    const linear::LowRankPair iterated = linear::decompose(engine, w, 2, {.rank = 3, .iterations = 40, .seed = 5});
    const std::vector<double> exact = product(linear::decompose(engine, w, 1, {.rank = 3, .iterations = 0})),
                              other = product(iterated);
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(other[i] * 2, exact[i], 1e-3) << i;
    const linear::LowRankPair again = linear::decompose(alone, w, 2, {.rank = 3, .iterations = 40, .seed = 5});
    EXPECT_EQ(again.left.bytes, iterated.left.bytes);
    EXPECT_EQ(again.right.bytes, iterated.right.bytes);
  }
}

recipe::Recipe init_recipe(const std::string& init, const std::string& type = "base") {
  recipe::Recipe r = adapter_recipe();
  r.adapter.init = init;
  r.adapter.base_type = type;
  r.base = "/somewhere/given.gguf";
  return r;
}

struct Initialized {
  Initialized(run::Engine& engine, const AdapterCase& c, const arch::Model& given, const recipe::Recipe& recipe) {
    lines = write_residual_base(engine, given, recipe, folder.path());
    const arch::Model base = read_model(test_library(), *residual_base(folder.path()));
    trainer = std::make_unique<Trainer>(engine, base, recipe, c.data);
    initial = read_initial_adapter(trainer->outline(), trainer->changes(), folder.path());
    trainer->begin_with(initial.adapter);
  }
  TestFolder folder;
  std::vector<ResidualTensor> lines;
  std::unique_ptr<Trainer> trainer;
  InitialAdapter initial;
};

double plain_loss(run::Engine& engine, const AdapterCase& c, const arch::Model& model) {
  recipe::Recipe recipe = adapter_recipe();
  recipe.adapter = {};
  return Trainer(engine, model, recipe, c.data).evaluate(8);
}

// Of every kind of weight: the loss before the first step is that of the model as it was given, and it falls.
TEST(AdapterInit, PissaBeginsAsTheModelThatWasGiven) {
  run::Engine engine = make_engine(2);
  const MixtureCase c;
  recipe::Recipe recipe = init_recipe("pissa");
  recipe.adapter.targets = {"all-linear", "embed", "output"};
  Initialized r(engine, c, c.model, recipe);
  EXPECT_EQ(r.lines.size(), 2U * 7 + 2);
  for (const ResidualTensor& t : r.lines) EXPECT_LT(t.error, 1e-6) << t.name;
  EXPECT_EQ(r.initial.base, recipe.base);
  const double before = plain_loss(engine, c, c.model);
  EXPECT_NEAR(r.trainer->evaluate(8), before, 1e-5);
  // Without the adapter it is another model.
  EXPECT_GT(std::abs(plain_loss(engine, c, r.trainer->model()) - before), 1e-4);
  for (int i = 0; i < 8; ++i) (void)r.trainer->step();
  EXPECT_LT(r.trainer->evaluate(8), before);
  // Beside the given model the same change has twice the rank.
  const auto plain =
      adapter_for_given_base(r.trainer->model(), r.trainer->adapter(), r.initial.adapter, recipe.adapter);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->parts.at("layers.0.wq").rank(), 2 * recipe.adapter.rank);
  for (const auto& [name, part] : plain->parts) {
    const arch::AdapterPart &now = r.trainer->adapter().parts.at(name), &began = r.initial.adapter.parts.at(name);
    ASSERT_EQ(part.a.f32().size(), 2 * now.a.f32().size()) << name;
    ASSERT_EQ(part.b.f32().size(), 2 * now.b.f32().size()) << name;
    EXPECT_EQ(part.b.f32().back(), -began.b.f32().back()) << name;
  }
}

// What rounding loses of a weight is less with the adapter, in its own format and in another.
TEST(AdapterInit, FormatsLoseLessThanWithoutAnAdapter) {
  run::Engine engine = make_engine(2);
  const WideCase c;
  for (const auto& [init, type] : {std::pair("loftq_iter_2", "q4_0"), {"loftq_iter_1", "q4_k"}, {"pissa", "nf4"}}) {
    recipe::Recipe recipe = init_recipe(init, type);
    recipe.adapter.targets = {"attention_q", "ffn_up"};
    const Initialized r(engine, c, c.model, recipe);
    EXPECT_EQ(r.lines.size(), 2U);
    for (const ResidualTensor& t : r.lines) {
      EXPECT_EQ(t.format, type) << t.name;
      EXPECT_GT(t.error, 0) << t.name;
      EXPECT_LT(t.error, t.plain) << init << " " << t.name;
    }
    EXPECT_FALSE(
        adapter_for_given_base(r.trainer->model(), r.initial.adapter, r.initial.adapter, r.trainer->recipe().adapter));
  }
  const arch::Model packed = packed_model(engine, c.model, "q4_0");
  recipe::Recipe recipe = init_recipe("pissa_niter_4");
  recipe.adapter.targets = {"ffn_up"};
  const Initialized own(engine, c, packed, recipe);
  EXPECT_EQ(own.trainer->model().weights.at("layers.0.up").type, packed.weights.at("layers.0.up").type);
  EXPECT_EQ(residual_base_files(own.folder.path()).size(), 2U);
}

// Training holds the base that is written, and what it was said to need is what it takes.
TEST(AdapterInit, TheForecastIsOfTheBaseThatIsWritten) {
  const WideCase c;
  run::Engine own = make_engine(2), other = make_engine(2);
  recipe::Recipe recipe = init_recipe("loftq_iter_1", "q4_0");
  recipe.adapter.targets = {"attention_k"};
  const arch::Model outline = residual_base_outline(c.model, recipe);
  const TrainingForecast f = forecast_training(own, outline, recipe);
  TestFolder folder;
  (void)write_residual_base(other, c.model, recipe, folder.path());
  const arch::Model base = read_model(test_library(), *residual_base(folder.path()));
  EXPECT_EQ(f.weights, base.weight_bytes());
  for (const auto& [name, w] : base.weights) EXPECT_EQ(w.type, outline.weights.at(name).type) << name;
  Trainer trainer(own, base, recipe, c.data);
  (void)trainer.step();
  (void)trainer.evaluate(2);
  int64_t in_place = 0;
  for (const auto& [name, w] : base.weights)
    if (reinterpret_cast<uintptr_t>(w.bytes.data()) % static_cast<uintptr_t>(run::kParameterAlignment) == 0)
      in_place += static_cast<int64_t>(w.bytes.size());
  const int64_t taken = own.device().memory().peak + in_place;
  EXPECT_GE(f.total(), taken * 97 / 100);
  EXPECT_LE(f.total(), taken * 103 / 100);
}

// While it is written: the file, A and B, and of one weight at a time some copies and its decomposition.
TEST(AdapterInit, MemoryForTheBase) {
  const WideCase c;
  const recipe::Recipe pissa = init_recipe("pissa"), loftq = init_recipe("loftq_iter_1", "q4_0");
  const auto needs = residual_base_needs(c.model, pissa), packed = residual_base_needs(c.model, loftq);
  ASSERT_EQ(needs.size(), 3U);
  EXPECT_EQ(needs[0].bytes, c.model.weight_bytes());
  EXPECT_TRUE(needs[0].is_there);
  EXPECT_EQ(needs[1].bytes, packed[1].bytes);
  int64_t largest = 0;
  for (const auto& [name, w] : c.model.weights)
    if (w.type.shape.size() == 2) largest = std::max(largest, static_cast<int64_t>(w.bytes.size()));
  EXPECT_GE(needs[2].bytes, 4 * largest);
  EXPECT_GE(packed[2].bytes, 3 * largest);
  // Exactly: the matrix in doubles. Over a subspace: some columns.
  EXPECT_GT(linear::decomposition_bytes(400, 16384, {.rank = 4}), 8 * 400 * 16384);
  EXPECT_LT(linear::decomposition_bytes(4096, 16384, {.rank = 4}), 16 << 20);
}

TEST(AdapterInit, WhatContradicts) {
  const auto refused = [](const std::function<void(recipe::AdapterSettings&)>& change) {
    recipe::AdapterSettings s = adapter_settings();
    change(s);
    try {
      check_adapter(s);
    } catch (const Error& error) {
      return error.code() == Exit::usage;
    }
    return false;
  };
  for (const char* init : {"other", "pissa_niter_", "pissa_niter_0", "pissa_niter_4x", "loftq_iter_-1", "Pissa"})
    EXPECT_TRUE(refused([&](recipe::AdapterSettings& s) { s.init = init; })) << init;
  EXPECT_TRUE(refused([](recipe::AdapterSettings& s) { s.init = "loftq"; }));
  EXPECT_TRUE(refused([](recipe::AdapterSettings& s) { s.base_type = "q4_0"; }));
  EXPECT_TRUE(refused([](recipe::AdapterSettings& s) {
    s.init = "pissa";
    s.method = "dora";
  }));
  EXPECT_FALSE(refused([](recipe::AdapterSettings& s) {
    s.init = "pissa_niter_4";
    s.base_type = "q4_0";
  }));
}

// What another run has written is not replaced, and a damaged initial adapter is not taken.
TEST(AdapterInit, FilesThatDoNotFit) {
  run::Engine engine = make_engine(2);
  const WideCase c;
  recipe::Recipe recipe = init_recipe("pissa");
  recipe.adapter.targets = {"ffn_up"};
  const Initialized r(engine, c, c.model, recipe);
  EXPECT_THROW(write_residual_base(engine, c.model, recipe, r.folder.path()), Error);
  recipe::Recipe wider = recipe;
  wider.adapter.rank = 5;
  const Trainer other(engine, c.model, wider, c.data);
  EXPECT_THROW(read_initial_adapter(other.outline(), other.changes(), r.folder.path()), Error);
  std::ofstream(r.folder / kInitialAdapter) << "nothing";
  EXPECT_THROW(read_initial_adapter(r.trainer->outline(), r.trainer->changes(), r.folder.path()), Error);
}

}  // namespace
}  // namespace lumen::model::train
