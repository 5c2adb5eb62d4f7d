// Converts JSON schemas to grammars, so that outputs are JSON that matches the schema. Members come in the schema's
// order. Keywords that restrict values but are not supported are rejected. Members that a schema does not list are
// allowed only if it has additionalProperties, or lists none. Proved by tests/model/infer/sample/grammar_test.cpp.
//
// Supported: type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, const,
// anyOf, oneOf, allOf with one entry, $ref into the document, minLength, maxLength, format date, time, date-time and
// uuid, minimum 0 or exclusiveMinimum 0 of integers; and annotations (title, description, default, examples, ...).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lumen::model {

// GBNF text for the schema (`true` or {}: any JSON value). The Error contains the place in the schema.
std::string schema_grammar(const nlohmann::ordered_json& schema);

// Parts for a grammar with several schemas: the expression for a value of the schema, and rules whose names begin with
// `prefix` (lower-case letters and digits). The grammar also needs shared_schema_rules(), once.
struct SchemaRules {
  std::string value, rules;
};
SchemaRules schema_rules(const nlohmann::ordered_json& schema, const std::string& prefix);
std::string shared_schema_rules();
// Quotes a string as a grammar literal.
std::string grammar_literal(const std::string& text);

}  // namespace lumen::model
