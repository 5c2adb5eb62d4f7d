// needs: none. JSON schemas as grammars: which texts are allowed, what is relaxed and then checked, and that hostile
// schemas stay within bounds.
#include "model/infer/schema/schema.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/infer/grammar/grammar_states.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

struct Compiled {
  explicit Compiled(const std::string& schema, bool is_exact = false) {
    text = schema_grammar(ordered_json::parse(schema), {.is_exact = is_exact}, &relaxed);
    grammar = std::make_shared<const Grammar>(Grammar::parse(text));
  }
  bool allows(const std::string& json) const {
    GrammarMatcher m(grammar);
    return m.accept(json) && m.may_end();
  }
  std::string text;
  std::vector<std::string> relaxed;
  std::shared_ptr<const Grammar> grammar;
};

struct Case {
  const char* schema;
  std::vector<const char*> good, bad;
};

// The grammar alone must allow and refuse, and nothing may be relaxed.
void expect_exact(const Case& c, bool is_exact = false) {
  try {
    const Compiled compiled(c.schema, is_exact);
    EXPECT_TRUE(compiled.relaxed.empty()) << c.schema << " relaxed " << compiled.relaxed.front();
    for (const char* json : c.good) {
      EXPECT_TRUE(compiled.allows(json)) << c.schema << " must allow " << json;
      EXPECT_EQ(SchemaCheck(ordered_json::parse(c.schema)).check(json), true) << c.schema << " fits " << json;
    }
    for (const char* json : c.bad) EXPECT_FALSE(compiled.allows(json)) << c.schema << " must refuse " << json;
  } catch (const Error& error) {
    ADD_FAILURE() << c.schema << ": " << error.what();
  }
}

