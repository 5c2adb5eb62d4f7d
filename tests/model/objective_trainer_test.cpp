// needs: none. Training by objectives on the real engine: what is wanted becomes likelier, runs resume bit for bit, the
// reference is the model as it was, and wide logits are never whole.
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "model/train/loop.h"
#include "model/train/trainer.h"
#include "tiny.h"
#include "training_case.h"

namespace lumen::model {
namespace {

// Prompts of two tokens; wanted answers rise, others fall.
class Answers final : public Batches {
 public:
  Answers(RowForm form, int64_t rows, int64_t length, bool packed = false)
      : form_(form), rows_(rows), length_(length), packed_(packed) {}

  bool has_weights() const override { return true; }
  bool has_starts() const override { return packed_; }
  RowForm form() const override { return form_; }
  Batch training(int64_t step, int64_t part) const override { return make(step * 3 + part, rows_); }
  int64_t validation_rows() const override { return rows_; }
  Batch validation(int64_t first, int64_t rows) const override { return make(100 + first, rows); }
  void require(double) const override {}
  const std::vector<DataFile>& files() const override { return files_; }
  Hash token_hash() const override { return {}; }

 private:
  Batch make(int64_t seed, int64_t rows) const {
    Batch b;
    b.rows = rows;
    b.length = length_;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t prompt = form_ == RowForm::pairs ? seed % 5 + r / 2 : seed % 5 + r;
      const bool wanted = r % 2 == 0;
      std::vector<TokenId> text = {static_cast<TokenId>(prompt % 11), static_cast<TokenId>((prompt * 3 + 1) % 11)};
      while (static_cast<int64_t>(text.size()) < length_ + 1)
        text.push_back(static_cast<TokenId>((text.back() + (wanted ? 1 : 10)) % 11));
      for (int64_t t = 0; t < length_; ++t) {
        b.tokens.push_back(text[static_cast<size_t>(t)]);
        b.targets.push_back(text[static_cast<size_t>(t) + 1]);
        const bool answer = t >= 1 && t < length_ - r % 3;
        b.weights.push_back(answer ? form_ == RowForm::texts ? 1.0F / static_cast<float>(rows * length_) : 1.0F : 0.0F);
        if (packed_) b.starts.push_back(t < 3 ? 0 : 3);
      }
      if (form_ == RowForm::labels) b.labels.push_back(wanted ? 1 : 0);
    }
    return b;
  }

