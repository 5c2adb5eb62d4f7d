// What a grammar could not enforce of a request's JSON schemas, and the check of finished outputs. Proved by
// tests/model/serve/schema_report_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/infer/schema/schema.h"

namespace lumen::model::serve {

class SchemaReport {
 public:
  // The schema of an answer, or of the arguments of a function, and its places that the grammar does not enforce. Error
  // if there are such places and the schema is strict.
  void add_answer(const nlohmann::ordered_json& schema, const std::vector<std::string>& relaxed, bool is_strict);
  void add_function(const std::string& name, const nlohmann::ordered_json& schema,
                    const std::vector<std::string>& relaxed, bool is_strict);

  // {"relaxed": [..], "valid": true, false or null}; null if grammars enforce all schemas. `calls`: names and
  // arguments.
  nlohmann::ordered_json of(const std::string& text, const std::vector<std::pair<std::string, std::string>>& calls);

 private:
  std::vector<std::string> relaxed_;  // those of functions begin with the name: "NAME:/properties/x/not"
  std::optional<infer::SchemaCheck> answer_;
  std::map<std::string, infer::SchemaCheck> functions_;
};

}  // namespace lumen::model::serve