TEST(JsonSchema, StringsAndNumbers) {
  const Case cases[] = {
      {R"({"type":"string","pattern":"^[a-z]{2,3}$"})", {"\"ab\"", "\"abc\""}, {"\"a\"", "\"abcd\"", "\"AB\"", "1"}},
      {R"({"type":"string","pattern":"b"})", {"\"abc\"", "\"b\"", "\"\\n\\\"b한\""}, {"\"ac\"", "\"\""}},
      {R"({"type":"string","pattern":"^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"})",
       {"\"(888)555-1212\"", "\"555-1212\""},
       {"\"555\""}},
      {R"({"type":"string","pattern":"^[a-z]+$","maxLength":3})", {"\"abc\""}, {"\"abcd\"", "\"\""}},
      {R"({"type":"string","pattern":"^[a-z]*$","minLength":2})", {"\"ab\""}, {"\"a\""}},
      {R"({"type":"string","pattern":"^(?=.*[A-Z])(?=.*[0-9]).{4,}$"})", {"\"Ab1c\""}, {"\"ab1c\"", "\"A1\""}},
      {R"({"type":"string","pattern":"^a\\/b\\\\$"})", {R"("a/b\\")", R"("a\/b\\")"}, {R"("a/b")"}},
      {R"({"type":"string","format":"email"})", {"\"a@b.co\""}, {"\"a\""}},
      {R"({"type":"string","format":"uri"})", {"\"https://a.b/c?d=e#f\""}, {"\"a b\"", "\"/x\""}},
      {R"({"type":"string","format":"uuid"})", {"\"2eb8aa08-aa98-11ea-b4aa-73b441d16380\""}, {"\"2eb8aa08\""}},
      {R"({"type":"string","format":"date"})", {"\"2024-02-29\""}, {"\"2023-02-29\"", "\"2023-04-31\""}},
      {R"({"type":"string","format":"date-time"})", {"\"2023-12-31T23:59:59Z\""}, {"\"2023-12-31\""}},
      {R"({"type":"string","format":"time"})", {"\"12:00:00Z\""}, {"\"25:00:00Z\""}},
      {R"({"type":"string","format":"ipv4"})", {"\"1.2.3.4\""}, {"\"1.2.3.256\""}},
      {R"({"type":"string","format":"ipv6"})", {"\"::1\""}, {"\":1\""}},
      {R"({"type":"string","format":"hostname","maxLength":20})", {"\"a.b-c\""}, {"\"-a\""}},
      {R"({"type":"string","format":"duration"})", {"\"PT5M\""}, {"\"5M\""}},
      {R"({"type":"string","format":"date","pattern":"^2024-"})", {"\"2024-01-01\""}, {"\"2023-01-01\""}},
      {R"({"type":"string","format":"int64"})", {"\"x\""}, {"1"}},
      {R"({"type":"string","maxLength":70000})", {"\"abc\""}, {"1"}},
      {R"({"type":"string","minLength":70,"maxLength":200})", {}, {"\"abc\""}},
      {R"({"type":"integer","minimum":1,"maximum":10})", {"1", "5", "10"}, {"0", "11", "-1", "1.5", "05", "\"1\""}},
      {R"({"type":"integer","minimum":-5,"exclusiveMaximum":3})", {"-5", "0", "2"}, {"-6", "3"}},
      {R"({"type":"integer","exclusiveMinimum":0})", {"1", "99"}, {"0", "-1"}},
      {R"({"type":"integer","minimum":0})", {"0", "123"}, {"-1"}},
      {R"({"type":"integer","maximum":100})", {"100", "-5"}, {"101"}},
      {R"({"type":"integer","minimum":1000000000000,"maximum":18446744073709551615})",
       {"18446744073709551615"},
       {"18446744073709551616", "5"}},
      {R"({"type":"number","minimum":0.5,"maximum":2.75})", {"0.5", "1", "2.75"}, {"0.4", "2.751", "3"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})", {"0.5", "0.001"}, {"0", "1", "1.0", "0.0"}},
      {R"({"type":"number","maximum":-1.5})", {"-1.5", "-20"}, {"-1.4", "0"}},
      {R"({"type":"number","minimum":0,"maximum":1e300})", {"5", "0.5"}, {"-1"}},
      {R"({"type":"integer","multipleOf":5})", {"0", "15", "-20"}, {"3", "16"}},
      {R"({"type":"integer","multipleOf":3,"minimum":10,"maximum":20})", {"12", "18"}, {"9", "21", "13"}},
      {R"({"type":"number","multipleOf":0.01})", {"1.25", "3"}, {"1.255"}},
      {R"({"type":"number","multipleOf":0.5})", {"1.5", "-2"}, {"1.25"}},
      {R"({"minimum":3})", {"3"}, {"2", "\"a\""}},
      {R"({"type":"number","minimum":3,"exclusiveMinimum":true})", {"4"}, {"3"}},
  };
  for (const Case& c : cases) expect_exact(c);
  const Compiled length(R"({"type":"string","minLength":70,"maxLength":200})");
  for (const size_t n : {69u, 70u, 128u, 134u, 199u, 200u, 201u})
    EXPECT_EQ(length.allows('"' + std::string(n, 'x') + '"'), n >= 70 && n <= 200) << n;
  // An escaped pair of surrogates is one character.
  const Compiled two(R"({"type":"string","minLength":2})");
  EXPECT_FALSE(two.allows("\"\\ud83d\\ude00\""));
  EXPECT_FALSE(two.allows("\"\\ud83d\\ud83d\""));
  EXPECT_TRUE(two.allows("\"\\ud83d\\ude00a\""));
}

