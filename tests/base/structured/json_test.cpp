// needs: none. JSON: strict reading.
#include "base/structured/json.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"

namespace lumen {
namespace {

TEST(Json, RefusesWhatIsAmbiguousOrDeep) {
  EXPECT_EQ(parse_json(" {\"a\": [1, {\"b\": null}]} ", "t")["a"][0], 1);
  EXPECT_THROW(parse_json("{\"a\":1,\"a\":2}", "t"), Error);
  EXPECT_THROW(parse_json("{\"x\":{\"a\":1,\"b\":0,\"a\":2}}", "t"), Error);
  EXPECT_THROW(parse_json("{\"a\":1} x", "t"), Error);
  EXPECT_THROW(parse_json("", "t"), Error);
  EXPECT_THROW(parse_json("\"\xff\"", "t"), Error);
  EXPECT_THROW(parse_json(std::string(1000000, '['), "t"), Error);
  EXPECT_THROW(parse_json("[[1]]", "t", 1), Error);
  EXPECT_EQ(parse_json("[[1]]", "t", 2)[0][0], 1);
  EXPECT_THROW(parse_json("1e999", "t"), Error);
}

// Mistakes have file, line and column, and what to do; the words are ours, not the library's.
TEST(Json, MistakesHavePlaces) {
  const auto told = [](const std::string& text, const std::string& name = "t.json") {
    try {
      parse_json(text, name);
      return std::string("read");
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("json.exception"), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find("syntax error"), std::string::npos) << e.what();
      return std::string(e.what()) + (e.hint().empty() ? "" : " (" + e.hint() + ")");
    }
  };
  EXPECT_EQ(told("{\"a\": 1,\n \"b\": 2,}"),
            "t.json:2:9: not valid JSON: a comma in front of '}' (leave the comma out)");
  EXPECT_EQ(told("{\"a\": tru}"), "t.json:1:7: not valid JSON: 'tru}' is not expected here");
  EXPECT_EQ(told("{\"a\" 1}"), "t.json:1:6: not valid JSON: '1' is not expected here");
  EXPECT_EQ(told("[1, 2"), "t.json:1:6: not valid JSON: the text ends within a value (it may have been cut off)");
  EXPECT_EQ(told(" \n"), "t.json:2:1: not valid JSON: there is no value (it may have been cut off)");
  EXPECT_EQ(told("[\"\\x\"]"),
            "t.json:1:4: not valid JSON: an escape that JSON does not have (a backslash is written as "
            "two of them)");
  EXPECT_EQ(told("[\"\xff\"]"),
            "t.json:1:3: not valid JSON: a byte that is no UTF-8 (the file may be in another "
            "encoding; iconv writes UTF-8)");
  EXPECT_EQ(told("[1e999]").substr(0, 26), "t.json:1:2: not valid JSON");
  EXPECT_EQ(told("{\"a\":1,\"a\":2}"), "t.json: a JSON object has the same key twice: 'a'");
  EXPECT_EQ(told("[1] 2"), "t.json:1:5: not valid JSON: '2' is not expected here");
  EXPECT_EQ(told("{", ""), "column 2: the text ends within a value (it may have been cut off)");
  // Every text that is cut or changed at one place is refused in our words, or read.
  const std::string whole = "{\"a\": [1, -2.5e3, true, null], \"b\": {\"c\": \"\\u00e9\\n\"}}";
  for (size_t at = 0; at < whole.size(); ++at) {
    told(whole.substr(0, at));
    for (const char c : {'{', ']', ',', '"', '\\', '\n', '\0', '\xff', '1', 'x'}) {
      std::string text = whole;
      text[at] = c;
      told(text);
    }
  }
}

// Lists of objects in time linear in their length.
TEST(Json, ManyObjects) {
  std::string text = "[";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}{{\"n\": {}, \"l\": [1], \"o\": {{}}}}", i ? "," : "", i);
  const auto start = std::chrono::steady_clock::now();
  const auto parsed = parse_json(text + "]", "t");
  EXPECT_EQ(parsed.size(), 200'000U);
  EXPECT_EQ(parsed[199'999]["n"], 199'999);
  EXPECT_EQ(parsed.dump(), nlohmann::json::parse(text + "]").dump());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Json, TypedMembers) {
  const auto o = parse_json(R"({"n": 3, "s": "x", "b": true, "z": null, "big": 18446744073709551615, "f": 1.5})", "t");
  EXPECT_EQ(json_integer(o, "n", "t"), 3);
  EXPECT_EQ(json_text(o, "s", "t"), "x");
  EXPECT_TRUE(json_boolean(o, "b", false, "t"));
  EXPECT_TRUE(json_boolean(o, "z", true, "t"));
  EXPECT_THROW(json_integer(o, "big", "t"), Error);
  EXPECT_THROW(json_integer(o, "f", "t"), Error);
  EXPECT_THROW(json_text(o, "n", "t"), Error);
  EXPECT_THROW(json_boolean(o, "n", true, "t"), Error);
  EXPECT_THROW(json_member(o, "missing", "t"), Error);
  EXPECT_THROW(json_print(std::string("\xff"), "t"), Error);
}

}  // namespace
}  // namespace lumen
