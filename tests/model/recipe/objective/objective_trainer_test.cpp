// needs: none. Training by objectives on the real engine: what is wanted becomes likelier, runs resume bit for bit, the
// reference is the model as it was, and wide logits are never whole.
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "model/compress/quantize.h"
#include "model/train/loop/loop.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::recipe {
namespace {

// Prompts of two tokens; wanted answers rise, others fall.
class Answers final : public data::Batches {
 public:
  Answers(data::RowForm form, int64_t rows, int64_t length, bool packed = false)
      : form_(form), rows_(rows), length_(length), packed_(packed) {}

  bool has_weights() const override { return true; }
  bool has_starts() const override { return packed_; }
  data::RowForm form() const override { return form_; }
  data::Batch training(int64_t step, int64_t part) const override { return make(step * 3 + part, rows_); }
  int64_t validation_rows() const override { return rows_; }
  data::Batch validation(int64_t first, int64_t rows) const override { return make(100 + first, rows); }
  void require(double) const override {}
  const std::vector<data::DataFile>& files() const override { return files_; }
  Hash token_hash() const override { return {}; }

 private:
  data::Batch make(int64_t seed, int64_t rows) const {
    data::Batch b;
    b.rows = rows;
    b.length = length_;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t prompt = form_ == data::RowForm::pairs ? seed % 5 + r / 2 : seed % 5 + r;
      const bool wanted = r % 2 == 0;
      std::vector<text::TokenId> text = {static_cast<text::TokenId>(prompt % 11),
                                         static_cast<text::TokenId>((prompt * 3 + 1) % 11)};
      while (static_cast<int64_t>(text.size()) < length_ + 1)
        text.push_back(static_cast<text::TokenId>((text.back() + (wanted ? 1 : 10)) % 11));
      for (int64_t t = 0; t < length_; ++t) {
        b.tokens.push_back(text[static_cast<size_t>(t)]);
        b.targets.push_back(text[static_cast<size_t>(t) + 1]);
        const bool answer = t >= 1 && t < length_ - r % 3;
        b.weights.push_back(
            answer ? form_ == data::RowForm::sequences ? 1.0F / static_cast<float>(rows * length_) : 1.0F : 0.0F);
        if (packed_) b.starts.push_back(t < 3 ? 0 : 3);
      }
      if (form_ == data::RowForm::labels) b.labels.push_back(wanted ? 1 : 0);
    }
    return b;
  }

  data::RowForm form_;
  int64_t rows_, length_;
  bool packed_;
  std::vector<data::DataFile> files_;
};

Recipe recipe_of(const std::string& objective, bool adapter) {
  Recipe r = train::small_recipe();
  r.batch = 4;
  r.length = 8;
  r.schedule = {.shape = Schedule::Shape::constant, .peak = 3e-3, .floor = 0, .warmup = 0, .steps = 6};
  r.objective.name = objective;
  if (adapter) {
    r.adapter.method = "lora";
    r.adapter.rank = 2;
    r.schedule.peak = 2e-2;
  }
  return r;
}

arch::Model model_with_tokenizer() {
  arch::Model m = tiny_model();
  m.tokenizer = text::Tokenizer::characters("abcdefghijk");
  return m;
}

struct Case {
  const char* objective;
  bool adapter;
  data::RowForm form;
};

class ByObjective : public testing::TestWithParam<Case> {};

TEST_P(ByObjective, LossFallsAndResumingChangesNothing) {
  const Case c = GetParam();
  const auto data = std::make_shared<Answers>(c.form, 4, 8);
  const Recipe recipe = recipe_of(c.objective, c.adapter);
  const TestFolder folder;
  run::Engine engine = train::make_engine(2);
  std::map<std::string, std::vector<uint8_t>> whole;
  double first = 0, last = 0;
  {
    train::Trainer t(engine, model_with_tokenizer(), recipe, data);
    t.remember_reference();
    first = t.evaluate();
    for (int64_t i = 0; i < recipe.schedule.steps; ++i) {
      const train::Trainer::Step step = t.step();
      EXPECT_FALSE(step.metrics.empty());
      if (i == 2) t.save(folder.path());
    }
    last = t.evaluate();
    t.save(folder / "whole");
  }
  EXPECT_LT(last, first);
  train::Trainer again(engine, model_with_tokenizer(), recipe, data);
  again.restore(folder / "checkpoint-3");
  while (again.done() < recipe.schedule.steps) (void)again.step();
  EXPECT_EQ(again.evaluate(), last);
  again.save(folder / "again");
  const auto bytes = [&](const char* run) { return read_file(folder / run / "checkpoint-6" / "model.safetensors"); };
  EXPECT_EQ(bytes("whole"), bytes("again"));
}

