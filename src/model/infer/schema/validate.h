// Checks JSON values against a schema, keyword by keyword, for what a grammar cannot enforce. The work is bounded.
// Proved by tests/model/infer/schema/validate_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/infer/schema/automata/pattern.h"
#include "model/infer/schema/document.h"

namespace lumen::model::infer {

class SchemaValidator {
 public:
  enum class Scope { whole, not_null, local };  // not_null: without `nullable`; local: without subschemas in place

  explicit SchemaValidator(const SchemaDocument& document) : document_(document) {}

  // nullopt: checking would take too much work, or needs a keyword that cannot be checked.
  std::optional<bool> check(const nlohmann::ordered_json& value, const nlohmann::ordered_json* schema,
                            Scope scope = Scope::whole);
  size_t work() const { return work_; }  // the steps of the last check
  // A pattern of the schema; null if it is not supported. Kept for the next use.
  const EcmaPattern* pattern(const std::string& text);

 private:
  // The members and items that subschemas have evaluated, for unevaluatedProperties and unevaluatedItems.
  struct Evaluated {
    std::set<std::string> names;
    std::set<size_t> items;
  };
  using Json = nlohmann::ordered_json;
  bool valid(const Json& value, const Json* schema, int depth, Evaluated* done, Scope scope = Scope::whole);
  bool valid_in_place(const Json& value, const SchemaNode& node, int depth, Evaluated* done);
  bool valid_any(const Json& value, const SchemaNode& node);
  bool valid_number(const Json& value, const SchemaNode& node);
  bool valid_string(const std::string& text, const SchemaNode& node);
  bool valid_array(const Json& value, const SchemaNode& node, int depth, Evaluated* done);
  bool valid_object(const Json& value, const SchemaNode& node, int depth, Evaluated* done);
  bool valid_dependencies(const Json& value, const SchemaNode& node, int depth, Evaluated* done);
  bool valid_format(const std::string& text, const std::string& format);
  void spend(size_t work);

  const SchemaDocument& document_;
  std::map<std::string, std::optional<EcmaPattern>> patterns_;
  size_t work_ = 0;
};

bool are_equal(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);  // the order of members is no matter

}  // namespace lumen::model::infer
