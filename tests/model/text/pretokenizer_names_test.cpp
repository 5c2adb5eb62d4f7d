// needs: none. The names that files give to ways of cutting texts: found by what patterns mean, not by how they are
// written.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/file/gguf.h"
#include "model/text/pattern/pattern.h"
#include "model/text/stages/pretokenizers.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"
#include "model/text/unicode/unicode.h"
#include "tests/model/tiny.h"

namespace lumen::model::text {
namespace {

using nlohmann::json;

TEST(SamePatterns, AreFoundHoweverTheyAreWritten) {
  const std::pair<const char*, const char*> alike[] = {
      {"a+", "aa*"},
      {"[\\r\\n]", "[\r\n]"},
      {"\\p{N}{1,3}", "\\p{N}\\p{N}?\\p{N}?"},
      {"\\p{N}{1}", "\\p{N}"},
      {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "[^\\n\\p{N}\\x0d\\p{L}]?\\pL\\p{L}*"},
      {"(?i:'s|'t)", "'(?i:s|t)"},
      {"'[sS\\x{17f}]", "(?i:'s)"},
      {"\\s+(?!\\S)|\\s+", "\\s+(?!\\S)|\\s\\s*"},
      {"(?:ab|ac)", "a(?:b|c)"},
      {"[一-龥぀-ゟ゠-ヿ]+", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+"},
      {"a|b", "[ab]"},
  };
  for (const auto& [a, b] : alike) {
    EXPECT_TRUE(same_matches(a, b)) << a << " and " << b;
    EXPECT_TRUE(same_matches(b, a)) << a << " and " << b;
  }
  const std::pair<const char*, const char*> others[] = {
      {"a+", "a*b"},
      {"a|ab", "ab|a"},  // the first alternative wins
      {"a+", "a+?"},
      {"\\p{N}{1,3}", "\\p{N}{1,2}"},
      {"\\p{N}{1,3}", "\\p{N}+"},
      {"\\s+(?!\\S)|\\s+", "\\s+"},
      {"'[sS]", "(?i:'s)"},
      {"[\\p{L}\\p{M}]+", "\\p{L}+"},
      {"(a)\\1", "aa"},  // what needs more than a table is only itself
  };
  for (const auto& [a, b] : others) EXPECT_FALSE(same_matches(a, b)) << a << " and " << b;
  EXPECT_TRUE(same_matches("(a)\\1", "(a)\\1"));
}

TEST(SamePatterns, LeaveNoGaps) {
  const auto& rows = pretokenizers();
  EXPECT_TRUE(leaves_no_gaps(rows.find("llama-bpe")->steps[0].pattern));
  EXPECT_TRUE(leaves_no_gaps(rows.find("gpt-4o")->steps[0].pattern));
  EXPECT_TRUE(leaves_no_gaps("[\\s\\S]"));
  EXPECT_FALSE(leaves_no_gaps("\\p{N}+"));
  EXPECT_FALSE(leaves_no_gaps("\\S+|\\s+(?!\\S)"));
  EXPECT_FALSE(leaves_no_gaps("ab|[^a]"));
  EXPECT_FALSE(leaves_no_gaps("[\\s\\S]*b"));
}

std::string alphabet(char byte) {
  return to_alphabet(std::string(1, byte));
}

// A byte-level tokenizer with these splits, in a tokenizer.json.
json tokenizer(const std::vector<json>& splits, bool ignore_merges = false) {
  json vocab = json::object();
  for (int b = 0; b < 256; ++b) vocab[alphabet(static_cast<char>(b))] = b;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  json list = json::array();
  for (const json& one : splits) list.push_back(one);
  list.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {
      {"added_tokens", json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", list}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"ignore_merges", ignore_merges}, {"merges", {"a b", "ab c"}}, {"vocab", vocab}}}};
}

json split(const std::string& pattern, const char* behavior = "Isolated", bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
}

struct Read {
  file::GgufMetadata metadata;
  std::string pre;
  Tokenizer back;
};
Read through_gguf(const json& root) {
  const Tokenizer t = Tokenizer::from_json(root.dump(), "names");
  file::GgufMetadata m;
  t.to_gguf(m);
  const std::string pre = m.text("tokenizer.ggml.pre");
  const Tokenizer back = Tokenizer::from_gguf(m);
  // The same words, and the same description of how they are cut.
  EXPECT_EQ(back.encode("abc 1234\r\n\r\n  It's Ab"), t.encode("abc 1234\r\n\r\n  It's Ab"));
  return {m, pre, back};
}

std::string cut_as(const char* name, size_t step = 0) {
  return pretokenizers().find(name)->steps[step].pattern;
}

// Patterns as models' owners write them: with characters for escapes, or with the gaps dropped that there are none of.
TEST(PretokenizerNames, AreFoundByMeaning) {
  std::string last = cut_as("deepseek-v3", 2);
  for (size_t at; (at = last.find("\\r\\n")) != std::string::npos;) last.replace(at, 4, "\r\n");
  ASSERT_NE(last, cut_as("deepseek-v3", 2));
  const std::vector<json> deepseek = {split(cut_as("deepseek-v3", 0)), split("[一-龥\\x{3040}-ゟ゠-ヿ]+"), split(last)};
  EXPECT_EQ(through_gguf(tokenizer(deepseek)).pre, "deepseek-v3");
  EXPECT_EQ(through_gguf(tokenizer({split(cut_as("llama-bpe"), "Removed", true)}, true)).pre, "llama-bpe");
  EXPECT_EQ(through_gguf(tokenizer({split(cut_as("llama-bpe"))})).pre, "smaug-bpe");
  EXPECT_EQ(through_gguf(tokenizer({split(cut_as("qwen35"))})).pre, "qwen35");  // without its normal form
  EXPECT_EQ(through_gguf(tokenizer({split("\\p{N}{1}"), split(cut_as("gpt-2"))})).pre, "refact");
  // Every row has a name that stands for it.
  for (const Pretokenizer& row : pretokenizers().rows) {
    std::vector<json> steps;
    for (const SplitStep& s : row.steps) steps.push_back(split(s.pattern));
    json root = tokenizer(steps, row.ignore_merges);
    if (row.nfc) root["normalizer"] = {{"type", "NFC"}};
    const std::string pre = through_gguf(root).pre;
    const Pretokenizer* found = pretokenizers().find(pre);
    ASSERT_NE(found, nullptr) << pre;
    EXPECT_TRUE(same_cuts(found->steps, row.steps) && found->nfc == row.nfc &&
                found->ignore_merges == row.ignore_merges)
        << pre << " for " << row.names.front();
  }
}

// What a name cannot say goes along, and counts here.
TEST(PretokenizerNames, FlagsThatTheNameDoesNotHave) {
  json root = tokenizer({split(cut_as("llama-bpe"))}, true);
  root["normalizer"] = {{"type", "NFC"}};
  const Read normalized = through_gguf(root);
  EXPECT_EQ(normalized.pre, "llama-bpe");
  EXPECT_TRUE(normalized.metadata.boolean("lumen.tokenizer.whole", false));
  EXPECT_EQ(json::parse(normalized.back.to_json())["normalizer"], root["normalizer"]);
  // Taking words whole changes nothing where merges lead to every token.
  testing::internal::CaptureStderr();
  const Read whole = through_gguf(tokenizer({split(cut_as("gpt-4o"))}, true));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(whole.pre, "gpt-4o");
  EXPECT_TRUE(json::parse(whole.back.to_json())["model"]["ignore_merges"]);
  json unreachable = tokenizer({split(cut_as("gpt-4o"))}, true);
  unreachable["model"]["vocab"]["xyz"] = 258;
  testing::internal::CaptureStderr();
  EXPECT_EQ(through_gguf(unreachable).pre, "gpt-4o");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("split some words differently"), std::string::npos);
}

TEST(PretokenizerNames, NoneForWhatNobodyKnows) {
  const Read r = through_gguf(tokenizer({split("[a-z]+|[^a-z]")}));
  EXPECT_EQ(r.pre, kUnnamedSplit);
  EXPECT_TRUE(r.metadata.has("tokenizer.huggingface.json"));
  EXPECT_FALSE(r.metadata.has("lumen.tokenizer.whole"));
  EXPECT_FALSE(is_known_split(r.metadata));
  EXPECT_TRUE(is_known_split(through_gguf(tokenizer({split(cut_as("qwen35"))})).metadata));
  // A row of our own, and what it becomes where single bytes make no difference.
  file::GgufMetadata letters, bytes;
  Tokenizer::characters("안녕").to_gguf(letters);
  Tokenizer::characters("abc").to_gguf(bytes);
  EXPECT_FALSE(is_known_split(letters));
  EXPECT_TRUE(is_known_split(bytes));
}

}  // namespace
}  // namespace lumen::model::text