INSTANTIATE_TEST_SUITE_P(
    Objectives, ByObjective,
    testing::Values(Case{"dpo", true, data::RowForm::pairs}, Case{"dpo", false, data::RowForm::pairs},
                    Case{"orpo", true, data::RowForm::pairs}, Case{"kto", true, data::RowForm::labels},
                    Case{"kto", false, data::RowForm::labels}),
    [](const auto& one) { return std::string(one.param.objective) + (one.param.adapter ? "_adapter" : "_weights"); });

// At the first step the policy is the reference.
TEST(ObjectiveTrainer, TheReferenceIsTheModelAsItWas) {
  run::Engine engine = train::make_engine(2);
  for (const bool adapter : {true, false}) {
    train::Trainer t(engine, model_with_tokenizer(), recipe_of("dpo", adapter),
                     std::make_shared<Answers>(data::RowForm::pairs, 4, 8));
    t.remember_reference();
    const train::Trainer::Step step = t.step();
    EXPECT_NEAR(step.loss, std::log(2.0), 1e-4) << adapter;
    for (const auto& [name, value] : step.metrics) {
      if (name == "rewards_margin") {
        EXPECT_NEAR(value, 0, 1e-4);
      }
    }
  }
}

// An adapter that goes on: the reference has it, too, also where computing what it makes of all rows was interrupted.
TEST(ObjectiveTrainer, AnAdapterThatGoesOnIsItsOwnReference) {
  run::Engine engine = train::make_engine(2);
  const auto data = std::make_shared<Answers>(data::RowForm::pairs, 4, 8);
  const TestFolder folder;
  train::Trainer before(engine, model_with_tokenizer(), recipe_of("orpo", true), data);
  for (int i = 0; i < 4; ++i) (void)before.step();
  const auto began = before.save(folder / "before");
  train::Trainer t(engine, model_with_tokenizer(), recipe_of("dpo", true), data);
  t.begin_with(file::load_checkpoint(began, test_library()->formats()));
  const std::atomic<bool> stop = true;
  t.remember_reference(&stop);
  const auto saved = t.save(folder / "stopped");
  train::Trainer again(engine, model_with_tokenizer(), recipe_of("dpo", true), data);
  again.restore(saved);
  again.remember_reference();
  EXPECT_NEAR(again.step().loss, std::log(2.0), 1e-4);
}

TEST(ObjectiveTrainer, DistillationBeginsAtNothing) {
  run::Engine engine = train::make_engine(2);
  train::Trainer t(engine, model_with_tokenizer(), recipe_of("distillation", true),
                   std::make_shared<Answers>(data::RowForm::sequences, 4, 8));
  EXPECT_NEAR(t.step().loss, 0, 1e-5);
  EXPECT_THROW(train::Trainer(engine, model_with_tokenizer(), recipe_of("distillation", false),
                              std::make_shared<Answers>(data::RowForm::sequences, 4, 8)),
               Error);
}