TEST(JsonSchema, SchemasTogether) {
  const Case cases[] = {
      {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
      {R"({"enum":["a","b"],"nullable":true})", {"null", "\"a\""}, {"\"c\""}},
      {R"({"type":"integer","x-order":3,"title":"t","description":"d","default":1,"examples":[1],"deprecated":true,"readOnly":true,"$comment":"c"})",
       {"1"},
       {"\"a\""}},
      {R"({"type":"string","not":{"const":"a"}})", {"\"b\"", "\"ab\"", "\"\""}, {"\"a\""}},
      {R"({"type":["string","integer"],"not":{"type":"string"}})", {"1"}, {"\"a\""}},
      {R"({"type":"string","not":{"enum":["a","b"]}})", {"\"c\""}, {"\"a\"", "\"b\""}},
      {R"({"type":"string","not":{"pattern":"^x"}})", {"\"ax\"", "\"\""}, {"\"x\"", "\"xa\""}},
      {R"({"type":"integer","not":{"minimum":5}})", {"4"}, {"5"}},
      {R"({"not":{"not":{"type":"null"}}})", {"null"}, {"1"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"not":{"required":["a"]}})",
       {"{}", R"({"b":1})"},
       {R"({"a":1})"}},
      {R"({"type":"object","properties":{"kind":{"enum":["a","b"]},"x":{"type":"integer"}},"required":["kind"],
           "if":{"properties":{"kind":{"const":"a"}}},"then":{"required":["x"]},"else":{"properties":{"x":false}}})",
       {R"({"kind":"a","x":1})", R"({"kind":"b"})"},
       {R"({"kind":"a"})", R"({"kind":"b","x":1})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"type":"object","properties":{"b":{"type":"string"}},"required":["b"]}]})",
       {R"({"a":1,"b":"x"})"},
       {R"({"a":1})", R"({"b":"x"})"}},
      {R"({"allOf":[{"minimum":2},{"maximum":4}],"type":"integer"})", {"2", "4"}, {"1", "5"}},
      {R"({"allOf":[{},{}],"type":"null"})", {"null"}, {"1"}},
      {R"({"type":"integer","anyOf":[{"minimum":10},{"maximum":2}]})", {"10", "1"}, {"5"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"number"},{"const":"x"}]})", {"1", "1.5", "\"x\""}, {"\"y\""}},
      {R"({"oneOf":[{"type":"string"},{"type":"integer"}]})", {"\"a\"", "1"}, {"null"}},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"]},
                    {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"b"})"},
       {R"({"k":"a"})", R"({"k":"c"})"}},
      {R"({"type":"integer","oneOf":[{"minimum":2},{"maximum":4}]})", {"1", "5"}, {"2", "3", "4"}},
      {R"({"$ref":"#/$defs/a","maximum":3,"$defs":{"a":{"type":"integer"}}})", {"3"}, {"4", "\"a\""}},
      {R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"null"}}})", {"null"}, {"1"}},
      {R"({"properties":{"a":{"$ref":"#thing"}},"$defs":{"x":{"$anchor":"thing","type":"null"}}})",
       {R"({"a":null})"},
       {R"({"a":1})"}},
      {R"({"components":{"schemas":{"p":{"type":"null"}}},"$ref":"#/components/schemas/p"})", {"null"}, {"1"}},
      {R"({"$ref":"#/definitions/n","definitions":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/definitions/n"},{"type":"null"}]}},"required":["v","next"]}}})",
       {R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1,"next":{"v":2}})"}},
      {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"type":["integer","null","string"],"maximum":3,"maxLength":1})",
       {"3", "null", "\"a\""},
       {"4", "\"ab\"", "true"}},
      {R"({"enum":[1,"a",null,true,[1,2],{"a":1}]})",
       {"1", "\"a\"", "null", "true", "[1, 2]", R"({"a": 1})"},
       {"2", "[1]"}},
      {R"({"enum":["a","bb","ccc"],"maxLength":2})", {"\"a\"", "\"bb\""}, {"\"ccc\""}},
      {R"({"const":"a","type":"string"})", {"\"a\""}, {"\"b\""}},
      {R"({"type":["string","integer"],"enum":["a",1,true]})", {"\"a\"", "1"}, {"true"}},
      {R"({"anyOf":[{"required":["a"]},{"required":["b"]}],"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}}})",
       {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
       {"{}"}},
  };
  for (const Case& c : cases) expect_exact(c);
  // Many values are split by their beginnings.
  std::string list;
  for (int i = 0; i < 1000; ++i) list += (i ? ",\"" : "\"") + std::string("value 한") + std::to_string(i) + "\"";
  const Compiled values("{\"enum\":[" + list + "]}");
  for (const char* good : {"\"value 한7\"", "\"value 한999\""}) EXPECT_TRUE(values.allows(good));
  for (const char* bad : {"\"value 한\"", "\"value 한1000\""}) EXPECT_FALSE(values.allows(bad));
}

