// needs: none. What folders of sentence-transformers say besides the model.
#include "model/arch/modules/modules.h"

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

std::string modules(const std::string& list) {
  return "[" + list + "]";
}
std::string module(const std::string& path, const std::string& type) {
  return R"({"idx": 0, "name": "0", "path": ")" + path + R"(", "type": "sentence_transformers.models.)" + type + "\"}";
}

TEST(Modules, AreFoundByTheirTypes) {
  const SentenceModules m = read_modules(
      modules(module("", "Transformer") + "," + module("1_P", "Pooling") + "," + module("2_Dense", "Dense") + "," +
              module("9_Dense", "Dense") + "," + module("4_Normalize", "Normalize")),
      "m");
  EXPECT_EQ(m.pooling, "1_P");
  EXPECT_EQ(m.dense, (std::vector<std::string>{"2_Dense", "9_Dense"}));
  EXPECT_TRUE(m.normalizes);
  EXPECT_TRUE(m.unknown.empty());
  EXPECT_EQ(m.folders().size(), 3U);
  // Names of later versions.
  EXPECT_EQ(
      read_modules(R"([{"path": "1_Pooling", "type": "sentence_transformers.base.modules.pooling.Pooling"}])", "m")
          .pooling,
      "1_Pooling");
  EXPECT_EQ(read_modules(modules(module("", "LSTM")), "m").unknown.front(), "sentence_transformers.models.LSTM");
}

TEST(Modules, WrongOnesAreRefused) {
  const auto refused = [](const std::string& text) { EXPECT_THROW((void)read_modules(text, "m"), Error) << text; };
  refused("{}");
  refused("[1]");
  refused(R"([{"type": "a.Pooling"}])");
  refused(modules(module("", "Pooling")));
  refused(modules(module("..", "Pooling")));
  refused(modules(module("a/b", "Pooling")));
  refused(modules(module("1", "Pooling") + "," + module("2", "Pooling")));
  refused(modules(module("2", "Dense")));  // before the pooling
}

TEST(Modules, PromptsAndLengths) {
  const auto prompts = [](const std::string& text) { return prompts_of({{kPromptsFile, text}}); };
  EXPECT_TRUE(prompts_of({}).by_name.empty());
  const Prompts p = prompts(R"({"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "query"})");
  EXPECT_EQ(p.by_name.at("query"), "q: ");
  EXPECT_EQ(p.usual, "query");
  EXPECT_TRUE(prompts(R"({"prompts": null, "default_prompt_name": null})").usual.empty());
  EXPECT_THROW((void)prompts(R"({"prompts": []})"), Error);
  EXPECT_THROW((void)prompts(R"({"prompts": {"a": 1}})"), Error);
  EXPECT_THROW((void)prompts(R"({"prompts": {}, "default_prompt_name": "a"})"), Error);
  EXPECT_EQ(longest_text({{kLengthFile, R"({"max_seq_length": 128})"}}), 128);
  EXPECT_EQ(longest_text({{kLengthFile, R"({"max_seq_length": null})"}}), std::nullopt);
  EXPECT_THROW((void)longest_text({{kLengthFile, R"({"max_seq_length": 0})"}}), Error);
}

TEST(Modules, DenseLayersOfAWrittenFolder) {
  std::map<std::string, std::string> files;
  const nlohmann::json dense = {{"0", {{"in_features", 4}, {"out_features", 6}}},
                                {"1", {{"in_features", 6}, {"out_features", 2}}}};
  EXPECT_EQ(put_dense(dense, files), (std::vector<std::string>{"2_Dense", "3_Dense"}));
  EXPECT_EQ(read_modules(files.at(kModulesFile), "m").dense.size(), 2U);
  EXPECT_NE(files.at("3_Dense/config.json").find("\"out_features\": 2"), std::string::npos);
  // A folder's own names stay.
  files = {{kModulesFile, modules(module("1_P", "Pooling") + "," + module("7_D", "Dense"))}};
  EXPECT_EQ(put_dense({{"0", nlohmann::json::object()}}, files), std::vector<std::string>{"7_D"});
}

}  // namespace
}  // namespace lumen::model::arch
