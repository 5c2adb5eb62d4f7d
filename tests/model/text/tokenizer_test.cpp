// needs: none. Tokenizers against the ids that their owners' programs give, and against their own inverse.
#include "model/text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "model/file/gguf.h"
#include "model/text/unicode/unicode.h"
#include "tests/model/text/tokenizer_fixtures.h"

namespace lumen::model::text {
namespace {

using nlohmann::json;

file::GgufMetadata metadata_of(const std::filesystem::path& path) {
  const MappedFile file(path);
  return file::read_gguf_metadata(file.bytes(), path.filename().string());
}

std::vector<std::string> read_cases(const std::filesystem::path& path) {
  const std::string text = read_file(path), mark = "\n__ggml_vocab_test__\n";
  std::vector<std::string> out;
  size_t at = 0;
  for (size_t end; (end = text.find(mark, at)) != std::string::npos; at = end + mark.size())
    out.push_back(text.substr(at, end - at));
  return out;
}

std::vector<std::vector<TokenId>> read_ids(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  std::vector<std::vector<TokenId>> out;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    out.emplace_back();
    for (TokenId id; words >> id;) out.back().push_back(id);
  }
  return out;
}

// Ids of a cut-down GGUF vocabulary as those of the whole one.
std::vector<TokenId> original(const std::vector<TokenId>& ids, const file::GgufMetadata& m) {
  if (!m.has("test.ids")) return ids;
  const std::vector<int64_t> map = m.integers("test.ids");
  std::vector<TokenId> out;
  for (const TokenId id : ids) out.push_back(static_cast<TokenId>(map.at(id)));
  return out;
}

void check_cases(const Tokenizer& t, const file::GgufMetadata& m, const std::filesystem::path& inp,
                 const std::filesystem::path& out) {
  const auto cases = read_cases(inp);
  const auto expected = read_ids(out);
  ASSERT_EQ(cases.size(), 46u);
  ASSERT_EQ(expected.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto ids = t.encode(cases[i]);
    EXPECT_EQ(original(ids, m), expected[i]) << "case " << i << ": '" << cases[i] << "'";
    EXPECT_EQ(t.decode(ids), cases[i]);
  }
}

class GgufVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(GgufVocabulary, GivesTheReferenceIds) {
  const std::string name = GetParam();
  const file::GgufMetadata m = metadata_of(fixture(name + ".gguf"));
  check_cases(Tokenizer::from_gguf(m), m, fixture("cases.inp"), fixture(name + ".out"));
}

// Bytes no valid UTF-8 has may lack a token: then they are the vocabulary's unknown token, or refused. Others come
// back.
TEST_P(GgufVocabulary, SingleBytesComeBackOrAreRefused) {
  const Tokenizer t = Tokenizer::load(fixture(std::string(GetParam()) + ".gguf"));
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    try {
      const std::string back = t.decode(t.encode(byte));
      EXPECT_TRUE(back == byte || (b >= 0xc0 && back.empty())) << b;
    } catch (const Error& e) {
      EXPECT_GE(b, 0xc0) << e.what();
    }
  }
}

TEST_P(GgufVocabulary, SurvivesBothFileForms) {
  const std::string name = GetParam();
  const file::GgufMetadata m = metadata_of(fixture(name + ".gguf"));
  const Tokenizer t = Tokenizer::from_gguf(m);
  file::GgufMetadata written;
  t.to_gguf(written);
  const Tokenizer again = Tokenizer::from_gguf(written);
  const Tokenizer reread = Tokenizer::from_json(t.to_json(), name, t.to_config_json());
  for (const Tokenizer& other : {again, reread}) {
    ASSERT_EQ(other.size(), t.size());
    EXPECT_EQ(other.bos(), t.bos());
    EXPECT_EQ(other.eos(), t.eos());
    EXPECT_EQ(other.end_of_generation(), t.end_of_generation());
    for (const std::string& text : read_cases(fixture("cases.inp"))) {
      EXPECT_EQ(other.encode(text, {.add_special = true}), t.encode(text, {.add_special = true})) << text;
    }
    for (TokenId id = 0; id < t.size(); ++id) {
      ASSERT_EQ(other.bytes(id), t.bytes(id));
      ASSERT_EQ(other.token(id), t.token(id));
    }
  }
  EXPECT_EQ(written.text("tokenizer.ggml.pre"), name == "mpt" ? "gpt-2" : name);
  for (TokenId id = 0; id < t.size(); ++id) EXPECT_EQ(again.kind(id), t.kind(id));
}