TEST(JsonSchema, ObjectsAndArrays) {
  const Case cases[] = {
      {R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"x-a":1})", R"({"x-a":1, "x-b":2})"},
       {R"({"x-a":"b"})", R"({"y":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {R"({"a":null,"x1":1,"z":"s"})"},
       {R"({"x1":"s"})", R"({"z":1})", R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":true})",
       {R"({"a":null,"b":1})", R"({"ab":1})"},
       {R"({"a":1})"}},
      {R"({"type":"object","properties":{"xa":{"minimum":3}},"patternProperties":{"^x":{"type":"integer"}}})",
       {R"({"xa":3})"},
       {R"({"xa":2})", R"({"xa":3.5})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"type":"integer"}})",
       {R"({"ab":1})"},
       {R"({"A":1})"}},
      {R"({"type":"object","propertyNames":{"enum":["a","b"]}})", {R"({"b":1})"}, {R"({"c":1})"}},
      {R"({"type":"object","propertyNames":{"maxLength":2}})", {R"({"ab":1})"}, {R"({"abc":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"dependentRequired":{"a":["b"]}})",
       {"{}", R"({"b":null})", R"({"a":null,"b":null})"},
       {R"({"a":null})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"integer"}},"dependentSchemas":{"a":{"properties":{"b":{"minimum":5}}}}})",
       {R"({"b":1})", R"({"a":null,"b":5})"},
       {R"({"a":null,"b":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"minProperties":1,"maxProperties":1})",
       {R"({"a":null})", R"({"b":null})"},
       {"{}", R"({"a":null,"b":null})"}},
      {R"({"type":"object","additionalProperties":{"type":"null"},"minProperties":2,"maxProperties":3})",
       {R"({"a":null,"b":null})"},
       {R"({"a":null})", R"({"a":null,"b":null,"c":null,"d":null})"}},
      {R"({"type":"object","required":["x"]})", {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"required":["b","a"]})",
       {R"({"a":null,"b":1})"},
       {R"({"a":null})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":false}})", {R"({"a":null})"}, {R"({"b":1})"}},
      {R"({"properties":{"a b\"\n":{"type":"null"}}})", {"{\"a b\\\"\\n\":null}"}, {R"({"a b":null})"}},
      {R"({"type":"object","properties":{"a":{}},"unevaluatedProperties":false})", {R"({"a":1})"}, {R"({"b":1})"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}]})", {"[1, \"a\"]"}, {"[1]", "[1,\"a\",2]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":0})",
       {"[]", "[1]", "[1,null]"},
       {"[null]", "[1,1]"}},
      {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}})", {"[1,null]"}, {"[1,2]"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"const":3}})",
       {"[3]", "[1, 3, 2]"},
       {"[]", "[1]", "[3,\"a\"]"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"minContains":2})",
       {"[5,1,6]"},
       {"[5,1]"}},
      {R"({"type":"array","items":{"type":"string"},"contains":{"const":"a"},"minContains":1,"maxContains":2})",
       {"[\"b\",\"a\",\"a\"]"},
       {"[\"b\"]", "[\"a\",\"a\",\"a\"]"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true})",
       {"[]", "[\"c\", \"a\"]"},
       {"[\"a\",\"a\"]"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":2})",
       {"[\"c\",\"a\"]"},
       {"[\"a\"]", "[\"a\",\"a\"]"}},
      {R"({"type":"array","items":{"type":"null"},"minItems":2,"maxItems":3})",
       {"[null,null]", "[null, null, null]"},
       {"[null]", "[null,null,null,null]"}},
      {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","minItems":5000,"items":{"type":"null"}})", {}, {"[null]"}},
  };
  for (const Case& c : cases) expect_exact(c);
}

TEST(JsonSchema, ExactMeansWhatTheSpecificationSays) {
  const Case cases[] = {
      {R"({"minimum":3})", {"3", "\"a\"", "null"}, {"2"}},
      {R"({"properties":{"a":{"type":"integer"}}})", {R"({"a":1,"b":2})", "1"}, {R"({"a":"x"})"}},
      {R"({"prefixItems":[{"type":"integer"}]})", {"[]", "[1]", "[1,2]", "3"}, {"[\"a\"]"}},
      {R"({"required":["a"]})", {R"({"a":1})", "[]"}, {"{}"}},
  };
  for (const Case& c : cases) expect_exact(c, true);
}

