// needs: none. What families say of files beside names: layers by letters and by steps, which of two families a GGUF
// file's architecture means, tensors behind the last layer, parameters done without, tokens that end only a part.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/family/config_file.h"
#include "tests/model/families/family_case.h"

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

// Folders of one architecture and type, by what their config says of experts.
TEST(FamilyAttributes, OneFolderOfSeveralFamilies) {
  const auto of = [](const std::string& architecture, const std::string& type, const std::string& more) {
    const json config =
        json::parse(fmt::format(R"({{"architectures": ["{}"], "model_type": "{}", {}}})", architecture, type, more));
    return family_of_config(*test_library(), config)->name();
  };
  const auto nemotron = [&](const std::string& more) { return of("NemotronHForCausalLM", "nemotron_h", more); };
  EXPECT_EQ(nemotron(R"("layers_block_type": ["mamba", "mlp", "attention"])"), "nemotron_h");
  EXPECT_EQ(nemotron(R"("layers_block_type": ["mamba", "moe", "attention"])"), "nemotron_h_moe");
  EXPECT_EQ(nemotron(R"("hybrid_override_pattern": "M-M*")"), "nemotron_h");
  EXPECT_EQ(nemotron(R"("hybrid_override_pattern": "MEM*")"), "nemotron_h_moe");
  EXPECT_EQ(of("", "nemotron_h", R"("hybrid_override_pattern": "MEM*")"), "nemotron_h_moe");
  const auto granite = [&](const std::string& experts) {
    return of("GraniteMoeHybridForCausalLM", "granitemoehybrid", "\"num_local_experts\": " + experts);
  };
  EXPECT_EQ(granite("0"), "granite_h");
  EXPECT_EQ(granite("null"), "granite_h");
  EXPECT_EQ(granite("62"), "granite_h_moe");
}

// Numbers that layers have for themselves are read, and others are not passed over.
TEST(FamilyAttributes, NumbersOfSingleElements) {
  const FamilyRef f = test_library()->family("gemma4");
  const auto with = [](const std::string& layers) {
    return R"({"num_hidden_layers": 3, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention", "full_attention"], "per_layer_config": )" +
           layers + "}";
  };
  const std::string both = R"({"1": {"head_dim": 16}, "2": {"head_dim": 16, "num_key_value_heads": 4}})";
  EXPECT_EQ(list(*f, with(both), "dims"), (std::vector<double>{8, 16, 16}));
  EXPECT_EQ(list(*f, with(both), "far_dim"), std::vector<double>{16});
  const auto refusal = [&](const std::string& layers) -> std::string {
    try {
      (void)list(*f, with(layers), "dims");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(both), "");
  EXPECT_NE(refusal(R"({"2": {"head_dim": 16}})").find("\"per_layer_config\""), std::string::npos);  // layer 1 has 8
  EXPECT_NE(
      refusal(R"({"0": {"head_dim": 12}, "1": {"head_dim": 16}, "2": {"head_dim": 16}})").find("\"per_layer_config\""),
      std::string::npos);
  EXPECT_NE(refusal(R"({"1": {"sliding_window": 3}})").find("\"per_layer_config.1.sliding_window\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"one": {"head_dim": 16}})").find("\"one\""), std::string::npos);
  EXPECT_NE(refusal(R"({"7": {"head_dim": 16}})").find("dims.7"), std::string::npos);
  EXPECT_NE(refusal("[3]").find("\"per_layer_config\" is not an object"), std::string::npos);
}

// One number of each layer, which GGUF files hold as a list.
TEST(FamilyAttributes, NumbersUnderAKey) {
  const TestFolder folder;
  const Model m = read_hf(test_library(), kFamilies / "apertus");
  write_gguf(m, folder / "m.gguf");
  const file::GgufFile file(folder / "m.gguf", test_library()->formats());
  const std::vector<double> above = file.metadata().numbers("xielu.alpha_p");
  ASSERT_EQ(std::ssize(above), m.integer("layers"));
  for (size_t i = 0; i < above.size(); ++i)
    EXPECT_EQ(above[i], decoded(m.weights.at(fmt::format("layers.{}.bend_above", i))).f32()[0]);
  EXPECT_EQ(file.find("blk.0.bend_above"), nullptr);
  Model shorter = m;
  shorter.parameters.erase(std::find_if(shorter.parameters.begin(), shorter.parameters.end(),
                                        [](const auto& p) { return p.name == "layers.1.bend_above"; }));
  write_gguf(shorter, folder / "short.gguf");
  try {
    (void)read_gguf(test_library(), folder / "short.gguf");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'xielu.alpha_p' has 1 numbers, but layer 1 needs one"), std::string::npos)
        << e.what();
  }
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
  // Layers that use the keys of others.
  const FamilyRef shared = test_library()->family("gemma4");
  const auto ignored = shared->ignored(false, shared->config("", {{"layers", 6}, {"kv_shared", 2}}));
  EXPECT_EQ(std::ranges::count(ignored, "blk.3.attn_k.weight"), 0);
  for (const char* name : {"blk.4.attn_k.weight", "blk.5.attn_k.weight", "blk.5.attn_v.weight"})
    EXPECT_EQ(std::ranges::count(ignored, name), 1) << name;
  EXPECT_EQ(std::ranges::count(ignored, "blk.6.attn_k.weight"), 0);
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
