// needs: none. Models are the same by their contents, whatever their files are called and however old they are.
#include "model/arch/identity.h"

#include <gtest/gtest.h>

#include <chrono>

#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

// Of more bytes than the blocks that are sampled.
Model some_model(uint32_t seed) {
  const FamilyRef family = test_library()->family("llama");
  return initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 3}, {"heads", 2}, {"ffn", 96}, {"context", 16}}),
      seed);
}

// The model with one number changed.
Model changed(const Model& model, const std::string& name, size_t number) {
  Model out = model;
  Weight& w = out.weights.at(name);
  std::vector<float> values(w.f32().begin(), w.f32().end());
  values.at(number) += 1;
  w = f32_weight(w.type.shape, values);
  return out;
}

TEST(ModelIdentity, IsThatOfEqualModels) {
  const Model model = some_model(1);
  ModelIdentity one(model), same(some_model(1)), other(some_model(2));
  EXPECT_EQ(one.sampled(), same.sampled());
  EXPECT_EQ(one.whole(), same.whole());
  EXPECT_EQ(one.whole(), one.whole());
  EXPECT_NE(one.sampled(), other.sampled());
  EXPECT_NE(one.whole(), other.whole());
  EXPECT_NE(one.sampled(), one.whole());
}

// Every number counts, and what lies between the blocks in the whole identity.
TEST(ModelIdentity, EveryNumberCounts) {
  const Model model = some_model(1);
  ModelIdentity one(model);
  int between = 0, within = 0;
  for (const auto& [name, w] : model.weights)
    for (size_t number = 0; number < w.f32().size(); number += 977) {
      ModelIdentity other(changed(model, name, number));
      EXPECT_NE(one.whole(), other.whole()) << name << " " << number;
      (one.sampled() == other.sampled() ? between : within) += 1;
    }
  EXPECT_GT(between, 0);
  EXPECT_GT(within, between);
  Model configured = model;
  configured.config.begin()->second += 1;
  EXPECT_NE(one.sampled(), ModelIdentity(configured).sampled());
}

TEST(ModelIdentity, FilesMayBeTouchedMovedAndReplaced) {
  const TestFolder folder;
  write_gguf(some_model(1), folder / "a.gguf");
  write_gguf(some_model(2), folder / "other.gguf");
  const std::string before = ModelIdentity(read_model(test_library(), folder / "a.gguf")).sampled();
  std::filesystem::rename(folder / "a.gguf", folder / "b.gguf");
  std::filesystem::last_write_time(folder / "b.gguf",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(ModelIdentity(read_model(test_library(), folder / "b.gguf")).sampled(), before);
  const auto time = std::filesystem::last_write_time(folder / "b.gguf");
  EXPECT_EQ(std::filesystem::file_size(folder / "b.gguf"), std::filesystem::file_size(folder / "other.gguf"));
  std::filesystem::rename(folder / "other.gguf", folder / "b.gguf");
  std::filesystem::last_write_time(folder / "b.gguf", time);
  EXPECT_NE(ModelIdentity(read_model(test_library(), folder / "b.gguf")).sampled(), before);
}

}  // namespace
}  // namespace lumen::model::arch