TEST(JsonSchema, RelaxesWhatAGrammarCannotExpress) {
  const struct {
    const char *schema, *place, *good, *bad;
  } cases[] = {
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})", "#/uniqueItems", "[1,2]", "[1,1]"},
      {R"({"type":"object","properties":{"a":{"not":{"items":{"type":"null"}}}}})", "/properties/a/not", R"({"a":[1]})",
       R"({"a":[null]})"},
      {R"({"type":"integer","multipleOf":123457})", "#/multipleOf", "123457", "123456"},
      {R"({"not":{"const":3}})", "/not", "4", "3"},
      {R"({"type":"string","pattern":"(a|b)*a(a|b){18}$"})", "#/pattern", "\"aaaaaaaaaaaaaaaaaaaaa\"", "\"b\""},
  };
  for (const auto& c : cases) {
    const Compiled compiled(c.schema);
    std::string place = c.place;
    if (place.starts_with('#')) place.erase(0, 1);
    ASSERT_EQ(compiled.relaxed, std::vector<std::string>{place}) << c.schema;
    SchemaCheck check(ordered_json::parse(c.schema));
    for (const char* json : {c.good, c.bad}) EXPECT_TRUE(compiled.allows(json)) << c.schema << json;
    EXPECT_EQ(check.check(c.good), true) << c.schema;
    EXPECT_EQ(check.check(c.bad), false) << c.schema;
  }
  // The grammar knows the letters of a host, and not its whole length.
  const std::string label(63, 'a'), host = label + "." + label + "." + label + "." + label;
  const std::string hosts = R"({"type":"string","format":"hostname"})";
  for (const std::string& schema : {hosts, R"({"properties":{"h":)" + hosts + "}}"}) {
    const Compiled compiled(schema);
    ASSERT_EQ(compiled.relaxed, std::vector<std::string>{schema == hosts ? "/format" : "/properties/h/format"});
  }
  EXPECT_TRUE(Compiled(hosts).allows("\"" + host + "\""));
  EXPECT_EQ(SchemaCheck(ordered_json::parse(hosts)).check("\"" + host + "\""), false);
  EXPECT_EQ(SchemaCheck(ordered_json::parse(hosts)).check("\"" + host.substr(2) + "\""), true);
  EXPECT_EQ(Compiled(R"({"type":"string","pattern":"(a)\\1"})").relaxed, std::vector<std::string>{"/pattern"});
  EXPECT_EQ(Compiled(R"({"$ref":"https://example.org/x"})").relaxed, std::vector<std::string>{"/$ref"});
}

TEST(JsonSchema, RefusesWhatIsMalformed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"odd"})", "type must be one of"},
      {R"({"$ref":"#/no"})", "'#/no' does not exist"},
      {"3", "a schema is an object"},
      {"false", "no value fits"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "no value fits"},
      {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "no value fits"},
      {R"({"not":{}})", "no value fits"},
      {R"({"type":"object","required":["a"],"properties":{"a":false}})", "no value fits"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}}})",
       "no value fits"},
      {R"({"type":"array","items":{"properties":{"x":{"minItems":"3"}}}})", "/items/properties/x: minItems must be"},
      {R"({"enum":[]})", "not empty"},
      {R"({"properties":[]})", "properties must be an object of schemas"},
      {R"({"anyOf":{}})", "anyOf must be a list"},
  };
  for (const auto& [schema, part] : cases) {
    try {
      schema_grammar(ordered_json::parse(schema));
      ADD_FAILURE() << schema;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << schema << ": " << error.what();
    }
  }
}

std::string repeated(const std::string& part, int count, const std::string& between = ",") {
  std::string out;
  for (int i = 0; i < count; ++i) {
    std::string one = part;
    for (size_t at; (at = one.find('@')) != std::string::npos;) one.replace(at, 1, std::to_string(i));
    out += (i ? between : "") + one;
  }
  return out;
}

