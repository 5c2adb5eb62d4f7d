// needs: none. Vocabularies as files of ranks, against the ids of the program they come from (ranks_reference.py), and
// hostile ones.
#include "model/text/tokenizer/file/ranks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::text {
namespace {

const std::filesystem::path kRanks = kFixtures / "ranks";

std::string message_of(const std::filesystem::path& path) {
  try {
    (void)Tokenizer::load(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Ranks, GiveTheIdsOfTheirProgram) {
  for (const char* kind : {"llama", "qwen"}) {
    const Tokenizer t = Tokenizer::load(kRanks / kind);
    const auto cases = nlohmann::json::parse(read_file(kRanks / kind / "cases.json"));
    ASSERT_GT(cases.size(), 10);
    for (const auto& c : cases) {
      const auto text = c["text"].get<std::string>();
      EXPECT_EQ(t.encode(text), c["ids"].get<std::vector<TokenId>>()) << kind << ": " << text;
      EXPECT_EQ(t.decode(t.encode(text)), text);
    }
    // As a tokenizer.json and as GGUF metadata it stays the same.
    file::GgufMetadata m;
    t.to_gguf(m);
    EXPECT_EQ(m.text("tokenizer.ggml.pre"), kind == std::string("llama") ? "llama-bpe" : "qwen2");
    for (const Tokenizer& other : {Tokenizer::from_json(t.to_json(), kind), Tokenizer::from_gguf(m)})
      for (const auto& c : cases)
        EXPECT_EQ(other.encode(c["text"].get<std::string>()), c["ids"].get<std::vector<TokenId>>()) << kind;
  }
}

TEST(Ranks, ControlTokensStandBehindTheLastOne) {
  const Tokenizer llama = Tokenizer::load(kRanks / "llama"), qwen = Tokenizer::load(kRanks / "qwen");
  EXPECT_EQ(llama.size(), 600 + 256);
  EXPECT_EQ(llama.find("<|begin_of_text|>"), 600);
  EXPECT_EQ(llama.find("<|eot_id|>"), 609);
  EXPECT_EQ(llama.find("<|reserved_special_token_247|>"), 855);
  EXPECT_EQ(llama.encode("", {.add_special = true}), std::vector<TokenId>{600});
  EXPECT_EQ(llama.end_of_generation(), (std::vector<TokenId>{601, 608, 609}));
  EXPECT_EQ(qwen.find("<|im_end|>"), 602);
  EXPECT_EQ(qwen.find("<|extra_204|>"), 807);
  EXPECT_EQ(qwen.size(), 808);
  EXPECT_EQ(qwen.encode("<|im_end|>", {.parse_special = true}), std::vector<TokenId>{602});
}

class RankFiles : public testing::Test {
 protected:
  RankFiles() { write("config.json", R"({"model_type": "qwen"})"); }
  void write(const char* name, const std::string& text) { write_file_atomic(folder / name, text); }
  std::string refusal(const std::string& text) {
    write("tokenizer.model", text);
    return message_of(folder.path());
  }
  TestFolder folder;
};

TEST_F(RankFiles, TokensOfTheConfigComeFirst) {
  write("tokenizer.model", "YQ== 0\r\nYg== 1\nYWI= 2\n");
  write("tokenizer_config.json",
        R"({"eos_token": "<end>", "added_tokens_decoder": {"5": {"content": "<end>", "special": true}}})");
  const Tokenizer t = Tokenizer::load(folder.path());
  EXPECT_EQ(t.size(), 6);
  EXPECT_FALSE(t.has(3));
  EXPECT_EQ(t.eos(), 5);
  EXPECT_EQ(t.encode("abba"), (std::vector<TokenId>{2, 1, 0}));
  EXPECT_EQ(Tokenizer::load(folder / "tokenizer.model").size(), 6);
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<end>"}}})");
  EXPECT_NE(message_of(folder.path()).find("no token for 'x'"), std::string::npos);
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"content": "<end>"}}})");
  EXPECT_NE(message_of(folder.path()).find("the same id 1"), std::string::npos);
}

TEST_F(RankFiles, AreRefusedWhereNothingTellsHowTextsAreCut) {
  write("tokenizer.model", "YQ== 0\n");
  EXPECT_EQ(message_of(folder.path()), "");
  write("config.json", R"({"model_type": "nobody"})");
  EXPECT_NE(message_of(folder.path()).find("(model_type 'nobody')"), std::string::npos);
  std::filesystem::remove(folder / "config.json");
  EXPECT_NE(message_of(folder / "tokenizer.model").find("has no split pattern"), std::string::npos);
  std::filesystem::rename(folder / "tokenizer.model", folder / "qwen.tiktoken");
  EXPECT_EQ(message_of(folder / "qwen.tiktoken"), "");
  EXPECT_EQ(message_of(folder.path()), "");
  write("other.tiktoken", "YQ== 0\n");
  EXPECT_NE(message_of(folder.path()).find("several tiktoken files"), std::string::npos);
}

TEST_F(RankFiles, HostileOnesAreErrors) {
  EXPECT_NE(refusal("YQ== 0\nYg== 0\n").find(":2: two tokens have the rank 0"), std::string::npos);
  EXPECT_NE(refusal("YQ== 0\nYQ== 1\n").find("the ranks 0 and 1 are of the same token"), std::string::npos);
  for (const char* line : {"Yg==", "Yg== ", "Yg== x", "Yg== -1", "Yg== 1 2", " 1", "Yg= 1", "Y=== 1", "====  1",
                           "Yg==\t1", "Y!== 1", "Yg== 99999999999999999999"})
    EXPECT_NE(refusal(std::string("YQ== 0\n") + line + "\n").find(":2: not a base64 token"), std::string::npos) << line;
  EXPECT_NE(refusal("YQ== 0\nYg== 4000000\n").find("the rank 4000000 is out of range"), std::string::npos);
  std::string token;
  for (int i = 0; i < 1000; ++i) token += "YWFh";
  EXPECT_NE(refusal("YQ== 0\n" + token + " 1\n").find("a token of 3000 bytes is too long"), std::string::npos);
  EXPECT_FALSE(is_ranks("{\"a\": 1}"));
  EXPECT_FALSE(is_ranks(""));
  EXPECT_FALSE(is_ranks("GGUF"));
  EXPECT_TRUE(is_ranks("IQ== 0"));
}

}  // namespace
}  // namespace lumen::model::text
