// needs: none. Which format each tensor of a mixture gets, against what llama-quantize gives (mixture_reference.py).
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/compress/quantize.h"
#include "model/recipe/rule_scope.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

// A model without weights: choosing needs none.
arch::Model shape_of(const std::string& family, const graph::Config& values) {
  arch::Model m;
  m.family = test_library()->family(family);
  graph::Config config = values;
  config["vocab"] = 32;
  config["context"] = 32;
  m.config = m.family->config("", config);
  m.parameters = m.family->parameters(m.config);
  return m;
}

TEST(Mixture, GivesEachTensorWhatOtherProgramsGiveIt) {
  std::ifstream file(std::string(LUMEN_SOURCE_DIR) + "/tests/model/fixtures/mixtures.json");
  const nlohmann::json all = nlohmann::json::parse(file);
  int64_t compared = 0;
  for (const auto& [name, entry] : all.items()) {
    graph::Config config;
    for (const auto& [key, value] : entry["config"].items()) config[key] = value.get<double>();
    const arch::Model model = shape_of(entry["family"], config);
    for (const auto& [title, wanted] : entry["mixtures"].items()) {
      constexpr std::string_view kImportance = " by importance";
      const bool weighed = title.ends_with(kImportance);
      const std::string mixture = weighed ? title.substr(0, title.size() - kImportance.size()) : title;
      std::map<std::string, std::string> expected;
      for (const auto& [format, tensors] : wanted["others"].items())
        for (const auto& tensor : tensors) expected[tensor] = format;
      QuantizeOptions options;
      options.target = mixture;
      if (weighed) options.importance = std::make_shared<calibrate::Importance>();
      QuantizeReport report;
      const auto chosen = choose_formats(model, options, &report);
      EXPECT_EQ(report.file_type, wanted["file_type"].get<int>()) << mixture;
      for (const arch::Parameter& p : model.parameters) {
        if (p.shape.size() < 2) continue;
        const auto other = expected.find(p.gguf);
        const std::string right = other == expected.end() ? wanted["most"].get<std::string>() : other->second;
        const auto ours = chosen.find(p.name);
        EXPECT_EQ(ours == chosen.end() ? "f32" : ours->second->name, right) << name << " " << title << " " << p.gguf;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 20'000);
}

// Whatever the target: with a plain format, with one of the user's kind, and with the same for all.
TEST(Mixture, RoutersAndPositionsStayF32) {
  for (const bool pure : {false, true}) {
    for (const char* target : {"q4_k_m", "q8_0", "nf4", "f16"}) {
      QuantizeOptions options;
      options.target = target;
      options.pure = pure;
      const arch::Model experts = shape_of("mixtral", {{"layers", 2}, {"hidden", 256}, {"heads", 4}, {"ffn", 256}});
      EXPECT_EQ(choose_formats(experts, options, nullptr).at("layers.0.router")->name, "f32") << target;
      const arch::Model fused = shape_of("gpt2", {{"layers", 1}, {"hidden", 256}, {"heads", 4}, {"ffn", 256}});
      EXPECT_EQ(choose_formats(fused, options, nullptr).at("position_embed")->name, "f32") << target;
    }
  }
}

// A pattern for the gates of experts finds routers as well, and means them only when it finds nothing else.
TEST(Mixture, PatternsTakeRoutersOnlyWhenTheyNameNothingElse) {
  const arch::Model m = shape_of("mixtral", {{"layers", 1}, {"hidden", 256}, {"heads", 4}, {"ffn", 256}});
  QuantizeOptions options;
  options.target = "q4_0";
  options.tensor_types = {{"ffn_gate", "q8_0"}};
  const auto gates = choose_formats(m, options, nullptr);
  EXPECT_EQ(gates.at("layers.0.gates")->name, "q8_0");
  EXPECT_EQ(gates.at("layers.0.router")->name, "f32");
  options.tensor_types = {{"ffn_gate_inp", "q8_0"}};
  EXPECT_EQ(choose_formats(m, options, nullptr).at("layers.0.router")->name, "q8_0");
}

TEST(Mixture, OneFormatForAllIsOneFormatForAll) {
  const arch::Model m = shape_of("llama", {{"layers", 1}, {"hidden", 256}, {"heads", 4}, {"ffn", 256}});
  QuantizeOptions options;
  options.target = "Q4_K";
  EXPECT_EQ(choose_formats(m, options, nullptr).at("output")->name, "q6_k");
  options.pure = true;
  for (const auto& [name, format] : choose_formats(m, options, nullptr)) EXPECT_EQ(format->name, "q4_k") << name;
}

TEST(RuleScope, ReadsWhatItPrints) {
  const auto read = [](const std::string& text) {
    return recipe::RuleScope::read(*Toml::parse("model = " + text + "\n", "t").table("model"));
  };
  const recipe::RuleScope all =
      read("{ architecture = [\"a\", \"b\"], tied = true, queries_per_key = 4, layers = 80, experts_at_least = 4 }");
  EXPECT_EQ(read(all.text()).text(), all.text());
  EXPECT_FALSE(all.everywhere());
  EXPECT_TRUE(read("{}").everywhere());
  const arch::Model tied =
      shape_of("llama", {{"layers", 2}, {"hidden", 256}, {"heads", 8}, {"kv_heads", 2}, {"tied", 1}});
  EXPECT_TRUE(read("{ tied = true, queries_per_key = 4, layers = 2 }").holds(tied));
  EXPECT_FALSE(read("{ tied = false }").holds(tied));
  EXPECT_FALSE(read("{ queries_per_key = 5 }").holds(tied));
  EXPECT_FALSE(read("{ layers = 3 }").holds(tied));
  EXPECT_TRUE(read("{ no_such_number = 0 }").holds(tied));
  EXPECT_TRUE(read("{ layers_at_least = 2 }").holds(tied));
  EXPECT_FALSE(read("{ layers_at_least = 3 }").holds(tied));
  EXPECT_FALSE(read("{ no_such_number_at_least = 1 }").holds(tied));
}

}  // namespace
}  // namespace lumen::model::compress
