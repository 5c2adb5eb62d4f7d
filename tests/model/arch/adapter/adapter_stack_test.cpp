// needs: none. Adapters on the experts of mixtures: written, read back as the same, run beside the model, several of
// them, folded in; and files that do not fit.
#include "model/arch/adapter/adapter_stack.h"

#include <cmath>

#include "base/error.h"
#include "model/arch/adapter/adapter_write.h"
#include "model/arch/checkpoint/read.h"
#include "model/compress/merge.h"
#include "model/infer/session/session.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::arch {
namespace {

// Experts, and one product beside them, trained for some steps.
struct Trained {
  explicit Trained(const std::string& method) {
    recipe::Recipe recipe = train::adapter_recipe();
    recipe.adapter.method = method;
    recipe.adapter.targets = {"gates", "ups", "downs", "attention_q"};
    train::Trainer trainer(engine, c.model, recipe, c.data);
    for (int i = 0; i < 6; ++i) (void)trainer.step();
    adapter = trainer.adapter();
    const data::Batch rows = trainer.batches().validation(0, 1);
    window.assign(rows.tokens.begin(), rows.tokens.end());
    logits.resize(window.size() * static_cast<size_t>(c.model.integer("vocab")));
    trainer.logits(window, logits);
  }
  // How far a model with adapters is from what was trained.
  double far(const Model& model, std::span<const ScaledAdapter> adapters) {
    const infer::LoadedModel loaded(engine, model, adapters);
    infer::Session session(loaded, {.context = 16, .chunk = 8, .exact = true});
    const auto got = session.feed_all(window);
    double most = 0;
    for (size_t i = 0; i < logits.size(); ++i) most = std::max(most, std::abs(static_cast<double>(got[i]) - logits[i]));
    return most;
  }

  run::Engine engine = train::make_engine(2);
  train::MixtureCase c;
  Adapter adapter;
  std::vector<text::TokenId> window;
  std::vector<float> logits;
};

TEST(AdapterExperts, FilesAreReadAndRunAsWhatWasTrained) {
  for (const char* method : {"lora", "dora"}) {
    Trained t(method);
    const TestFolder folder;
    write_adapter_folder(t.c.model, t.adapter, folder / "a");
    const Adapter again = read_adapter(t.c.model, folder / "a");
    EXPECT_EQ(train::bytes_of(again), train::bytes_of(t.adapter)) << method;
    const ScaledAdapter one[] = {{again}};
    EXPECT_LT(t.far(t.c.model, one), 1e-4) << method;
    EXPECT_GT(t.far(t.c.model, {}), 1e-2) << method;
    (void)compress::Merge(t.engine, t.c.model, one, {}).write(folder / "merged.gguf");
    EXPECT_LT(t.far(read_model(test_library(), folder / "merged.gguf"), {}), 1e-4) << method;
  }
}

TEST(AdapterExperts, GgufFilesHoldThemStacked) {
  Trained t("lora");
  const TestFolder folder;
  write_adapter_gguf(t.c.model, t.adapter, folder / "a.gguf");
  const Adapter again = read_adapter(t.c.model, folder / "a.gguf");
  EXPECT_EQ(train::bytes_of(again), train::bytes_of(t.adapter));
  // Halves of two add up to the whole.
  const ScaledAdapter halves[] = {{again, 0.5}, {t.adapter, 0.5}};
  EXPECT_LT(t.far(t.c.model, halves), 1e-4);
}

// Ranks and scales may differ from matrix to matrix, and matrices may be left out.
TEST(AdapterExperts, MatricesMayDiffer) {
  const train::MixtureCase c;
  const Parameter& p = *c.model.find("layers.0.ups");
  const auto count = static_cast<size_t>(p.shape[0].number());
  const int64_t rows = p.shape[1].number(), columns = p.shape[2].number();
  const auto filled = [](int64_t n, int64_t m, float x) {
    return f32_weight({graph::Dim(n), graph::Dim(m)}, std::vector<float>(static_cast<size_t>(n * m), x));
  };
  std::map<int64_t, AdapterPart> matrices;
  matrices[1] = {filled(2, columns, 1), filled(rows, 2, 3), 2};
  matrices[3] = {filled(1, columns, 5), filled(rows, 1, 7), 4};
  const AdapterPart all = stack_matrices(p, matrices, "file");
  EXPECT_EQ(all.rank(), 2);
  EXPECT_EQ(all.a.rows(), static_cast<int64_t>(count) * 2);
  // scale * B A of any place: 2 * (3 * 1 + 3 * 1), and 4 * 7 * 5.
  for (const auto& [number, wanted] : {std::pair(0, 0.0), {1, 12.0}, {2, 0.0}, {3, 140.0}}) {
    const AdapterPart one = matrix_of(all, number);
    double sum = 0;
    for (size_t r = 0; r < 2; ++r) sum += one.scale * one.b.f32()[r] * one.a.f32()[r * static_cast<size_t>(columns)];
    EXPECT_DOUBLE_EQ(sum, wanted) << number;
  }
  matrices[3].magnitude = f32_weight({graph::Dim(rows)}, std::vector<float>(static_cast<size_t>(rows), 1));
  EXPECT_THROW(stack_matrices(p, matrices, "file"), Error);
  matrices[3] = {filled(rows + columns, columns, 1), filled(rows, rows + columns, 1), 1};
  EXPECT_THROW(stack_matrices(p, matrices, "file"), Error);
}

TEST(AdapterExperts, NumbersOfModules) {
  const std::string pattern = "a.experts.{e}.w1.weight";
  EXPECT_EQ(matrix_number(pattern, "a.experts.12.w1.weight"), 12);
  for (const char* other :
       {"a.experts..w1.weight", "a.experts.w1.weight", "a.experts.-1.w1.weight", "a.experts.1.w2.weight",
        "a.experts.01.w1.weight", "a.experts.1 .w1.weight", "a.experts.99999999999999999999.w1.weight"})
    EXPECT_FALSE(matrix_number(pattern, other)) << other;
  EXPECT_FALSE(matrix_number("a.w1.weight", "a.w1.weight"));
}

// More experts than the model has, and stacks of another size.
TEST(AdapterExperts, OtherModelsAreRefused) {
  Trained t("lora");
  const TestFolder folder;
  write_adapter_folder(t.c.model, t.adapter, folder / "a");
  write_adapter_gguf(t.c.model, t.adapter, folder / "a.gguf");
  graph::Config config = t.c.model.config;
  config["experts"] = 3;
  const Model fewer = initialise(t.c.model.family, config, 1);
  EXPECT_THROW(read_adapter(fewer, folder / "a"), Error);
  EXPECT_THROW(read_adapter(fewer, folder / "a.gguf"), Error);
}

}  // namespace
}  // namespace lumen::model::arch