// Vocabularies of other kinds: scored pairs, and word pieces, which lose case and white space.
TEST(Tokenizer, ScoredPairsGiveTheReferenceIds) {
  const file::GgufMetadata m = metadata_of(fixture("llama-spm.gguf"));
  const Tokenizer t = Tokenizer::from_gguf(m);
  check_cases(t, m, fixture("cases.inp"), fixture("llama-spm.out"));
  EXPECT_TRUE(t.adds_bos());
  const Tokenizer reread = Tokenizer::from_json(t.to_json(), "again", t.to_config_json());
  file::GgufMetadata written;
  t.to_gguf(written);
  const Tokenizer gguf = Tokenizer::from_gguf(written);
  for (const std::string& text : read_cases(fixture("cases.inp"))) {
    EXPECT_EQ(reread.encode(text), t.encode(text)) << text;
    EXPECT_EQ(gguf.encode(text), t.encode(text)) << text;
  }
}

TEST(Tokenizer, WordPiecesGiveTheReferenceIds) {
  const file::GgufMetadata m = metadata_of(fixture("bert-bge.gguf"));
  const Tokenizer t = Tokenizer::from_gguf(m);
  const auto cases = read_cases(fixture("cases.inp"));
  const auto expected = read_ids(fixture("bert-bge.out"));
  ASSERT_EQ(expected.size(), cases.size());
  file::GgufMetadata written;
  t.to_gguf(written);
  const Tokenizer gguf = Tokenizer::from_gguf(written);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(original(t.encode(cases[i]), m), expected[i]) << cases[i];
    EXPECT_EQ(gguf.encode(cases[i]), t.encode(cases[i])) << cases[i];
  }
  EXPECT_EQ(t.decode(t.encode("Hello, World")), "hello, world");
}

// A stream gives whole characters only, and in the end all of the text.
void expect_whole_characters(const Tokenizer& t, const std::string& bytes) {
  TokenStream stream(t);
  std::string out;
  for (const TokenId id : t.encode(bytes)) {
    const std::string piece = stream.push(id);
    RC_ASSERT(utf8_repair(piece) == piece);
    out += piece;
  }
  RC_ASSERT(out + stream.finish() == utf8_repair(bytes));
}

RC_GTEST_PROP(Tokenizer, AnyBytesComeBackThroughByteTokens, (const std::string& bytes)) {
  static const Tokenizer t = Tokenizer::load(fixture("llama-spm.gguf"));
  RC_PRE(bytes.find("\xe2\x96\x81") == std::string::npos);  // the sign for a space
  RC_ASSERT(t.decode(t.encode(bytes)) == bytes);
  expect_whole_characters(t, bytes);
}

