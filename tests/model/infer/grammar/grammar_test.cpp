// needs: none. Grammars and JSON schemas: which strings they allow, and what is refused.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/infer/grammar/grammar_states.h"
#include "model/infer/schema/schema.h"
#include "tests/model/text/tokenizer_fixtures.h"

namespace lumen::model::infer {
namespace {

GrammarMatcher matcher(const std::string& text) {
  return GrammarMatcher(std::make_shared<const Grammar>(Grammar::parse(text)));
}

bool matches(const std::string& grammar, const std::string& text) {
  GrammarMatcher m = matcher(grammar);
  return m.accept(text) && m.may_end();
}

TEST(Grammar, AllowsWhatItSays) {
  const char* list = "root ::= \"[\" (item (\", \" item)*)? \"]\"\nitem ::= [a-z]+ | [0-9]{2,3}\n";
  for (const char* good : {"[]", "[a]", "[abc, 12, 123]"}) EXPECT_TRUE(matches(list, good)) << good;
  for (const char* bad : {"[", "[1]", "[1234]", "[a,b]", "a", "[a, ]"}) EXPECT_FALSE(matches(list, bad)) << bad;
  EXPECT_TRUE(matches("root ::= [가-힣]+ \"!\"?", "한국!"));
  EXPECT_FALSE(matches("root ::= [가-힣]+", "韓"));
  EXPECT_TRUE(matches("root ::= [^a-c\\n]*", "x한😀é"));
  EXPECT_FALSE(matches("root ::= [^a-c]*", "xb"));
  EXPECT_TRUE(matches("root ::= . . .", "a한😀"));
  EXPECT_TRUE(matches("root ::= \"\\x41\\u00e9\\\"\"", "Aé\""));
  EXPECT_TRUE(matches("# note\nroot ::= a | # first\n  b\na ::= \"x\"\nb ::= (\n \"y\" \n)", "y"));
  EXPECT_TRUE(matches("root ::= (\"a\"? \"b\"*)* \"c\"", "abbac"));
  EXPECT_TRUE(matches("root ::= \"(\" root \")\" | \"x\"", "(((x)))"));
  EXPECT_TRUE(matches("root ::= \"a\"{0,2} \"b\"{2} \"c\"{1,}", "abbccc"));
  EXPECT_TRUE(matches("root ::= ", ""));
}

TEST(Grammar, PartsOfCharactersAreAllowedOneByOne) {
  GrammarMatcher m = matcher("root ::= [가-힣]");
  EXPECT_TRUE(m.accept("\xed"));
  EXPECT_FALSE(m.may_end());
  EXPECT_FALSE(m.allows("\xbf"));  // behind the last syllable
  EXPECT_TRUE(m.accept("\x95"));
  EXPECT_TRUE(m.accept("\x9c"));
  EXPECT_TRUE(m.must_end());
  EXPECT_FALSE(m.accept("x"));
  EXPECT_TRUE(m.must_end());  // what is refused changes nothing
}

TEST(Grammar, RefusesWithThePlace) {
  const auto refuse = [](const std::string& text, const std::string& part) {
    try {
      Grammar::parse(text, "g.gbnf");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refuse("root ::= x", "'x' is not defined");
  refuse("a ::= \"x\"", "'root'");
  refuse("root ::= \"x", "g.gbnf:1:10");
  refuse("root ::= [a", "unterminated");
  refuse("root ::= [b-a]", "below its start");
  refuse("root ::= root \"a\" | \"b\"", "begin with itself");
  refuse("root ::= a? root \"x\"\na ::= \"y\"", "begin with itself");
  refuse("root ::= a \"x\"\na ::= b\nb ::= a \"y\" | \"z\"", "begin with itself");
  refuse("root ::= \"a\"\nroot ::= \"b\"", "twice");
  refuse("root ::= \"a\"{99999}", "repetition count");
  std::string large = "root ::=";
  for (int i = 0; i < 600; ++i) large += " \"a\"{4000}";
  refuse(large, "too large");
  refuse("root ::= " + std::string(5000, '('), "too deeply");
  refuse("root", "'::='");
}

TEST(Grammar, TokensAreAllowedByTheirBytes) {
  const text::Tokenizer t = text::Tokenizer::load(text::fixture("gpt-2.gguf"));
  std::vector<std::string> strings;
  const text::TokenTrie trie = generation_trie(t, &strings);
  GrammarMatcher m = matcher("root ::= \" \"? [a-z]+ \".\"");
  for (const std::string step : {"", "he", "llo"}) {
    ASSERT_TRUE(m.accept(step));
    const TokenSet& allowed = m.allowed(t, trie);
    int64_t count = 0;
    for (text::TokenId id = 0; id < t.size(); ++id) {
      const std::string& text = strings[static_cast<size_t>(id)];
      EXPECT_EQ(allowed.has(static_cast<size_t>(id)), !text.empty() && m.allows(text)) << t.token(id);
      count += allowed.has(static_cast<size_t>(id));
    }
    EXPECT_GT(count, 20);
  }
  ASSERT_TRUE(m.accept("."));
  const TokenSet& allowed = m.allowed(t, trie);
  EXPECT_TRUE(allowed.has(static_cast<size_t>(*t.eos())));
  int64_t count = 0;
  for (text::TokenId id = 0; id < t.size(); ++id) count += allowed.has(static_cast<size_t>(id));
  EXPECT_EQ(count, 1);
}

TEST(Grammar, LongTextsNeedNoMoreMemory) {
  GrammarMatcher m = matcher("root ::= (\"(\" root \")\" | [a-z])*");
  std::string text;
  for (int i = 0; i < 6000; ++i) text += '(';
  for (int i = 0; i < 6000; ++i) text += ')';
  for (const char c : text) ASSERT_TRUE(m.accept(std::string_view(&c, 1)));
  EXPECT_TRUE(m.may_end());
  EXPECT_FALSE(m.accept(")"));
}

TEST(JsonSchema, AllowsJsonThatFits) {
  using nlohmann::ordered_json;
  const auto fits = [](const char* schema, const std::string& text) {
    return matches(schema_grammar(ordered_json::parse(schema)), text);
  };
  EXPECT_TRUE(fits("{}", R"({"a": [1, -2.5e3, "x\n\u00e9", null, true], "b": {}})"));
  EXPECT_FALSE(fits("{}", "{a: 1}"));
  EXPECT_FALSE(fits("{}", "[1,]"));
  const char* person = R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0},
    "tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":2}},"required":["name"]})";
  EXPECT_TRUE(fits(person, R"({"name": "민수", "age": 3, "tags": ["a", "b"]})"));
  EXPECT_TRUE(fits(person, R"({"name":"x"})"));
  EXPECT_TRUE(fits(person, R"({"name":"x","tags":[]})"));
  EXPECT_FALSE(fits(person, R"({"age":3})"));
  EXPECT_FALSE(fits(person, R"({"name":"x","age":-3})"));
  EXPECT_FALSE(fits(person, R"({"name":"x","tags":["c"]})"));
  EXPECT_FALSE(fits(person, R"({"name":"x","tags":["a","a","a"]})"));
  EXPECT_FALSE(fits(person, R"({"name":"x","other":1})"));
  const char* optional =
      R"({"properties":{"a":{"type":"null"},"b":{"type":"boolean"}},"additionalProperties":{"type":"integer"}})";
  for (const char* good :
       {"{}", R"({"a":null})", R"({"b":true})", R"({"a":null,"b":false})", R"({"b":true,"z":1})", R"({"z":1,"y":2})"})
    EXPECT_TRUE(fits(optional, good)) << good;
  EXPECT_FALSE(fits(optional, R"({,"b":true})"));
  EXPECT_FALSE(fits(optional, R"({"z":"x"})"));
  EXPECT_TRUE(fits(R"({"anyOf":[{"type":"integer"},{"const":"x"}]})", "\"x\""));
  EXPECT_TRUE(fits(R"({"type":["string","null"]})", "null"));
  EXPECT_TRUE(fits(R"({"type":"string","minLength":2,"maxLength":3})", "\"한국\""));
  EXPECT_FALSE(fits(R"({"type":"string","minLength":2,"maxLength":3})", "\"a\""));
  EXPECT_TRUE(fits(R"({"type":"string","format":"date"})", "\"2026-03-05\""));
  EXPECT_FALSE(fits(R"({"type":"string","format":"date"})", "\"2026-13-05\""));
  EXPECT_TRUE(fits(R"({"prefixItems":[{"type":"integer"},{"type":"string"}]})", "[1, \"a\"]"));
  const char* tree =
      R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"c":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["c"]}}})";
  EXPECT_TRUE(fits(tree, R"({"c": [{"c": []}, {"c": [{"c": []}]}]})"));
  EXPECT_FALSE(fits(tree, R"({"c": [{}]})"));
}

}  // namespace
}  // namespace lumen::model::infer