// Another model, of another width, whose weights stay packed; all weights of the model are trained.
TEST(ObjectiveTrainer, TeachersFromAnotherModel) {
  run::Engine engine = train::make_engine(2);
  const auto family = test_library()->family("llama");
  const auto taught_by = [&](uint32_t seed, double vocabulary) {
    arch::Model m = initialise(family, family->config("tiny", {{"vocab", vocabulary}}), seed);
    for (auto& [name, w] : m.weights) {
      std::vector<float> values(w.f32().begin(), w.f32().end());
      for (float& v : values) v *= 15;
      w = arch::f32_weight(w.type.shape, values);
    }
    compress::QuantizeReport report;
    compress::QuantizeOptions to;
    to.target = "q8_0";
    arch::Model packed = quantize(engine, m, to, &report);
    packed.tokenizer = std::nullopt;
    return std::make_shared<const arch::Model>(std::move(packed));
  };
  const auto teacher = taught_by(7, 11);
  const auto data = std::make_shared<Answers>(data::RowForm::sequences, 4, 8);
  Recipe recipe = recipe_of("distillation", false);
  recipe.schedule.peak = 1e-2;
  const TestFolder folder;
  double first = 0, last = 0;
  {
    train::Trainer t(engine, model_with_tokenizer(), recipe, data, teacher);
    first = t.evaluate();
    for (int64_t i = 0; i < recipe.schedule.steps; ++i) {
      (void)t.step();
      if (i == 2) t.save(folder.path());
    }
    last = t.evaluate();
    EXPECT_GT(first, 0.1);
    EXPECT_LT(last, first);
    int64_t bytes = 0;
    for (const train::Trainer::Held& held : t.memory())
      if (held.kind == "teacher") bytes = held.bytes;
    EXPECT_EQ(bytes, teacher->weight_bytes());
    EXPECT_LT(bytes, teacher->weight_count() * 2);
  }
  train::Trainer again(engine, model_with_tokenizer(), recipe, data, teacher);
  again.restore(folder / "checkpoint-3");
  while (again.done() < recipe.schedule.steps) (void)again.step();
  EXPECT_EQ(again.evaluate(), last);
  train::Trainer other(engine, model_with_tokenizer(), recipe, data, taught_by(8, 11));
  EXPECT_THROW(other.restore(folder / "checkpoint-3"), Error);
  const file::Checkpoint saved = file::load_checkpoint(folder / "checkpoint-3", test_library()->formats());
  EXPECT_THROW(other.restore(saved, {.seed = true}), Error);
  other.restore(saved, {.teacher = true});
  EXPECT_EQ(other.done(), 3);
  EXPECT_NE(other.taught_by().hash, again.taught_by().hash);
  EXPECT_FALSE(again.taught_by().hash.empty());
  EXPECT_THROW(train::Trainer(engine, model_with_tokenizer(), recipe, data, taught_by(7, 12)), Error);
  // The model teaches itself nothing.
  train::Trainer same(engine, model_with_tokenizer(), recipe, data,
                      std::make_shared<const arch::Model>(model_with_tokenizer()));
  EXPECT_NEAR(same.step().loss, 0, 1e-5);
}

// How far a model has gone: nothing at first; as distillation measures it; and only where there is a reference.
TEST(ObjectiveTrainer, DivergenceFromTheReference) {
  run::Engine engine = train::make_engine(2);
  Recipe r = recipe_of("distillation", true);
  r.eval_kl = true;
  const auto data = std::make_shared<Answers>(data::RowForm::sequences, 4, 8);
  train::Trainer still(engine, model_with_tokenizer(), r, data);
  EXPECT_NEAR(still.divergence(), 0, 1e-6);
  r.objective = {};
  train::Trainer t(engine, model_with_tokenizer(), r, data);
  for (int i = 0; i < 4; ++i) (void)t.step();
  const double far = t.divergence();
  EXPECT_GT(far, 1e-4);
  // By hand, of the first row's positions.
  const data::Batch batch = data->validation(0, 4);
  double sum = 0, weight = 0;
  const arch::Model base = model_with_tokenizer();
  Recipe plain = recipe_of("", false);
  train::Trainer before(engine, base, plain, data);
  for (int64_t row = 0; row < 4; ++row) {
    const std::vector<text::TokenId> window(batch.tokens.begin() + row * 8, batch.tokens.begin() + (row + 1) * 8);
    std::vector<float> own(8 * 11), other(8 * 11);
    t.logits(window, own);
    before.logits(window, other);
    for (size_t p = 0; p < 8; ++p) {
      const auto log_sum = [&](const std::vector<float>& logits) {
        double all = 0;
        for (size_t v = 0; v < 11; ++v) all += std::exp(static_cast<double>(logits[p * 11 + v]));
        return std::log(all);
      };
      const double own_sum = log_sum(own), other_sum = log_sum(other),
                   w = batch.weights[static_cast<size_t>(row) * 8 + p];
      for (size_t v = 0; v < 11; ++v) {
        const double a = own[p * 11 + v] - own_sum, b = other[p * 11 + v] - other_sum;
        sum += w * std::exp(b) * (b - a);
      }
      weight += w;
    }
  }
  EXPECT_NEAR(far, sum / weight, 1e-4 * far);
  plain.eval_kl = true;
  EXPECT_THROW(train::Trainer(engine, base, plain, data), Error);
}

