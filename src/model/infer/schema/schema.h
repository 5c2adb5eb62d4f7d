// JSON schemas: compiled to grammars, so that outputs match them, and checked afterwards where a grammar cannot. A
// schema is never rejected because of a keyword: what a grammar cannot express is relaxed, listed, and left to
// SchemaCheck. Errors are for schemas that are malformed, too large, or allow nothing. Proved by
// tests/model/infer/schema/schema_test.cpp.
//
// Expressed exactly: type, nullable, enum, const, allOf, anyOf, $ref (recursive, with siblings, $anchor, $id), $defs,
// properties, required, additionalProperties, patternProperties, propertyNames, dependentRequired, dependentSchemas,
// minProperties, maxProperties, items, prefixItems, minItems, maxItems, contains, minContains, maxContains, uniqueItems
// of short enumerations, minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum,
// multipleOf, and not, if, oneOf where the opposite of their schemas is expressible. Relaxed: other opposites,
// uniqueItems of other items, unevaluated members where several schemas meet, references to other documents, back
// references and lookbehinds in patterns, and everything beyond the bounds on rules and automata.
//
// Grammars choose one of many ways to write a value: members in the schema's order, listed ones first; numbers with
// bounds without exponent. Unless is_exact, they also prefer what a schema means over what it allows: keywords of one
// type imply this type, and members that a schema with properties does not list are left out unless it has
// additionalProperties.
//
// May include: base, base/structured, model/infer/schema/automata, model/text/unicode.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model::infer {

struct SchemaOptions {
  bool is_exact = false;
  std::function<bool()> is_stopped = {};  // polled while compiling; true ends it with an Error
};

// GBNF text for the schema (`true` or {}: any JSON value). `relaxed` gets the places of keywords that the grammar does
// not enforce ("/properties/x/not"). The Error contains the place in the schema.
std::string schema_grammar(const nlohmann::ordered_json& schema, const SchemaOptions& options = {},
                           std::vector<std::string>* relaxed = nullptr);

// Parts for a grammar with several schemas: the expression for a value of the schema, and rules whose names begin with
// `prefix` (lower-case letters and digits). The grammar also needs shared_schema_rules(), once.
struct SchemaRules {
  std::string value, rules;
  std::vector<std::string> relaxed = {};
};
SchemaRules schema_rules(const nlohmann::ordered_json& schema, const std::string& prefix,
                         const SchemaOptions& options = {});
std::string shared_schema_rules();
// GBNF text for the strings that a regular expression (automata/pattern.h) matches as a whole. Error if it is not
// supported or too large.
std::string pattern_grammar(const std::string& pattern);
// Quotes a string as a grammar literal.
std::string grammar_literal(const std::string& text);

// Checks strings against a schema. Not for several threads at once.
class SchemaCheck {
 public:
  explicit SchemaCheck(const nlohmann::ordered_json& schema);  // Error as of schema_grammar
  ~SchemaCheck();
  SchemaCheck(SchemaCheck&&) noexcept;
  // False also for text that is not JSON. nullopt: a keyword cannot be checked, or checking takes too long.
  std::optional<bool> check(std::string_view json);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lumen::model::infer