TEST(Tokenizer, BatchesAreTheSameAsOneAfterAnother) {
  const Tokenizer t = Tokenizer::load(fixture("gpt-2.gguf"));
  const auto cases = read_cases(fixture("cases.inp"));
  std::vector<std::string_view> texts;
  for (int i = 0; i < 20; ++i) texts.insert(texts.end(), cases.begin(), cases.end());
  const auto batch = t.encode_batch(texts, {}, 4);
  for (size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(batch[i], t.encode(texts[i]));
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, GgufVocabulary, testing::Values("gpt-2", "mpt", "refact", "deepseek-llm"),
                         [](const auto& i) {
                           std::string name = i.param;
                           std::erase(name, '-');
                           return name;
                         });

struct JsonCase {
  const char *vocabulary, *texts;
};
void PrintTo(const JsonCase& c, std::ostream* out) {
  *out << c.vocabulary;
}

void check_texts(const Tokenizer& t, const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json entry = json::parse(line);
    const std::string text = entry["text"];
    const auto ids = t.encode(text, {.parse_special = true});
    EXPECT_EQ(ids, entry["ids"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(utf8_repair(t.decode(ids, false)), entry.value("decoded", text));
  }
  EXPECT_EQ(count, 95);
}

class JsonVocabulary : public testing::TestWithParam<JsonCase> {};

TEST_P(JsonVocabulary, GivesTheReferenceIds) {
  check_texts(Tokenizer::load(fixture(GetParam().vocabulary)), fixture(GetParam().texts));
}

TEST_P(JsonVocabulary, SurvivesBothFileForms) {
  const Tokenizer t = Tokenizer::load(fixture(GetParam().vocabulary));
  check_texts(Tokenizer::from_json(t.to_json(), "again"), fixture(GetParam().texts));
  file::GgufMetadata m;
  t.to_gguf(m);
  check_texts(Tokenizer::from_gguf(m), fixture(GetParam().texts));
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, JsonVocabulary,
                         testing::Values(JsonCase{"qwen3-0.6b.json", "qwen3.jsonl"},
                                         JsonCase{"qwen3.5-0.8b.json", "qwen3.5.jsonl"},
                                         JsonCase{"ax-3.1.json", "ax-3.1.jsonl"},
                                         JsonCase{"ax-3.1-light.json", "ax-3.1-light.jsonl"},
                                         JsonCase{"polyglot-ko-1.3b.json", "polyglot-ko.jsonl"},
                                         JsonCase{"solar-10.7b.json", "solar-10.7b.jsonl"}),
                         [](const auto& i) {
                           std::string name;
                           for (const char c : std::string(i.param.vocabulary)) {
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

TEST(Tokenizer, JsonGivesTheIdsOfTheOtherProgramToo) {
  // Cut-down files lack the tokens behind the model's vocabulary that this program does not know either.
  check_cases(Tokenizer::load(fixture("qwen3-0.6b.json")), file::GgufMetadata(), fixture("cases.inp"),
              fixture("qwen2.out"));
}

// The whole files, where a folder with them is named.
TEST(Tokenizer, WholeVocabularies) {
  const char* folder = std::getenv("LUMEN_VOCAB_DIR");
  if (!folder)
    GTEST_SKIP() << "set LUMEN_VOCAB_DIR to a folder with ggml-vocab-*.gguf, hf/*.tokenizer.json and korean/*.jsonl";
  const std::filesystem::path at = folder;
  for (const std::string name : {"gpt-2", "mpt", "refact", "deepseek-llm"}) {
    const auto path = at / ("ggml-vocab-" + name + ".gguf");
    check_cases(Tokenizer::load(path), file::GgufMetadata(), path.string() + ".inp", path.string() + ".out");
  }
  const Tokenizer q = Tokenizer::load(at / "hf/qwen3-0.6b.tokenizer.json");
  check_cases(q, file::GgufMetadata(), at / "ggml-vocab-qwen2.gguf.inp", at / "ggml-vocab-qwen2.gguf.out");
  check_texts(q, at / "korean/qwen3.jsonl");
  check_texts(Tokenizer::load(at / "hf/qwen3.5-0.8b.tokenizer.json"), at / "korean/qwen3.5.jsonl");
  check_texts(Tokenizer::load(at / "hf/ax-3.1.tokenizer.json"), at / "korean/ax-3.1.jsonl");
  check_texts(Tokenizer::load(at / "hf/ax-3.1-light.tokenizer.json"), at / "korean/ax-3.1-light.jsonl");
  check_texts(Tokenizer::load(at / "hf/polyglot-ko-1.3b.tokenizer.json"), at / "korean/polyglot-ko.jsonl");
  check_texts(Tokenizer::load(at / "hf/solar-10.7b.tokenizer.json"), at / "korean/solar-10.7b.jsonl");
  const auto spm = at / "ggml-vocab-llama-spm.gguf";
  check_cases(Tokenizer::load(spm), file::GgufMetadata(), spm.string() + ".inp", spm.string() + ".out");
}

RC_GTEST_PROP(Tokenizer, AnyBytesComeBack, (const std::string& bytes)) {
  static const Tokenizer t = Tokenizer::load(fixture("gpt-2.gguf"));
  RC_ASSERT(t.decode(t.encode(bytes)) == bytes);
}

RC_GTEST_PROP(Tokenizer, StreamEqualsRepairedDecode, (const std::string& bytes)) {
  static const Tokenizer t = Tokenizer::load(fixture("gpt-2.gguf"));
  expect_whole_characters(t, bytes);
}

TEST(Tokenizer, StreamHoldsHalfCharactersBack) {
  const Tokenizer t = Tokenizer::load(fixture("gpt-2.gguf"));
  const auto ids = t.encode("\xed\x95\x9c");  // one syllable in several tokens
  ASSERT_GT(ids.size(), 1u);
  TokenStream stream(t);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), "\xed\x95\x9c");
  EXPECT_EQ(stream.finish(), "");
  stream.push(ids[0]);
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
}

TEST(Tokenizer, ControlTokensOfUsersStayText) {
  const Tokenizer t = Tokenizer::load(fixture("gpt-2.gguf"));
  const TokenId end = *t.eos();
  EXPECT_EQ(t.token(end), "<|endoftext|>");
  const std::string text = "a<|endoftext|>b";
  const auto plain = t.encode(text), parsed = t.encode(text, {.parse_special = true});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
  ASSERT_EQ(parsed.size(), 3u);
  EXPECT_EQ(parsed[1], end);
  EXPECT_EQ(t.decode(plain), text);
  EXPECT_EQ(t.decode(parsed), "ab");
  EXPECT_EQ(t.decode(parsed, false), text);
  EXPECT_EQ(t.end_of_generation(), std::vector<TokenId>{end});
}

// A vocabulary of single bytes with the added tokens given.
Tokenizer bytes_and(const std::string& added, const std::string& more = "") {
  json vocabulary = json::object();
  for (int b = 0; b < 256; ++b) vocabulary[to_alphabet(std::string(1, static_cast<char>(b)))] = b;
  return Tokenizer::from_json(R"({"model":{"type":"BPE","merges":[],"vocab":)" + vocabulary.dump() +
                                  R"(},"added_tokens":[)" + added + R"(],"pre_tokenizer":{"type":"ByteLevel"})" + more +
                                  "}",
                              "test");
}

TEST(Tokenizer, AddedTokensAreMatchedLeftmostLongest) {
  const Tokenizer t =
      bytes_and(R"({"id":256,"content":"ab"},{"id":257,"content":"abc"},{"id":258,"content":"bcd","special":true})");
  EXPECT_EQ(t.encode("abcd"), (std::vector<TokenId>{257, 'd'}));
  EXPECT_EQ(t.encode("xabx"), (std::vector<TokenId>{'x', 256, 'x'}));
  EXPECT_EQ(t.encode("bcd"), (std::vector<TokenId>{'b', 'c', 'd'}));
  EXPECT_EQ(t.encode("bcd", {.parse_special = true}), (std::vector<TokenId>{258}));
}

TEST(Tokenizer, AddedTokensSwallowSpaceAndKeepToWords) {
  const Tokenizer t = bytes_and(
      R"({"id":256,"content":"<m>","lstrip":true,"rstrip":true},{"id":257,"content":"it","single_word":true})");
  EXPECT_EQ(t.encode("a \t<m>\n b"), (std::vector<TokenId>{'a', 256, 'b'}));
  EXPECT_EQ(t.encode("it bit"), (std::vector<TokenId>{257, ' ', 'b', 'i', 't'}));
}

TEST(Tokenizer, OneTextHasOneId) {
  const auto refused = [](const std::string& added) {
    try {
      bytes_and(added);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused(R"({"id":257,"content":"it"},{"id":256,"content":"it"})"),
            "test: added_tokens: two different entries (ids 256 and 257) for 'it'");
  EXPECT_EQ(refused(R"({"id":256,"content":"it"},{"id":256,"content":"it","special":true})"),
            "test: added_tokens: two different entries (ids 256 and 256) for 'it'");
  EXPECT_EQ(refused(R"({"id":256,"content":"a"})"), "test: added_tokens: 'a' has the id 256 here and 97 in the model");
  EXPECT_EQ(refused(R"({"id":97,"content":"b"})"), "test: added_tokens: 'a' and 'b' have the same id 97");
  EXPECT_EQ(refused(R"({"id":256,"content":"it"},{"id":256,"content":"it"})"), "taken");
}

TEST(Tokenizer, WhatIsWrittenReadsAsBefore) {
  const auto survives = [](const Tokenizer& t, const std::string& text) {
    const Tokenizer again = Tokenizer::from_json(t.to_json(), "again");
    EXPECT_EQ(again.encode(text), t.encode(text));
    EXPECT_EQ(again.size(), t.size());
  };
  // Of texts that are equal when normalised the lowest id wins, wherever it stands in the file.
  const Tokenizer equal =
      bytes_and(R"({"id":257,"content":"IT"},{"id":256,"content":"It"})", R"(,"normalizer":{"type":"Lowercase"})");
  EXPECT_EQ(equal.encode("it"), (std::vector<TokenId>{256}));
  survives(equal, "it");
  // What has no text is no token; an entry without one keeps its place.
  EXPECT_EQ(bytes_and(R"({"id":300,"content":""})").size(), 256);
  survives(Tokenizer::from_json(R"({"model":{"type":"WordLevel","vocab":{"a":0,"":4},"unk_token":"a"}})", "test"),
           "a b");
  EXPECT_THROW(Tokenizer::from_json(R"({"model":{"type":"WordLevel","vocab":{"a":4,"":4},"unk_token":"a"}})", "test"),
               Error);
  // Models of scored pieces name the unknown one by its number alone.
  survives(Tokenizer::from_json(R"({"model":{"type":"Unigram","vocab":[["a",-1],["b",-2]],"unk_id":1,"unk_token":"it"},
                                    "added_tokens":[{"id":9,"content":"it"}]})",
                                "test"),
           "aba it x");
}

TEST(Tokenizer, TemplatesPutTokensAroundTheText) {
  const Tokenizer t =
      bytes_and(R"({"id":256,"content":"<s>","special":true},{"id":257,"content":"</s>","special":true})",
                R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
          {"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}]})");
  EXPECT_EQ(t.encode("a", {.add_special = true}), (std::vector<TokenId>{256, 'a', 257}));
  EXPECT_EQ(t.encode("a"), (std::vector<TokenId>{'a'}));
  EXPECT_EQ(t.bos(), 256);
  const Tokenizer again = Tokenizer::from_json(t.to_json(), "again");
  EXPECT_EQ(again.encode("a", {.add_special = true}), (std::vector<TokenId>{256, 'a', 257}));
}

TEST(Tokenizer, UnknownPretokenizersTravelWhole) {
  const Tokenizer t = Tokenizer::load(fixture("polyglot-ko-1.3b.json"));
  file::GgufMetadata m;
  t.to_gguf(m);
  EXPECT_EQ(m.text("tokenizer.ggml.pre"), "custom");
  EXPECT_TRUE(m.has("tokenizer.huggingface.json"));
  EXPECT_EQ(Tokenizer::from_gguf(m).encode("안녕하세요 여러분"), t.encode("안녕하세요 여러분"));
}

// As Gemma's: runs of tabs are tokens after the scored ones, and scores would pair them.
TEST(Tokenizer, WrittenMergesPairTokensOfTheModelAlone) {
  file::GgufMetadata m;
  m.set("tokenizer.ggml.model", std::string("llama"));
  m.set("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "a", "b", "ab", "\t", "\t\t"});
  m.set("tokenizer.ggml.scores", std::vector<float>{0, 0, -3, -4, -1, -1000, -1000});
  m.set("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 1, 1, 1, 4, 4});
  m.set("tokenizer.ggml.add_space_prefix", false);
  const Tokenizer t = Tokenizer::from_gguf(m);
  ASSERT_EQ(t.encode("ab\t\tb"), (std::vector<TokenId>{4, 6, 3}));
  const auto root = nlohmann::json::parse(t.to_json());
  EXPECT_EQ(root["model"]["merges"], nlohmann::json::parse(R"([["a","b"]])"));
  EXPECT_FALSE(root["model"]["vocab"].contains("\t"));
  EXPECT_EQ(Tokenizer::from_json(t.to_json(), "again").encode("ab\t\tb"), t.encode("ab\t\tb"));
}

TEST(Tokenizer, CharactersAreTheirOwnTokens) {
  const Tokenizer t = Tokenizer::characters("hello 세계\n");
  EXPECT_EQ(t.size(), 8);  // newline, space, e h l o, two syllables
  EXPECT_EQ(t.encode("hel"), (std::vector<TokenId>{3, 2, 4}));
  EXPECT_EQ(t.decode(t.encode("계 세\n")), "계 세\n");
  EXPECT_EQ(t.encode("세").size(), 1u);
  EXPECT_THROW(t.encode("x"), Error);
  file::GgufMetadata m;
  t.to_gguf(m);
  EXPECT_EQ(m.text("tokenizer.ggml.pre"), "characters");
  EXPECT_EQ(Tokenizer::from_gguf(m).encode("hello 세계"), t.encode("hello 세계"));
  EXPECT_EQ(Tokenizer::from_json(t.to_json(), "again").encode("hello 세계"), t.encode("hello 세계"));
  EXPECT_THROW(Tokenizer::characters("a\xff"), Error);
}

TEST(Tokenizer, SingleByteCharactersAreReadableByOthers) {
  const Tokenizer t = Tokenizer::characters("First Citizen:\n");
  file::GgufMetadata m;
  t.to_gguf(m);
  EXPECT_EQ(m.text("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(Tokenizer::from_gguf(m).encode("it is\n\n  Fizzen"), t.encode("it is\n\n  Fizzen"));
}

TEST(Tokenizer, TrainingIsDeterministicAndCompresses) {
  const std::string text(embedded::data()[0].text.substr(0, 100000));
  const BpeTraining options{.vocabulary = 400, .specials = {"<|endoftext|>"}, .end_of_text = "<|endoftext|>"};
  const Tokenizer t = Tokenizer::train(text, options), twin = Tokenizer::train(text, options);
  EXPECT_EQ(t.size(), 400);
  EXPECT_EQ(t.eos(), 0);
  EXPECT_EQ(t.to_json(), twin.to_json());
  const auto ids = t.encode(text);
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_LT(ids.size(), text.size() * 6 / 10);
  EXPECT_EQ(Tokenizer::from_json(t.to_json(), "again").encode(text), ids);
}

TEST(Tokenizer, TrainingByHand) {
  // Words: "aaab" twice, " aab" once. Pairs: (a,a) 2*2+1 = 5, (a,b) 3. Then (aa,a) 2, (aa,b) 1, (a,b) 2.
  const Tokenizer t = Tokenizer::train("aaab\naaab\naab", {.vocabulary = 258, .min_frequency = 2});
  EXPECT_EQ(t.token(256), "aa");
  // (a, b) and (aa, a) are equally frequent, (a, newline...) is rarer: the lower pair of ids wins.
  EXPECT_EQ(t.token(257), "ab");
  EXPECT_THROW(Tokenizer::train("x", {.vocabulary = 200}), Error);
}

TEST(Tokenizer, RefusesWhatItCannotHonour) {
  const auto refuse = [](const std::string& text, const std::string& part) {
    try {
      Tokenizer::from_json(text, "t.json");
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refuse("{", "t.json");
  refuse("[]", "JSON object");
  refuse(R"({"model":{"type":"Unigram","vocab":[]}})", "empty");
  refuse(R"({"model":{"type":"Unigram","vocab":[["a"]]}})", "not a pair of a string and a score");
  refuse(R"({"model":{"type":"Unigram","unk_id":3,"vocab":[["a",0]]}})", "outside the vocabulary");
  refuse(R"({"model":{"type":"Bigram","vocab":[]}})", "Bigram");
  refuse(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})", "no unknown token");
  refuse(R"({"model":{"vocab":{"a":0},"merges":[],"dropout":0.1}})", "dropout");
  refuse(R"({"model":{"vocab":{"a":0},"merges":[]},"decoder":{"type":"CTC"}})", "CTC");
  refuse(R"({"model":{"vocab":{"a":0},"merges":[]},"post_processor":{"type":"Odd"}})", "Odd");
  refuse(R"({"model":{"vocab":{"a":0},"merges":[]},"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"}})",
         "character map");
  refuse(R"({"model":{"vocab":{"a":-1},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"}})", "id of 'a'");
  refuse(R"({"model":{"vocab":{"a":0,"b":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"}})", "same id");
  refuse(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"}})", "same key twice");
  refuse(R"({"model":{"vocab":{"a":0},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel"}})",
         "not in the vocabulary");
  refuse(R"({"model":{"vocab":{"a":0},"merges":["ab"]},"pre_tokenizer":{"type":"ByteLevel"}})", "not a pair");
  refuse(R"({"model":{"vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"UnicodeScripts"}})", "UnicodeScripts");
  refuse(R"({"model":{"vocab":{"a":0},"merges":[]},"normalizer":{"type":"Odd"}})", "Odd");
  refuse(R"({"model":{"vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[
      {"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},{"type":"ByteLevel"}]}})",
         "pattern '('");
  EXPECT_THROW(Tokenizer::load(fixture("gpt-2.gguf")).decode(std::vector<TokenId>{-1}), Error);
  EXPECT_THROW(Tokenizer::load(fixture("gpt-2.gguf")).token(1 << 30), Error);
}

TEST(Tokenizer, RunawayPatternsEndInAnError) {
  const Tokenizer runaway = Tokenizer::from_json(
      R"({"model":{"vocab":{"a":0,"x":1},"merges":[]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[
      {"type":"Split","pattern":{"Regex":"(?<!z)(a+)+[xy]"},"behavior":"Isolated"},{"type":"ByteLevel","use_regex":false}]}})",
      "t.json");
  EXPECT_EQ(runaway.encode("aax"), (std::vector<TokenId>{0, 0, 1}));
  try {
    runaway.encode(std::string(64, 'a'));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("takes too much time"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lumen::model::text
