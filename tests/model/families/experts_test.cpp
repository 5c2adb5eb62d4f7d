// needs: none. Mixtures of experts in training: the loss falls, threads do not matter, experts are rounded like other
// weights; and routing, where scores are equal.
#include <cmath>

#include "base/error.h"
#include "model/infer/measure/perplexity.h"
#include "model/train/loop/loop.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model {
namespace {

struct Fresh {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  Fresh() {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(train::training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(train::training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("mixtral");
    model = initialise(family,
                       family->config("", {{"vocab", static_cast<double>(tokenizer.size())},
                                           {"hidden", 32},
                                           {"layers", 2},
                                           {"heads", 4},
                                           {"kv_heads", 2},
                                           {"head_dim", 8},
                                           {"ffn", 64},
                                           {"experts", 4},
                                           {"context", 16}}),
                       3);
    model.tokenizer = tokenizer;
  }
};

TEST(Experts, LossFallsAndEveryExpertLearns) {
  run::Engine engine = train::make_engine(2);
  const Fresh s;
  train::Trainer trainer(engine, s.model, train::small_recipe(), s.data);
  const double before = trainer.evaluate();
  const train::LoopResult r = run_training(trainer, {});
  EXPECT_LT(r.validation_loss, 0.7 * before);
  const arch::Model trained = trainer.model();
  const arch::Weight &was = s.model.weights.at("layers.0.gates"), &is = trained.weights.at("layers.0.gates");
  const size_t matrix = was.f32().size() / 4;
  for (size_t e = 0; e < 4; ++e) {
    const auto changed = std::mismatch(was.f32().begin() + static_cast<std::ptrdiff_t>(e * matrix),
                                       was.f32().begin() + static_cast<std::ptrdiff_t>((e + 1) * matrix),
                                       is.f32().begin() + static_cast<std::ptrdiff_t>(e * matrix));
    EXPECT_NE(changed.first, was.f32().begin() + static_cast<std::ptrdiff_t>((e + 1) * matrix)) << e;
  }
}

TEST(Experts, SameBitsForAnyThreadCount) {
  const Fresh s;
  for (const char* precision : {"f32", "bf16"}) {
    std::map<std::string, std::vector<uint8_t>> first;
    for (const int threads : {1, 2, 3}) {
      run::Engine engine = train::make_engine(threads);
      recipe::Recipe recipe = train::small_recipe();
      recipe.precision = precision;
      train::Trainer trainer(engine, s.model, recipe, s.data);
      for (int i = 0; i < 3; ++i) (void)trainer.step();
      if (first.empty())
        first = weights_of(trainer);
      else
        EXPECT_EQ(weights_of(trainer), first) << precision << ", " << threads << " threads";
    }
  }
}

// Trained with the rounding in place, the rounded model is better than one rounded afterwards, and what evaluation
// sees is what the file holds.
TEST(Experts, FormatsTakePartInTraining) {
  run::Engine engine = train::make_engine(2);
  const Fresh s;
  train::Trainer plain(engine, s.model, train::small_recipe(), s.data);
  (void)run_training(plain, {});
  recipe::Recipe recipe = train::small_recipe();
  recipe.quantize.resize(1);
  recipe.quantize[0].values = {"*.gates", "*.ups", "*.downs"};
  recipe.quantize[0].format = "int2_g32";
  train::Trainer rounded(engine, plain.model(), recipe, s.data);
  const double before = rounded.evaluate();
  EXPECT_GT(before, plain.evaluate());
  (void)run_training(rounded, {});
  const double after = rounded.evaluate();
  EXPECT_LT(after, before);
  const arch::Model m = rounded.rounded();
  EXPECT_EQ(m.weights.at("layers.0.gates").type.element.format->name, "int2_g32");
  const infer::LoadedModel loaded(engine, m);
  infer::PerplexityOptions o;
  o.length = 16;
  o.full = true;
  o.exact = true;
  EXPECT_NEAR(perplexity(loaded, s.data->validation(), o).nats, after, 0.1);
}

// A router without an opinion picks the experts of the lowest numbers, alone and in a crowd.
TEST(Experts, EqualScoresPickTheFirst) {
  Fresh s;
  for (const char* router : {"layers.0.router", "layers.1.router"}) {
    arch::Weight& w = s.model.weights.at(router);
    w = arch::f32_weight(w.type.shape, std::vector<float>(w.f32().size(), 0.0F));
  }
  arch::Model others = s.model;
  for (auto& [name, w] : others.weights) {
    if (!name.ends_with("gates") && !name.ends_with("ups") && !name.ends_with("downs")) continue;
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (size_t i = values.size() / 2; i < values.size(); ++i) values[i] = 1e3F;  // experts 2 and 3, picked by nobody
    w = arch::f32_weight(w.type.shape, values);
  }
  infer::PerplexityOptions o;
  o.length = 16;
  o.full = true;
  std::vector<double> nats;
  for (const arch::Model& m : {s.model, others}) {
    const infer::LoadedModel loaded(engine(), m);
    nats.push_back(perplexity(loaded, s.data->validation(), o).nats);
  }
  EXPECT_EQ(nats[0], nats[1]);
}

// Weights, activations in memory and the result of a layer: matrices are not copied for the rows that pick them.
TEST(Experts, NoCopiesOfMatrices) {
  const arch::FamilyRef family = test_library()->family("qwen3_moe");
  const graph::Config config = family->config("", {{"vocab", 64},
                                                   {"hidden", 64},
                                                   {"layers", 1},
                                                   {"heads", 4},
                                                   {"kv_heads", 2},
                                                   {"head_dim", 16},
                                                   {"experts", 16},
                                                   {"picked", 4},
                                                   {"expert_ffn", 96},
                                                   {"context", 256}});
  run::CompileOptions options;
  options.symbols = {{"B", 1}, {"T", 256}};
  const auto program = engine().compile(family->function("forward", config), options);
  EXPECT_LT(program->arena_bytes(), 4 << 20);  // the copies alone were 3 x 256 x 4 x 96 x 64 x 4 bytes: 72 MiB
  EXPECT_NE(program->explain().find("1024 rows by 16 in blocks"), std::string::npos) << program->explain();
}

}  // namespace
}  // namespace lumen::model
