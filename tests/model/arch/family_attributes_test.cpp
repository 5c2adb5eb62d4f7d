// needs: none. What families say of files beside names: layers by letters and by steps, which of two families a GGUF
// file's architecture means, tensors behind the last layer, parameters done without, tokens that end only a part.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/family/config_file.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

std::vector<double> list(const Family& family, const std::string& config, const std::string& key) {
  const graph::Config read = family.config("", read_hf_config(family, json::parse(config), "config.json"));
  std::vector<double> out;
  for (const ConfigKey& k : family.keys())
    if (k.name == key)
      for (const std::string& name : k.entries(read)) out.push_back(read.at(name));
  return out;
}

TEST(FamilyAttributes, LayersByLetters) {
  const FamilyRef f = test_library()->family("exaone4");
  const auto kinds = [&](const std::string& pattern, int layers) {
    return list(*f,
                fmt::format(R"({{"num_hidden_layers": {}, "sliding_window": 6, "sliding_window_pattern": {}}})", layers,
                            pattern),
                "kinds");
  };
  EXPECT_EQ(kinds("\"LLG\"", 6), (std::vector<double>{1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(kinds("\"LLG\"", 5), (std::vector<double>{1, 1, 0, 1, 0}));  // the last layer sees everything
  EXPECT_EQ(kinds("\"LLLG\"", 4), kinds("4", 4));
  EXPECT_EQ(kinds("\"G\"", 3), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(kinds("3", 5), (std::vector<double>{1, 1, 0, 1, 1}));
  for (const char* wrong : {R"("")", R"("lg")", R"("L L")"}) {
    try {
      (void)kinds(wrong, 4);
      ADD_FAILURE() << wrong;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("sliding_window_pattern"), std::string::npos) << e.what();
    }
  }
}

TEST(FamilyAttributes, LayersBySteps) {
  for (const char* name : {"qwen2_moe", "qwen3_moe"}) {
    const FamilyRef f = test_library()->family(name);
    const auto dense = [&](const std::string& more) {
      return list(*f, R"({"num_hidden_layers": 6)" + more + "}", "dense");
    };
    EXPECT_EQ(dense(""), std::vector<double>(6, 0));
    EXPECT_EQ(dense(R"(, "decoder_sparse_step": 2, "mlp_only_layers": [])"), (std::vector<double>{1, 0, 1, 0, 1, 0}));
    EXPECT_EQ(dense(R"(, "decoder_sparse_step": 2, "mlp_only_layers": [1])"), (std::vector<double>{1, 1, 1, 0, 1, 0}));
    EXPECT_EQ(dense(R"(, "mlp_only_layers": [0, 4])"), (std::vector<double>{1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(dense(R"(, "decoder_sparse_step": 4)"), (std::vector<double>{1, 1, 1, 0, 1, 1}));
  }
}

TEST(FamilyAttributes, ListsThatMayBeLonger) {
  const FamilyRef f = test_library()->family("smollm3");
  const std::string two = R"({"num_hidden_layers": 2, "no_rope_layers": )";
  EXPECT_EQ(list(*f, two + "[1, 0, 1, 1]}", "turns"), (std::vector<double>{1, 0}));
  EXPECT_THROW(list(*f, two + "[1]}", "turns"), Error);
}

TEST(FamilyAttributes, OneArchitectureOfSeveralFamilies) {
  const auto of = [](const std::string& architecture, double value) {
    return test_library()->family_of_gguf(architecture, [&](const std::string&) { return value; })->name();
  };
  EXPECT_EQ(of("deepseek2", 2), "deepseek_v3");
  EXPECT_EQ(of("deepseek2", 1), "deepseek_v2");
  EXPECT_EQ(of("deepseek2", 0), "deepseek_v2");
  EXPECT_EQ(of("glm4moe", 3), "glm4_moe");
  EXPECT_EQ(of("glm4moe", 0), "solar_open");
}

TEST(FamilyAttributes, TensorsBehindTheLastLayer) {
  const FamilyRef f = test_library()->family("glm4_moe");
  graph::Config config = f->config("", {});
  const auto has = [&](bool hf, const std::string& pattern) {
    const auto all = f->ignored(hf, config);
    return std::find(all.begin(), all.end(), pattern) != all.end();
  };
  EXPECT_TRUE(has(true, "model.layers.46.*"));
  EXPECT_TRUE(has(false, "blk.46.*"));
  config["layers"] = 92;
  EXPECT_TRUE(has(true, "model.layers.92.*"));
  EXPECT_FALSE(has(true, "model.layers.46.*"));
}

TEST(FamilyAttributes, ParametersDoneWithout) {
  const auto names = [](const std::string& without) {
    const auto library = Library::builtin();
    library->add_model_text(std::make_shared<Source>(
        Source{"own.lum", "model own(cfg) : extends llama, without " + without + ", gguf \"own\" { }\n"}));
    std::vector<std::string> out;
    const FamilyRef f = library->family("own");
    for (const Parameter& p : f->all_parameters(f->config("", {{"layers", 1}}))) out.push_back(p.name);
    return out;
  };
  const auto left = names("gate up norm");
  EXPECT_EQ(std::count(left.begin(), left.end(), "layers.0.gate"), 0);
  EXPECT_EQ(std::count(left.begin(), left.end(), "norm"), 0);
  EXPECT_EQ(std::count(left.begin(), left.end(), "layers.0.down"), 1);
  try {
    (void)names("gat");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'gat'"), std::string::npos) << e.what();
  }
}

TEST(FamilyAttributes, TokensThatEndAPartOnly) {
  const auto ends = [](const std::string& more) {
    return text::Tokenizer::from_json(R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": 0}}, "added_tokens": [
               {"id": 1, "content": "<|end|>", "special": true})" +
                                          more + "]}",
                                      "{}")
        .end_of_generation();
  };
  EXPECT_EQ(ends(""), std::vector<text::TokenId>{1});
  EXPECT_EQ(
      ends(
          R"(, {"id": 2, "content": "<|return|>", "special": true}, {"id": 3, "content": "<|call|>", "special": true})"),
      (std::vector<text::TokenId>{2, 3}));
}

}  // namespace
}  // namespace lumen::model::arch
