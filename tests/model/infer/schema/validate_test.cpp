// needs: none. The check of values against a schema, for keywords that grammars leave to it.
#include "model/infer/schema/validate.h"

#include <gtest/gtest.h>

#include "model/infer/schema/schema.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

std::optional<bool> valid(const char* schema, const char* text) {
  return SchemaCheck(ordered_json::parse(schema)).check(text);
}

TEST(SchemaValidate, ChecksEveryKeyword) {
  const struct {
    const char* schema;
    std::vector<const char*> good, bad;
  } cases[] = {
      {R"({"uniqueItems": true})",
       {"[1, 2]", "[[1], [2]]", "[1, true]"},
       {"[1, 1.0]", R"([{"a":1,"b":2},{"b":2,"a":1}])"}},
      {R"({"not": {"required": ["a"]}})", {"{}"}, {R"({"a": 1})", "3"}},
      {R"({"oneOf": [{"minimum": 2}, {"maximum": 4}]})", {"1", "5"}, {"3"}},
      {R"({"if": {"minimum": 10}, "then": {"multipleOf": 5}, "else": {"multipleOf": 2}})", {"15", "4"}, {"12", "5"}},
      {R"({"contains": {"const": 1}, "minContains": 2, "maxContains": 3})",
       {"[1,1]", "[1,1,1,2]"},
       {"[1]", "[1,1,1,1]"}},
      {R"({"dependentSchemas": {"a": {"required": ["b"]}}})", {"{}", R"({"a":1,"b":1})"}, {R"({"a":1})"}},
      {R"({"propertyNames": {"maxLength": 2}})", {R"({"ab":1})"}, {R"({"abc":1})"}},
      {R"({"properties": {"a": {}}, "unevaluatedProperties": false})", {R"({"a":1})"}, {R"({"b":1})"}},
      {R"({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false})", {R"({"a":1})"}, {R"({"b":1})"}},
      {R"({"prefixItems": [{}], "unevaluatedItems": {"type": "null"}})", {"[1]", "[1,null]"}, {"[1,2]"}},
      {R"({"type": "integer"})", {"1", "1.0"}, {"1.5", "\"1\""}},
      {R"({"multipleOf": 0.01})", {"0.07", "19.99"}, {"0.075"}},
      {R"({"type": "string", "nullable": true})", {"null", "\"a\""}, {"1"}},
      {R"({"minimum": 3, "exclusiveMinimum": true})", {"4"}, {"3"}},
      {R"({"minLength": 2})", {"\"\\uD83D\\uDE00a\""}, {"\"\\uD83D\\uDE00\""}},
      {R"({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "null"}}})", {"null"}, {"1"}},
      {R"({"$ref": "#x", "maximum": 5, "$defs": {"y": {"$anchor": "x", "minimum": 2}}})", {"3"}, {"1", "6"}},
  };
  for (const auto& c : cases) {
    for (const char* text : c.good) EXPECT_EQ(valid(c.schema, text), true) << c.schema << " " << text;
    for (const char* text : c.bad) EXPECT_EQ(valid(c.schema, text), false) << c.schema << " " << text;
  }
  EXPECT_EQ(valid("{}", "{\"a\": "), false);  // cut by the token limit
}

TEST(SchemaValidate, SaysWhenItCannot) {
  EXPECT_EQ(valid(R"({"pattern": "(a)\\1"})", "\"aa\""), std::nullopt);
  EXPECT_EQ(valid(R"({"$ref": "http://example.org/x"})", "1"), std::nullopt);
  EXPECT_EQ(valid(R"({"allOf": [{"$ref": "#"}]})", "1"), std::nullopt);  // leads to itself
  // Each level doubles the work.
  std::string defs = R"("d0": {"type": "string"})";
  for (int i = 1; i < 40; ++i) {
    const std::string below = R"({"$ref": "#/$defs/d)" + std::to_string(i - 1) + "\"}";
    defs += ", \"d" + std::to_string(i) + R"(": {"oneOf": [)" + below + "," + below + "]}";
  }
  EXPECT_EQ(valid((R"({"$ref": "#/$defs/d39", "$defs": {)" + defs + "}}").c_str(), "1"), std::nullopt);
}

}  // namespace
}  // namespace lumen::model::infer
