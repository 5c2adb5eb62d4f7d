// needs: none. Families, fresh weights, GGUF and Hugging Face folders, row orders.
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/family/config_file.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

TEST(Family, OneBillionParameters) {
  const FamilyRef family = test_library()->family_with_size("llama-1b");
  ASSERT_NE(family, nullptr);
  const graph::Config config = family->config("llama-1b", {});
  int64_t count = 0;
  for (const Parameter& p : family->parameters(config)) {
    if (!p.frozen) count += p.count();
  }
  EXPECT_EQ(count, 1'100'048'384);  // 2 embeddings, 22 layers, the last norm
}

TEST(Family, TiedModelsHaveNoOutput) {
  const FamilyRef family = test_library()->family("llama");
  const auto has_output = [&](bool tied) {
    for (const Parameter& p : family->parameters(tiny_config(tied))) {
      if (p.role == "output") return true;
    }
    return false;
  };
  EXPECT_TRUE(has_output(false));
  EXPECT_FALSE(has_output(true));
}

// Two families share an architecture; what tells them apart may be missing from a file.
TEST(Family, FilesNameItWhereTheyWouldLeadToAnother) {
  const FamilyRef family = test_library()->family("glm4_moe");
  for (const double dense : {0, 1}) {
    const graph::Config config = family->config("", {{"layers", 2}, {"head_dim", 8}, {"first_dense", dense}});
    file::GgufMetadata metadata;
    metadata.set("general.architecture", family->gguf_architecture());
    write_gguf_config(*family, config, metadata);
    name_family(*family, metadata);
    EXPECT_EQ(metadata.has("lumen.family"), dense == 0);
    EXPECT_EQ(family_of_file(*test_library(), metadata)->name(), "glm4_moe");
    metadata.set("lumen.family", std::string("llama"));
    EXPECT_THROW(family_of_file(*test_library(), metadata), Error);
  }
}

TEST(Family, NamesAreFilledIn) {
  const auto parameters = test_library()->family("llama")->parameters(tiny_config());
  std::set<std::string> names;
  for (const Parameter& p : parameters) {
    EXPECT_TRUE(names.insert(p.gguf).second) << p.gguf;
    EXPECT_EQ(p.gguf.find('{'), std::string::npos);
    EXPECT_FALSE(p.role.empty()) << p.name;
  }
  EXPECT_TRUE(names.contains("blk.1.attn_q.weight"));
  EXPECT_TRUE(names.contains("token_embd.weight"));
}

TEST(Family, UnknownNamesGiveHints) {
  try {
    (void)test_library()->family("nonesuch");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.hint().find("llama"), std::string::npos);
  }
}

TEST(Initialise, FollowsTheSeedAndTheScales) {
  const FamilyRef family = test_library()->family("llama");
  const graph::Config config = family->config("char", {});
  const Model a = initialise(family, config, 5), b = initialise(family, config, 5), c = initialise(family, config, 6);
  EXPECT_EQ(a.weights.at("embed").bytes, b.weights.at("embed").bytes);
  EXPECT_NE(a.weights.at("embed").bytes, c.weights.at("embed").bytes);
  const auto deviation = [&](const std::string& name) {
    double sum = 0;
    for (float v : a.weights.at(name).f32()) sum += static_cast<double>(v) * v;
    return std::sqrt(sum / static_cast<double>(a.weights.at(name).f32().size()));
  };
  EXPECT_NEAR(deviation("layers.0.wq"), 0.02, 0.001);
  EXPECT_NEAR(deviation("layers.0.wo"), 0.02 / std::sqrt(8.0), 0.0005);
  for (float v : a.weights.at("norm").f32()) EXPECT_EQ(v, 1.0F);
}

TEST(Pairs, OrderOfRows) {
  // One head of 4 rows: halves (0 1 | 2 3) become pairs (0 2) (1 3).
  const std::vector<float> values = {0, 1, 2, 3};
  Weight w = f32_weight({4, 1}, values);
  halves_to_pairs(w, 1);
  EXPECT_EQ(std::vector<float>(w.f32().begin(), w.f32().end()), (std::vector<float>{0, 2, 1, 3}));
  pairs_to_halves(w, 1);
  EXPECT_EQ(std::vector<float>(w.f32().begin(), w.f32().end()), values);
}

class Files : public testing::TestWithParam<bool> {};

TEST_P(Files, GgufRoundTrip) {
  const TestFolder folder;
  Model m = tiny_model(3, GetParam());
  m.tokenizer = text::Tokenizer::characters("abcdefghijk");
  write_gguf(m, folder / "m.gguf");
  const Model back = read_model(test_library(), folder / "m.gguf");
  EXPECT_EQ(back.config, m.config);
  EXPECT_EQ(back.weights.size(), m.weights.size());
  for (const auto& [name, w] : m.weights) EXPECT_EQ(back.weights.at(name).bytes, w.bytes) << name;
  ASSERT_TRUE(back.tokenizer);
  EXPECT_EQ(back.tokenizer->encode("badge"), m.tokenizer->encode("badge"));
  EXPECT_EQ(back.metadata.text("general.architecture"), "llama");
  EXPECT_EQ(back.metadata.integer("llama.rope.dimension_count"), 4);
  EXPECT_EQ(back.metadata.integer("llama.attention.head_count_kv"), 2);
  EXPECT_FALSE(read_file(folder / "m.gguf").find("rope_freqs.weight") != std::string::npos);
  // Weights lie in the map of the file, which lives as long as one of them.
  const Bytes embedding = back.weights.at("embed").bytes;
  EXPECT_EQ(embedding.keeper(), back.weights.at("layers.0.wq").bytes.keeper());
  EXPECT_NE(embedding.keeper(), nullptr);
}

TEST_P(Files, HuggingFaceRoundTrip) {
  const TestFolder folder;
  const Model m = tiny_model(4, GetParam());
  write_hf(m, folder.path());
  const Model back = read_model(test_library(), folder.path());
  EXPECT_EQ(back.config, m.config);
  for (const auto& [name, w] : m.weights) EXPECT_EQ(back.weights.at(name).bytes, w.bytes) << name;
}

INSTANTIATE_TEST_SUITE_P(Tied, Files, testing::Bool());

TEST(Files, RefusedWithNames) {
  const TestFolder folder;
  Model m = tiny_model();
  const auto refuses = [&](const Model& model, const std::string& word) {
    write_gguf(model, folder / "m.gguf");
    try {
      (void)read_model(test_library(), folder / "m.gguf");
      ADD_FAILURE() << "accepted, expected " << word;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  };
  Model missing = m;
  std::erase_if(missing.parameters, [](const Parameter& p) { return p.name == "layers.1.wk"; });
  refuses(missing, "blk.1.attn_k.weight");
  Model other = m;
  other.config["ffn"] = 24;
  refuses(other, "ffn_gate");
  Model extra = m;
  for (Parameter& p : extra.parameters) {
    if (p.name == "layers.0.wq") p.gguf = "blk.0.attn_x.weight";
  }
  refuses(extra, "attn_q");
  EXPECT_THROW((void)read_model(test_library(), folder / "absent.gguf"), Error);
}

}  // namespace
}  // namespace lumen::model::arch