  RowForm form_;
  int64_t rows_, length_;
  bool packed_;
  std::vector<DataFile> files_;
};

Recipe recipe_of(const std::string& objective, bool adapter) {
  Recipe r = small_recipe();
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

Model model_with_tokenizer() {
  Model m = tiny_model();
  m.tokenizer = Tokenizer::characters("abcdefghijk");
  return m;
}

struct Case {
  const char* objective;
  bool adapter;
  RowForm form;
};

class ByObjective : public testing::TestWithParam<Case> {};

TEST_P(ByObjective, LossFallsAndResumingChangesNothing) {
  const Case c = GetParam();
  const auto data = std::make_shared<Answers>(c.form, 4, 8);
  const Recipe recipe = recipe_of(c.objective, c.adapter);
  const TestFolder folder;
  run::Engine engine = make_engine(2);
  std::map<std::string, std::vector<uint8_t>> whole;
  double first = 0, last = 0;
  {
    Trainer t(engine, model_with_tokenizer(), recipe, data);
    t.remember_reference();
    first = t.evaluate();
    for (int64_t i = 0; i < recipe.schedule.steps; ++i) {
      const Trainer::Step step = t.step();
      EXPECT_FALSE(step.metrics.empty());
      if (i == 2) t.save(folder.path());
    }
    last = t.evaluate();
    t.save(folder / "whole");
  }
  EXPECT_LT(last, first);
  Trainer again(engine, model_with_tokenizer(), recipe, data);
  again.restore(folder / "checkpoint-3");
  while (again.done() < recipe.schedule.steps) (void)again.step();
  EXPECT_EQ(again.evaluate(), last);
  again.save(folder / "again");
  const auto bytes = [&](const char* run) { return read_file(folder / run / "checkpoint-6" / "model.safetensors"); };
  EXPECT_EQ(bytes("whole"), bytes("again"));
}

INSTANTIATE_TEST_SUITE_P(Objectives, ByObjective,
                         testing::Values(Case{"dpo", true, RowForm::pairs}, Case{"dpo", false, RowForm::pairs},
                                         Case{"orpo", true, RowForm::pairs}, Case{"kto", true, RowForm::labels},
                                         Case{"kto", false, RowForm::labels}),
                         [](const auto& one) {
                           return std::string(one.param.objective) + (one.param.adapter ? "_adapter" : "_weights");
                         });

// At the first step the policy is the reference.
TEST(ObjectiveTrainer, TheReferenceIsTheModelAsItWas) {
  run::Engine engine = make_engine(2);
  for (const bool adapter : {true, false}) {
    Trainer t(engine, model_with_tokenizer(), recipe_of("dpo", adapter),
              std::make_shared<Answers>(RowForm::pairs, 4, 8));
    t.remember_reference();
    const Trainer::Step step = t.step();
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
  run::Engine engine = make_engine(2);
  const auto data = std::make_shared<Answers>(RowForm::pairs, 4, 8);
  const TestFolder folder;
  Trainer before(engine, model_with_tokenizer(), recipe_of("orpo", true), data);
  for (int i = 0; i < 4; ++i) (void)before.step();
  const auto began = before.save(folder / "before");
  Trainer t(engine, model_with_tokenizer(), recipe_of("dpo", true), data);
  t.begin_with(load_checkpoint(began, test_library()->formats()));
  const std::atomic<bool> stop = true;
  t.remember_reference(&stop);
  const auto saved = t.save(folder / "stopped");
  Trainer again(engine, model_with_tokenizer(), recipe_of("dpo", true), data);
  again.restore(saved);
  again.remember_reference();
  EXPECT_NEAR(again.step().loss, std::log(2.0), 1e-4);
}

TEST(ObjectiveTrainer, DistillationBeginsAtNothing) {
  run::Engine engine = make_engine(2);
  Trainer t(engine, model_with_tokenizer(), recipe_of("distillation", true),
            std::make_shared<Answers>(RowForm::texts, 4, 8));
  EXPECT_NEAR(t.step().loss, 0, 1e-5);
  EXPECT_THROW(Trainer(engine, model_with_tokenizer(), recipe_of("distillation", false),
                       std::make_shared<Answers>(RowForm::texts, 4, 8)),
               Error);
}

TEST(ObjectiveTrainer, DataMustBeWhatTheObjectiveIsOf) {
  run::Engine engine = make_engine(2);
  const auto refused = [&](const std::string& objective, RowForm form) {
    Trainer t(engine, model_with_tokenizer(), recipe_of(objective, true), std::make_shared<Answers>(form, 4, 8));
    EXPECT_THROW((void)t.step(), Error) << objective;
  };
  refused("dpo", RowForm::labels);
  refused("kto", RowForm::pairs);
  refused("", RowForm::pairs);
}

// Texts that share rows, by the trainer.
TEST(ObjectiveTrainer, PackedRowsTrain) {
  run::Engine engine = make_engine(2);
  for (const char* objective : {"", "next_token"}) {
    Trainer t(engine, model_with_tokenizer(), recipe_of(objective, true),
              std::make_shared<Answers>(RowForm::texts, 4, 8, true));
    const double before = t.evaluate();
    for (int i = 0; i < 6; ++i) (void)t.step();
    EXPECT_LT(t.evaluate(), before) << objective;
    EXPECT_NE(t.explain().find("bounded"), std::string::npos);
  }
}

// 2048 rows of logits over 40000 words are 328 MB, and as much again their gradient; a step holds half of both at a
// time.
TEST(ObjectiveTrainer, LogitsAreNeverWhole) {
  Model m = outline(test_library()->family("llama"), test_library()->family("llama")->config("", {{"vocab", 40000},
                                                                                                  {"hidden", 16},
                                                                                                  {"layers", 1},
                                                                                                  {"heads", 2},
                                                                                                  {"head_dim", 8},
                                                                                                  {"ffn", 16},
                                                                                                  {"context", 512}}));
  run::Engine engine = make_engine(2);
  const int64_t logits = int64_t{4} * 512 * 40000 * 4;
  for (const char* objective : {"", "distillation"}) {
    Recipe r = recipe_of(objective, true);
    r.length = 512;
    const Method method(m, r, {.weights = true});
    const Method::Work work = method.step();
    EXPECT_LT(engine.arena_bytes(work.graph, work.options), logits + logits / 8) << objective;
  }
}

}  // namespace
}  // namespace lumen::model
