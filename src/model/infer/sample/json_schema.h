// JSON schemas as grammars: what a model writes is then JSON that fits the schema. Members come in the schema's order.
// Keywords that would have to be checked and cannot be are refused. Members a schema does not name are allowed only
// where it says so, or names none. Proved by tests/model/infer/grammar_test.cpp.
//
// Known: type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, const, anyOf,
// oneOf, allOf with one entry, $ref into the document, minLength, maxLength, format date, time, date-time and uuid,
// minimum 0 or exclusiveMinimum 0 of integers; and what only describes (title, description, default, examples, ...).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lumen::model {

// GBNF text for the schema (`true` or {}: any JSON value). Error naming the place in the schema.
std::string schema_grammar(const nlohmann::ordered_json& schema);

// Its parts, for grammars that hold several: what stands for a value of the schema, and rules whose names begin with
// `prefix` (lower-case letters and digits). They need shared_schema_rules(), once.
struct SchemaRules {
  std::string value, rules;
};
SchemaRules schema_rules(const nlohmann::ordered_json& schema, const std::string& prefix);
std::string shared_schema_rules();
// A text as a literal of a grammar.
std::string grammar_literal(const std::string& text);

}  // namespace lumen::model