// Each ends with a grammar of bounded size, or with an Error; the bounds are on counts, so no clock is read.
TEST(JsonSchema, HostileSchemasStayWithinBounds) {
  const std::string names = std::string(50'000, 'n');
  const std::string schemas[] = {
      "{\"type\":[" + repeated("\"string\"", 20'000) + "]}",
      "{\"anyOf\":[" + repeated("{\"type\":[\"string\",\"null\",\"object\"]}", 5000) + "]}",
      "{\"properties\":{\"" + names + "\":{\"anyOf\":[" +
          repeated("{\"properties\":{\"" + std::string(30, 'x') + "@\":{\"not\":{\"items\":{}}}}}", 2000) + "]}}}",
      "{\"$defs\":{\"" + std::string(20'000, '/') + "\":{}},\"anyOf\":[" +
          repeated("{\"$ref\":\"#/$defs/" + repeated("~1", 20'000, "") + "\"}", 4) + "]}",
      "{\"$defs\":{\"a0\":{}," + repeated("\"b@\":{\"$ref\":\"#/$defs/b@\"}", 5000) + "},\"$ref\":\"#/$defs/b7\"}",
      "{\"allOf\":[" + repeated("{\"anyOf\":[{\"minimum\":@},{\"maximum\":@},{\"multipleOf\":3}]}", 40) + "]}",
      "{\"oneOf\":[" + repeated("{\"properties\":{\"p@\":{\"type\":\"integer\"}}}", 500) + "]}",
      "{\"type\":\"object\",\"properties\":{" +
          repeated("\"p@\":{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){1@}c@\"}", 300) + "}}",
      "{\"type\":\"object\",\"properties\":{" + repeated("\"p@\":{}", 5000) + "},\"minProperties\":2500}",
      "{\"type\":\"object\",\"patternProperties\":{" + repeated("\"^p@\":{}", 3000) +
          "},\"additionalProperties\":false}",
      "{\"enum\":[" + repeated("\"value @\"", 20'000) + "],\"not\":{\"enum\":[" + repeated("\"value 1@\"", 2000) +
          "]}}",
      "{\"type\":\"array\",\"prefixItems\":[" + repeated("{\"const\":@}", 5000) +
          "],\"contains\":{},\"minContains\":4000}",
      "{\"type\":\"array\",\"minItems\":9000000000,\"maxItems\":9000000001}",
      "{\"type\":\"string\",\"minLength\":9000000000}",
      R"({"if":{"$ref":"#"},"then":{"$ref":"#"},"else":{"not":{"$ref":"#"}}})",
      R"({"not":{"anyOf":[{"$ref":"#"},{"not":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}]}})",
      R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})",
      "{\"dependentRequired\":{" + repeated("\"a@\":[\"b@\",\"c@\"]", 2000) + "}}",
      repeated("{\"items\":", 60, "") + "{}" + repeated("}", 60, ""),
      repeated("{\"not\":", 60, "") + "{}" + repeated("}", 60, ""),
      "{\"enum\":[" + repeated("@", 200'000) + "]}",
      repeated("{\"items\":", 100, "") + "{}" + repeated("}", 100, ""),
  };
  for (const std::string& schema : schemas) {
    try {
      std::vector<std::string> relaxed;
      const std::string text = schema_grammar(ordered_json::parse(schema), {}, &relaxed);
      EXPECT_LT(text.size(), 4u << 20) << schema.substr(0, 100);
      EXPECT_LE(relaxed.size(), 64u);
      for (const std::string& place : relaxed) EXPECT_LT(place.size(), 300u);
      const auto grammar = std::make_shared<const Grammar>(Grammar::parse(text));
      GrammarMatcher(grammar).allows("{");
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 1000u) << schema.substr(0, 100);
    }
  }
}

TEST(JsonSchema, CompilingCanBeStopped) {
  int polls = 0;
  const SchemaOptions options{.is_stopped = [&] { return ++polls > 3; }};
  const std::string deep = repeated("{\"items\":", 50, "") + "{}" + repeated("}", 50, "");
  EXPECT_THROW(schema_grammar(ordered_json::parse(deep), options), Error);
  EXPECT_EQ(polls, 4);
}

}  // namespace
}  // namespace lumen::model::infer
