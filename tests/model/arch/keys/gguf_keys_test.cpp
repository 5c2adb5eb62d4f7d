// needs: none. What families say about keys of GGUF files, held against what other programs know of them
// (fixtures/gguf_keys.json, held by gguf_key_table.py against the package that names them): every key is read, unread
// for a reason, or refused; what changes results is refused by name, or changes them.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "graph/ir/eval.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/family/config_file.h"
#include "model/arch/family/gguf_rules.h"
#include "model/file/gguf_split.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

std::string of_architecture(std::string key, const Family& family) {
  if (const size_t at = key.find("{arch}"); at != std::string::npos) key.replace(at, 6, family.gguf_architecture());
  return key;
}

// Families that other programs know, whose files have keys of a common list.
std::vector<std::string> known_families() {
  std::vector<std::string> names = test_library()->family_names();
  std::erase_if(names,
                [](const std::string& name) { return GgufRules(*test_library()->family(name)).required().empty(); });
  return names;
}

file::GgufMetadata metadata_of(const Model& m) {
  file::GgufMetadata out;
  out.set("general.architecture", m.family->gguf_architecture());
  write_gguf_config(*m.family, m.config, out);
  name_family(*m.family, out);
  out.source = "tiny.gguf";
  return out;
}

// What is said of a file; "" where it is taken.
std::string refusal(const Family& family, const file::GgufMetadata& metadata) {
  try {
    const GgufRules rules(family);
    rules.require(metadata);
    (void)rules.check(metadata, family.config("", read_gguf_config(family, metadata)));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

class GgufKeys : public testing::TestWithParam<std::string> {
 protected:
  FamilyRef family() const { return test_library()->family(GetParam()); }
};

TEST_P(GgufKeys, AreReadUnreadOrRefused) {
  const FamilyRef f = family();
  const GgufRules rules(*f);
  const nlohmann::json keys = parse_json(read_file(kFixtures / "gguf_keys.json"), "gguf_keys.json");
  EXPECT_GT(keys.size(), 300U);
  for (const nlohmann::json& k : keys) {
    const std::string key = of_architecture(k.get<std::string>(), *f);
    const GgufRules::Rule* rule = rules.find(key);
    EXPECT_TRUE(rules.reads(key) || rule) << "nothing is said of " << key;
    if (rule) {
      EXPECT_FALSE(rule->because.empty()) << key;
    }
  }
}

// Every key that is refused outright, with a value that nothing describes.
TEST_P(GgufKeys, RefusedOnesAreNamed) {
  const FamilyRef f = family();
  const GgufRules rules(*f);
  const file::GgufMetadata usual = metadata_of(outline(f, f->config(f->sizes().empty() ? "" : f->sizes().front(), {})));
  EXPECT_EQ(refusal(*f, usual), "");
  const nlohmann::json keys = parse_json(read_file(kFixtures / "gguf_keys.json"), "gguf_keys.json");
  for (const nlohmann::json& k : keys) {
    const std::string key = of_architecture(k.get<std::string>(), *f);
    const GgufRules::Rule* rule = rules.find(key);
    if (rules.reads(key) || !rule || !rule->refused) continue;
    for (const file::GgufValue& value :
         {file::GgufValue(17.5F), file::GgufValue(file::GgufArray(std::vector<uint32_t>{0, 23}))}) {
      file::GgufMetadata changed = usual;
      changed.set(key, value);
      const std::string said = refusal(*f, changed);
      EXPECT_NE(said.find("'" + key + "'"), std::string::npos) << key << ": " << said;
      EXPECT_NE(said.find("tiny.gguf"), std::string::npos) << said;
    }
  }
  // What changes nothing passes.
  for (const file::GgufValue& value : {file::GgufValue(0.0F), file::GgufValue(false), file::GgufValue(std::string())}) {
    file::GgufMetadata changed = usual;
    for (const nlohmann::json& k : keys) {
      const std::string key = of_architecture(k.get<std::string>(), *f);
      const GgufRules::Rule* rule = rules.find(key);
      if (!rules.reads(key) && rule && rule->refused && rule->unless.empty()) changed.set(key, value);
    }
    EXPECT_EQ(refusal(*f, changed), "");
  }
}

TEST_P(GgufKeys, SizesThatAreMissingAreNamed) {
  const FamilyRef f = family();
  const GgufRules rules(*f);
  const file::GgufMetadata usual = metadata_of(outline(f, f->config(f->sizes().empty() ? "" : f->sizes().front(), {})));
  int64_t missed = 0;
  for (const std::string& key : rules.required()) {
    if (!usual.has(key)) continue;
    file::GgufMetadata without = usual;
    without.erase(key);
    // Another of the names may say it.
    const bool other = std::any_of(f->keys().begin(), f->keys().end(), [&](const ConfigKey& k) {
      return std::find(k.gguf.begin(), k.gguf.end(), key) != k.gguf.end() &&
             std::any_of(k.gguf.begin(), k.gguf.end(), [&](const auto& n) { return without.has(n); });
    });
    const std::string said = refusal(*f, without);
    if (other) continue;
    EXPECT_NE(said.find("the key '" + key + "' is missing"), std::string::npos) << key << ": " << said;
    ++missed;
  }
  EXPECT_GE(missed, 5);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufKeys, testing::ValuesIn(known_families()),
                         [](const auto& i) { return i.param; });

// ---- What keys do to results.

file::GgufMetadata llama_file(const std::vector<std::pair<std::string, file::GgufValue>>& says) {
  file::GgufMetadata m = metadata_of(tiny_model());
  m.erase("llama.rope.scaling.type");
  for (const auto& [key, value] : says) m.set(key, value);
  return m;
}

graph::Config config_of(const file::GgufMetadata& m, const std::string& tensor = "") {
  const FamilyRef f = family_of_file(*test_library(), m);
  return f->config("", read_gguf_config(*f, m, [&](const std::string& name) { return name == tensor; }));
}

// The logits of one text.
std::vector<double> logits_of(const Model& m) {
  auto inputs = tiny_inputs(m, 1, 6);
  inputs.erase("targets");
  const graph::Graph g = graph::bind_symbols(m.family->function("forward", m.config), {{"B", 1}, {"T", 6}});
  return graph::eval(g, inputs).at(0).values;
}

// The same of a model whose config is another.
std::vector<double> logits_of(const graph::Config& config) {
  Model m = tiny_model();
  m.config = config;
  return logits_of(m);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// A factor without a type, by the new name and by the old one, is linear: the logits of positions divided by it.
TEST(GgufMeaning, AFactorWithoutATypeIsLinear) {
  graph::Config linear = tiny_config();
  linear["rope"] = 1;
  linear["rope_factor"] = 4;
  const auto want = logits_of(linear), plain = logits_of(tiny_config());
  EXPECT_GT(distance(want, plain), 1e-3);
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const auto got = logits_of(config_of(llama_file({{key, 4.0F}})));
    EXPECT_EQ(distance(got, want), 0) << key;
  }
  // The new name counts where both are there; 0 says nothing, and so does a type that forbids it.
  EXPECT_EQ(
      config_of(llama_file({{"llama.rope.scaling.factor", 4.0F}, {"llama.rope.scale_linear", 2.0F}})).at("rope_factor"),
      4);
  EXPECT_EQ(distance(logits_of(config_of(llama_file({{"llama.rope.scaling.factor", 0.0F}}))), plain), 0);
  EXPECT_EQ(distance(logits_of(config_of(llama_file(
                         {{"llama.rope.scaling.type", std::string("none")}, {"llama.rope.scaling.factor", 4.0F}}))),
                     plain),
            0);
}

// The same as divisors of all frequencies, which are a tensor of their own.
TEST(GgufMeaning, LinearPositionsAreDivided) {
  const auto got = logits_of(config_of(llama_file({{"llama.rope.scale_linear", 2.0F}})));
  Model m = tiny_model();
  Weight& divisors = m.weights.at("rope_freqs");
  divisors = f32_weight(divisors.type.shape, std::vector<float>(divisors.columns(), 2.0F));
  EXPECT_LT(distance(got, logits_of(m)), 1e-5);
  EXPECT_GT(distance(got, logits_of(tiny_config())), 1e-3);
}

TEST(GgufMeaning, ListsOfFactorsWithoutATypeAreLongrope) {
  const file::GgufMetadata m = llama_file(
      {{"llama.rope.scaling.attn_factor", 1.25F}, {"llama.rope.scaling.original_context_length", uint32_t{8}}});
  const graph::Config with = config_of(m, "rope_factors_long.weight");
  EXPECT_EQ(with.at("rope"), 4);
  EXPECT_FLOAT_EQ(with.at("rope_attn"), 1.25);
  EXPECT_EQ(with.at("rope_lists"), 0) << "only a hint of the file";
  EXPECT_EQ(config_of(m).at("rope"), 0);
}

// Rotated vectors grow by the factor whatever the scaling is: scores by its square.
TEST(GgufMeaning, AttentionFactorsCountWithoutYarn) {
  const auto grown = logits_of(config_of(llama_file({{"llama.rope.scaling.attn_factor", 1.5F}})));
  Model m = tiny_model();
  for (const char* name : {"layers.0.wq", "layers.1.wq"}) {
    Weight& w = m.weights.at(name);
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v *= 2.25F;
    w = f32_weight(w.type.shape, values);
  }
  EXPECT_LT(distance(grown, logits_of(m)), 1e-4);
  EXPECT_GT(distance(grown, logits_of(tiny_config())), 1e-3);
}

TEST(GgufMeaning, ValuesOfReadKeysThatAreNotDescribedAreRefused) {
  const auto expect_refused = [](const char* family, const char* key, const file::GgufValue& value) {
    const FamilyRef f = test_library()->family(family);
    file::GgufMetadata m = metadata_of(outline(f, f->config(f->sizes().empty() ? "" : f->sizes().front(), {})));
    m.set(key, value);
    const std::string said = refusal(*f, m);
    EXPECT_NE(said.find(key), std::string::npos) << said;
  };
  expect_refused("glm4_moe", "glm4moe.expert_gating_func", uint32_t{3});
  expect_refused("bert", "bert.attention.causal", true);
  expect_refused("olmo2", "olmo2.attention.sliding_window", uint32_t{64});
  expect_refused("granite", "granite.rope.scaling.finetuned", false);
  expect_refused("qwen3_moe", "qwen3moe.expert_weights_norm", false);
  expect_refused("llama", "llama.attention.causal", false);
  expect_refused("llama", "llama.use_parallel_residual", true);
  expect_refused("gemma3", "gemma3.attention.sliding_window_pattern", file::GgufArray(std::vector<uint32_t>{7, 7}));
}

// What files mean that say nothing, where the families' own defaults are others.
TEST(GgufMeaning, AbsentKeysMeanWhatTheFormatSays) {
  const auto without = [](const char* family, const graph::Config& config, std::initializer_list<const char*> keys) {
    const FamilyRef f = test_library()->family(family);
    file::GgufMetadata m;
    m.set("general.architecture", f->gguf_architecture());
    write_gguf_config(*f, f->config("", config), m);
    for (const char* key : keys) m.erase(key);
    return f->config("", read_gguf_config(*f, m));
  };
  EXPECT_EQ(without("gemma3", {}, {"gemma3.rope.freq_base"}).at("theta"), 10000);
  EXPECT_EQ(without("qwen3", {{"hidden", 96}, {"heads", 4}},
                    {"qwen3.attention.key_length", "qwen3.attention.value_length", "lumen.config.head_dim"})
                .at("head_dim"),
            24);
  // Of the largest releases scores are divided by another root, which no key says.
  EXPECT_EQ(
      without("gemma2", {{"layers", 46}, {"hidden", 4608}, {"heads", 32}, {"head_dim", 128}, {"scores_for", 144}}, {})
          .at("scores_for"),
      144);
  EXPECT_EQ(without("gemma2", {{"layers", 46}, {"hidden", 4608}, {"heads", 32}, {"head_dim", 128}, {"scores_for", 144}},
                    {"lumen.config.scores_for"})
                .at("scores_for"),
            144);
  EXPECT_EQ(
      without("gemma2", {{"layers", 42}, {"hidden", 3584}, {"heads", 16}, {"head_dim", 256}}, {}).at("scores_for"),
      256);
}

// ---- Files.

std::string refusal_of_file(const std::filesystem::path& path) {
  try {
    (void)read_gguf(test_library(), path);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

TEST(GgufFiles, OfOtherKindsAreCalledByTheirNames) {
  const TestFolder folder;
  const auto file_of = [&](const std::string& type) {
    file::GgufMetadata m;
    m.set("general.type", type);
    const auto path = folder / (type + ".gguf");
    write_gguf_files(path, m, {}, [](size_t) { return std::span<const uint8_t>(); });
    return refusal_of_file(path);
  };
  EXPECT_NE(file_of("adapter").find("--lora"), std::string::npos);
  EXPECT_NE(file_of("imatrix").find("--imatrix"), std::string::npos);
  EXPECT_NE(file_of("mmproj").find("language model"), std::string::npos);
  EXPECT_NE(file_of("vocab").find("vocabulary"), std::string::npos);
  EXPECT_NE(file_of("dream").find("'dream'"), std::string::npos);
  EXPECT_NE(file_of("model").find("no tensors"), std::string::npos);
}

TEST(GgufFiles, UnknownKeysAreWarnedOfByName) {
  const TestFolder folder;
  Model m = tiny_model();
  m.metadata.set("llama.new_thing", 3.5F);
  m.metadata.set("llama.nothing_new", uint32_t{0});
  m.metadata.set("somebody.else", 3.5F);
  m.metadata.set("tokenizer.ggml.new_thing", true);
  const auto path = folder / "a.gguf";
  write_gguf(m, path);
  testing::internal::CaptureStderr();
  (void)read_gguf(test_library(), path);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("'llama.new_thing'"), std::string::npos) << said;
  EXPECT_NE(said.find("'tokenizer.ggml.new_thing'"), std::string::npos) << said;
  EXPECT_EQ(said.find("nothing_new"), std::string::npos) << said;
  EXPECT_EQ(said.find("somebody"), std::string::npos) << said;
}

// What one program wrote under an old name is written under the new one.
TEST(GgufFiles, OldNamesAreNotWritten) {
  const TestFolder folder;
  Model m = tiny_model();
  m.config = config_of(llama_file({{"llama.rope.scale_linear", 2.0F}}));
  m.metadata.set("llama.rope.scale_linear", 2.0F);
  write_gguf(m, folder / "a.gguf");
  const file::GgufFile file(folder / "a.gguf", test_library()->formats());
  EXPECT_FALSE(file.metadata().has("llama.rope.scale_linear"));
  EXPECT_EQ(file.metadata().text("llama.rope.scaling.type"), "linear");
  EXPECT_EQ(file.metadata().number("llama.rope.scaling.factor"), 2);
}

// Frequencies that a family does not divide by anything are not silently left out.
TEST(GgufFiles, TensorsWithoutAPlaceAreErrors) {
  const FamilyRef f = test_library()->family("gemma3");
  const graph::Config config = f->config("", {{"vocab", 11},
                                              {"hidden", 12},
                                              {"layers", 1},
                                              {"heads", 2},
                                              {"kv_heads", 1},
                                              {"head_dim", 6},
                                              {"ffn", 8},
                                              {"context", 16}});
  EXPECT_EQ(initialise(f, config, 1).find("rope_freqs"), nullptr);
}

}  // namespace
}  // namespace lumen::model::arch
