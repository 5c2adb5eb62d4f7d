// needs: none. Rotations computed while a model runs: written, read again, and run by sessions.
#include "base/error.h"
#include "model/arch/checkpoint/write.h"
#include "model/infer/session/session.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::compress {
namespace {

std::vector<float> session_logits(const arch::Model& m) {
  const infer::LoadedModel loaded(engine(), m);
  infer::Session s(loaded, {.context = 16, .chunk = 8, .exact = true});
  const std::vector<text::TokenId> text = {1, 5, 9, 2, 7};
  const auto logits = s.feed(text);
  return {logits.begin(), logits.end()};
}

void check(const std::string& fixture, const std::string& weight) {
  const arch::Model before = uneven_model(fixture);
  arch::Model turned = before;
  std::vector<std::string> names;
  for (int64_t l = 0; l < before.integer("layers"); ++l) {
    const std::string name = fmt::format("layers.{}.{}", l, weight);
    if (before.find(name)) names.push_back(name);
  }
  ASSERT_FALSE(names.empty());
  rotate_online(turned, names);
  EXPECT_EQ(changed_weights(turned, before), names);
  EXPECT_EQ(online_rotations(turned), names);
  EXPECT_LT(off(logits_of(turned), logits_of(before)), kSame);
  const TestFolder folder;
  write_gguf(turned, folder / "m.gguf");
  const arch::Model read = read_gguf(test_library(), folder / "m.gguf");
  EXPECT_EQ(online_rotations(read), names);
  const std::vector<float> want = session_logits(before), got = session_logits(read);
  arch::Model unaware = read;
  unaware.metadata.erase(arch::kOnlineRotations);
  const std::vector<float> other = session_logits(unaware);
  double most = 0, apart = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - want[i]));
    apart = std::max(apart, std::abs(static_cast<double>(other[i]) - want[i]));
    size = std::max(size, std::abs(static_cast<double>(want[i])));
  }
  EXPECT_LT(most, 1e-4 * size);
  EXPECT_GT(apart, 1e-3 * size);
  EXPECT_THROW(write_hf(turned, folder / "hf"), Error);
  EXPECT_THROW(rotate_online(turned, names), Error);
}

TEST(OnlineRotations, OfAModelThatIsWrittenAndRun) {
  check("llama", "down");
}
TEST(OnlineRotations, OfExperts) {
  check("mixtral", "downs");
}
// Trainers see the rotation, too: the loss is that of the model before, and falls.
TEST(OnlineRotations, InTraining) {
  const text::Tokenizer tokenizer = text::Tokenizer::characters(train::training_text());
  const auto data = std::make_shared<data::Dataset>(data::Dataset::from_text(train::training_text(), tokenizer));
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(family,
                             family->config("", {{"vocab", static_cast<double>(tokenizer.size())},
                                                 {"hidden", 32},
                                                 {"layers", 1},
                                                 {"heads", 4},
                                                 {"kv_heads", 2},
                                                 {"head_dim", 8},
                                                 {"ffn", 48},
                                                 {"context", 16}}),
                             3);
  m.tokenizer = tokenizer;
  run::Engine two = train::make_engine(2);
  const double before = train::Trainer(two, m, train::small_recipe(), data).evaluate();
  rotate_online(m, {"layers.0.down"});
  train::Trainer trainer(two, m, train::small_recipe(), data);
  EXPECT_NEAR(trainer.evaluate(), before, 1e-4);
  for (int i = 0; i < 20; ++i) (void)trainer.step();
  EXPECT_LT(trainer.evaluate(), before - 0.01);
}
TEST(OnlineRotations, OfWhatNoProductReadsAreRefused) {
  arch::Model m = uneven_model("llama");
  EXPECT_THROW(rotate_online(m, {"layers.0.attn_norm"}), Error);
  EXPECT_FALSE(m.metadata.has(arch::kOnlineRotations));
}

}  // namespace
}  // namespace lumen::model::compress
