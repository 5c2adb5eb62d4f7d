// A JSON schema as a document: its subschemas with their keywords, their places, and what references name. Schemas come
// from strangers, so sizes are bounded. Proved by tests/model/infer/schema/schema_test.cpp.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lumen::model::infer {

// A subschema that is an object: the keywords that this program reads. Annotations and unknown keywords are left out.
struct SchemaNode {
  std::vector<std::pair<std::string_view, const nlohmann::ordered_json*>> keywords;
  const nlohmann::ordered_json* find(std::string_view keyword) const;
  bool has(std::string_view keyword) const { return find(keyword) != nullptr; }
};

class SchemaDocument {
 public:
  // Error if a keyword has a value of the wrong type, or if the schema has too many parts or levels.
  explicit SchemaDocument(nlohmann::ordered_json schema);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  const nlohmann::ordered_json& root() const { return root_; }
  // The keywords of a subschema; empty for true and false.
  const SchemaNode& node(const nlohmann::ordered_json* schema) const;
  // The subschema that a reference names; null if it is in another document. Error if it is missing in this one.
  const nlohmann::ordered_json* target(const nlohmann::ordered_json* reference) const;
  // "/properties/x": the place of a subschema, cut if it is very long.
  std::string place(const nlohmann::ordered_json* schema) const;
  // Adds a subschema that the compiler needs; it has the place of `origin`.
  const nlohmann::ordered_json* add(nlohmann::ordered_json schema, const nlohmann::ordered_json* origin);

 private:
  struct Parent {
    const nlohmann::ordered_json* schema = nullptr;
    std::string step;
  };
  void read(const nlohmann::ordered_json* schema, Parent parent, int depth);
  void read_parts(const nlohmann::ordered_json* schema, std::string_view keyword, const nlohmann::ordered_json& value,
                  int depth);
  void resolve(const nlohmann::ordered_json* reference, const nlohmann::ordered_json* from);
  const nlohmann::ordered_json* child(const nlohmann::ordered_json* parent, const std::string& key);

  nlohmann::ordered_json root_;
  std::deque<nlohmann::ordered_json> added_;
  std::unordered_map<const nlohmann::ordered_json*, SchemaNode> nodes_;
  std::unordered_map<const nlohmann::ordered_json*, Parent> parents_;
  std::unordered_map<std::string, const nlohmann::ordered_json*> anchors_;
  bool has_parts_with_ids_ = false;  // then references are relative to the nearest $id, which is not followed
  std::unordered_map<std::string, const nlohmann::ordered_json*> known_;  // references resolved before
  std::unordered_map<const nlohmann::ordered_json*, const nlohmann::ordered_json*> targets_;
  std::unordered_map<const nlohmann::ordered_json*, std::unordered_map<std::string, const nlohmann::ordered_json*>>
      children_;  // by key, of large objects
  std::vector<std::pair<const nlohmann::ordered_json*, const nlohmann::ordered_json*>>
      open_;  // references not resolved
};

// Counts the values and bytes of a schema. Error if it is larger than the compiler takes: 100,000 values, 64 levels.
void check_schema_size(const nlohmann::ordered_json& schema);

}  // namespace lumen::model::infer