TEST(ObjectiveTrainer, DataMustBeWhatTheObjectiveIsOf) {
  run::Engine engine = train::make_engine(2);
  const auto refused = [&](const std::string& objective, data::RowForm form) {
    train::Trainer t(engine, model_with_tokenizer(), recipe_of(objective, true), std::make_shared<Answers>(form, 4, 8));
    EXPECT_THROW((void)t.step(), Error) << objective;
  };
  refused("dpo", data::RowForm::labels);
  refused("kto", data::RowForm::pairs);
  refused("", data::RowForm::pairs);
}

// An objective is measured on whole batches: too few rows are refused before anything is trained.
TEST(ObjectiveTrainer, ValidationHasABatch) {
  run::Engine engine = train::make_engine(2);
  train::Trainer t(engine, model_with_tokenizer(), recipe_of("dpo", true),
                   std::make_shared<Answers>(data::RowForm::pairs, 2, 8));
  try {
    t.require_data();
    FAIL() << "two rows are taken for a batch of four";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("2 rows of validation data are less than one batch of 4"),
              std::string::npos)
        << error.what();
  }
}

// A run that goes back leaves a batch out and reads one behind its last; the reference knows that one, too.
TEST(ObjectiveTrainer, TheReferenceKnowsWhatComesForABatchLeftOut) {
  run::Engine engine = train::make_engine(2);
  Recipe r = recipe_of("dpo", false);
  r.schedule.steps = 2;
  r.on_nan = "rollback";
  train::Trainer t(engine, model_with_tokenizer(), r, std::make_shared<Answers>(data::RowForm::pairs, 4, 8));
  t.remember_reference();
  t.state().skip(0);
  (void)t.step();
  EXPECT_TRUE(std::isfinite(t.step().loss));
}

// Texts that share rows, by the trainer.
TEST(ObjectiveTrainer, PackedRowsTrain) {
  run::Engine engine = train::make_engine(2);
  for (const char* objective : {"", "next_token"}) {
    train::Trainer t(engine, model_with_tokenizer(), recipe_of(objective, true),
                     std::make_shared<Answers>(data::RowForm::sequences, 4, 8, true));
    const double before = t.evaluate();
    for (int i = 0; i < 6; ++i) (void)t.step();
    EXPECT_LT(t.evaluate(), before) << objective;
    EXPECT_NE(t.explain().find("bounded"), std::string::npos);
  }
}

// 2048 rows of logits over 40000 words are 328 MB, and as much again their gradient; a step holds half of both at a
// time, an evaluation half of one.
TEST(ObjectiveTrainer, LogitsAreNeverWhole) {
  arch::Model m =
      outline(test_library()->family("llama"), test_library()->family("llama")->config("", {{"vocab", 40000},
                                                                                            {"hidden", 16},
                                                                                            {"layers", 1},
                                                                                            {"heads", 2},
                                                                                            {"head_dim", 8},
                                                                                            {"ffn", 16},
                                                                                            {"context", 512}}));
  run::Engine engine = train::make_engine(2);
  const int64_t logits = int64_t{4} * 512 * 40000 * 4;
  for (const char* objective : {"", "distillation", "dpo", "orpo"}) {
    Recipe r = recipe_of(objective, true);
    r.length = 512;
    const train::Method method(m, r, {.weights = true});
    const auto bytes = [&](const train::Method::Work& work) { return engine.arena_bytes(work.graph, work.options); };
    EXPECT_LT(bytes(method.step()), logits + logits / 8) << objective;
    EXPECT_LT(bytes(method.evaluation()), logits * 5 / 8) << objective;
    if (method.objective()) {
      EXPECT_LT(bytes(method.objective_loss()), logits * 5 / 8) << objective;
    }
  }
}

}  // namespace
}  // namespace lumen::model::recipe
