// needs: none. Vocabularies read straight from a text: the same as by the JSON library, or not at all.
#include "model/text/vocabulary/vocabulary_scan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/structured/json.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::text {
namespace {

TEST(VocabularyScan, ReadsWhatIsPlain) {
  const auto found = scan_vocabulary(R"( {"a": [1, {"vocab": {}}], "model": {"type": "BPE",
      "vocab": { "x\u00e9\n\"" : 0, "\ud83d\ude00":1 , "":2 }, "merges": ["a b", ["c ", "d"]] }, "z": "}{" } )");
  ASSERT_TRUE(found && found->tokens && found->merges);
  EXPECT_FALSE(found->pieces);
  using Tokens = std::vector<std::pair<std::string, uint64_t>>;
  EXPECT_EQ(*found->tokens, (Tokens{{"x\xc3\xa9\n\"", 0}, {"\xf0\x9f\x98\x80", 1}, {"", 2}}));
  using Merges = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(*found->merges, (Merges{{"a", "b"}, {"c ", "d"}}));
  const auto rest = parse_json(found->rest, "rest");
  EXPECT_EQ(rest["model"]["vocab"], nlohmann::json::object());
  EXPECT_EQ(rest["model"]["merges"], nlohmann::json::array());
  EXPECT_EQ(rest["z"], "}{");
  const auto pieces = scan_vocabulary(R"({"model": {"vocab": [["a", -1.5e-3], ["b", 0], ["c", 12]]}})");
  ASSERT_TRUE(pieces && pieces->pieces);
  using Pieces = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(*pieces->pieces, (Pieces{{"a", -1.5e-3}, {"b", 0}, {"c", 12}}));
}

TEST(VocabularyScan, GivesUpOnAllElse) {
  for (const char* vocabulary : {R"({"a": 1.0})",
                                 R"({"a": -1})",
                                 R"({"a": 01})",
                                 R"({"a": 1e2})",
                                 R"({"a": "1"})",
                                 R"({"a": 9999999999999999999})",
                                 R"({"a": 0,})",
                                 R"({"a" 0})",
                                 R"({a: 0})",
                                 "{\"a\x01\": 0}",
                                 "{\"\xff\": 0}",
                                 R"({"\ud800": 0})",
                                 R"({"\udc00": 0})",
                                 R"({"\ud800\u0041": 0})",
                                 R"({"\u12g4": 0})",
                                 R"({"\x": 0})",
                                 R"([["a", 1e999]])",
                                 R"([["a", 1.]])",
                                 R"([["a", .5]])",
                                 R"([["a", +1]])",
                                 R"([["a", 00]])",
                                 R"([["a"]])",
                                 R"([["a", 1, 2]])",
                                 R"(["a", 1])",
                                 R"({"a": 0)",
                                 R"({"a)",
                                 "",
                                 "7"})
    EXPECT_FALSE(scan_vocabulary(R"({"model": {"vocab": )" + std::string(vocabulary) + "}}")) << vocabulary;
  for (const char* merges : {R"(["a"])", R"(["a b c"])", R"([["a"]])", R"([["a", "b", "c"]])", R"([1])"})
    EXPECT_FALSE(scan_vocabulary(R"({"model": {"vocab": {}, "merges": )" + std::string(merges) + "}}")) << merges;
  EXPECT_FALSE(scan_vocabulary("[]"));
  EXPECT_FALSE(scan_vocabulary("{\"a\": \x1b, \"model\": {\"vocab\": {}}}")) << "control characters end, too";
  EXPECT_FALSE(scan_vocabulary("{\"model\": {\"vocab\": {}, \"a\": [\x01]}}"));
  EXPECT_FALSE(scan_vocabulary("{}"));
}

std::string with_vocabulary(const std::string& vocabulary, const std::string& more = "") {
  return R"({"model": {"type": "WordLevel", "unk_token": "a", "vocab": )" + vocabulary + "}" + more + "}";
}

std::string refusal(const std::string& text) {
  try {
    (void)Tokenizer::from_json(text, "t.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Errors are those of the whole text, wherever they stand.
TEST(VocabularyScan, ErrorsAreThoseOfTheWholeText) {
  EXPECT_EQ(refusal(with_vocabulary(R"({"a": 0, "b": 1})")), "");
  EXPECT_NE(refusal(with_vocabulary(R"({"a": 0, "a": 1})")).find("same key twice"), std::string::npos);
  EXPECT_NE(refusal(with_vocabulary(R"({"a": 0, "b": 0})")).find("same id"), std::string::npos);
  EXPECT_NE(refusal(with_vocabulary(R"({"a": 0, "b": 99999999})")).find("not a whole number below"), std::string::npos);
  const std::string text = with_vocabulary(R"({"a": 0, "b": 1})", ", oops");
  EXPECT_NE(refusal(text).find(fmt::format(":1:{}: ", text.find("oops") + 1)), std::string::npos) << refusal(text);
}

// Two hundred thousand added tokens are read and used in time that grows as they do; a search through all of them for
// each took half an hour.
TEST(VocabularyScan, ManyAddedTokens) {
  for (const bool normalized : {false, true}) {
    std::string added = R"(, "added_tokens": [)";
    for (int i = 0; i < 200'000; ++i)
      added += fmt::format(R"({}{{"id": {}, "content": "tok{}en", "normalized": {}, "special": false}})", i ? "," : "",
                           i + 2, i, normalized ? "true" : "false");
    const auto start = std::chrono::steady_clock::now();
    const Tokenizer t = Tokenizer::from_json(with_vocabulary(R"({"a": 0, "b": 1})", added + "]"), "t.json");
    EXPECT_EQ(t.size(), 200'002);
    EXPECT_EQ(t.encode("tok199999entok7en"), (std::vector<TokenId>{200'001, 9}));
    EXPECT_EQ(t.find("tok5en"), 7);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  }
}

}  // namespace
}  // namespace lumen::model::text
