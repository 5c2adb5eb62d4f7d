// Compiles a schema document to rules. A rule is made for each set of constraints that one value must fulfil: members
// of allOf, targets of references and chosen alternatives are joined in such sets, so that they are enforced together,
// and equal sets share a rule. What rules cannot express is left out and listed. Sets wait in a queue, so deep schemas
// need no deep stack. Proved by tests/model/infer/schema/schema_test.cpp.
#pragma once

#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/infer/schema/document.h"
#include "model/infer/schema/rules.h"
#include "model/infer/schema/validate.h"

namespace lumen::model::infer {

class SchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;
  // is_exact: without the choices that schema.h describes. is_stopped: polled; an Error ends the work when it is true.
  SchemaCompiler(SchemaDocument& document, const std::string& prefix, bool is_exact, std::function<bool()> is_stopped);

  int32_t run(const Json* schema);  // the rule of a value
  const Rules& rules() const { return rules_; }
  // Places of keywords that the rules do not enforce.
  const std::set<std::string>& relaxed() const { return relaxed_; }

 private:
  // One constraint: a subschema, whole or without `nullable` or only its keywords that hold no schemas for the same
  // value; the opposite of a subschema; or a choice between lists of constraints.
  struct Item {
    enum class Kind : uint8_t { whole, not_null, local, negated, choice } kind = Kind::whole;
    const Json* schema = nullptr;
    uint32_t choice = 0;
    friend auto operator<=>(const Item&, const Item&) = default;
  };
  using Items = std::vector<Item>;
  using Choice = std::vector<Items>;
  struct Flat {
    std::vector<const Json*> locals;
    std::vector<uint32_t> choices;
    bool is_dead = false;  // no value fulfils it
  };
  struct Task {
    int32_t rule;
    Items items;
    bool is_one;  // made from one subschema, so that it comes first in the set and holds the others
  };
  struct Member {
    std::string name;
    Items items = {};
    bool is_required = false;
  };
  struct StringLimits;
  enum Types : unsigned {
    null = 1,
    boolean = 2,
    integer = 4,
    fraction = 8,
    text = 16,
    array = 32,
    object = 64,
    all = 127
  };

  static Item whole(const Json* schema) { return {Item::Kind::whole, schema, 0}; }
  const Json* find(const Json* schema, std::string_view keyword) const { return document_.node(schema).find(keyword); }
  int32_t rule_of(Items items, bool is_one = false);
  void fill(const Task& task);
  void relax(const Json* schema, std::string_view keyword);
  bool is_full(size_t work);

  // expand.cpp: sets of constraints.
  Flat flatten(const Items& items);
  void expand(const Item& item, Flat* out, std::vector<Item>* open);
  void expand_keywords(const Json* schema, std::vector<Item>* parts);
  void expand_dependencies(const Json* schema, std::vector<Item>* parts);
  uint32_t choice_of(const void* key, const std::function<Choice()>& make);
  Choice one_of(const Json* schema, const Json& list);
  bool are_disjoint(const Json* a, const Json* b) const;
  const Json* plain_target(const Json* schema) const;
  const std::optional<Choice>& negate(const Json* schema, int depth);
  std::optional<Choice> make_negation(const Json* schema, int depth);
  std::optional<Choice> negate_keyword(const Json* schema, std::string_view keyword, const Json& value, int depth);
  const Json* own(Json schema, const Json* origin);
  bool is_own(const Json* schema) const { return own_.contains(schema); }
  bool fits(const Json& value, const Item& item);
  static unsigned types_of(const Json& value);
  unsigned types_of(const Flat& set) const;
  unsigned inferred(const Flat& set) const;

  // scalars.cpp
  bool put_values(int32_t rule, const Items& items, const Flat& set);
  void put_literals(int32_t rule, std::vector<std::string> literals, int depth = 0);
  void put_number(int32_t rule, const Flat& set, bool is_whole);
  void put_string(int32_t rule, const Flat& set);
  // The strings that the string keywords of the set allow; the keywords that need too much are relaxed. nullopt: any
  // text.
  std::optional<Automaton> strings(const Flat& set);
  const Automaton* pattern_automaton(const std::string& pattern);
  int32_t value_rule();

  // containers.cpp
  void put_object(int32_t rule, const Flat& set, bool is_one);
  std::vector<Member> members(const Flat& set);
  Items member_items(const std::string& name, const Flat& set);
  void put_members(int32_t rule, const std::vector<Member>& listed, int32_t others, int64_t least, int64_t most,
                   const Json* holder);
  int32_t other_members(const Flat& set, const std::vector<Member>& listed, bool is_closed);
  std::optional<Automaton> other_names(const Flat& set, const std::vector<Member>& listed);
  bool is_closed(const Flat& set, size_t listed) const;
  void put_array(int32_t rule, const Flat& set, bool is_one);
  void put_items(int32_t rule, const std::vector<Items>& first, const Items& rest, int64_t least, int64_t most);
  Items item_schemas(const Flat& set, size_t at, bool* is_last);
  bool put_unique(int32_t rule, const Items& item, int64_t least, int64_t most);
  bool put_contains(int32_t rule, const std::vector<Items>& first, const Items& rest, int64_t least, int64_t most,
                    const Json* holder);
  static int64_t count_of(const Json& value);

  SchemaDocument& document_;
  SchemaValidator validator_;
  Rules rules_;
  bool is_exact_;
  std::function<bool()> is_stopped_;
  std::deque<Task> open_;
  std::map<std::pair<Items, bool>, int32_t> known_;
  std::vector<Choice> choices_;
  std::map<const void*, uint32_t> known_choices_;
  std::map<const Json*, std::optional<Choice>> negated_;
  std::unordered_set<const Json*> own_;
  std::map<const Json*, std::pair<std::string, Item>> opposite_members_;  // by schemas of own_
  std::map<std::string, std::optional<Automaton>> automata_;
  std::map<std::string, int32_t> scalars_;
  std::unordered_map<const Json*, std::unordered_map<std::string, const Json*>> properties_;  // by the object of them
  std::set<std::string> relaxed_;
  size_t work_ = 0, budget_ = size_t{1} << 25;  // budget: steps left for automata
  int32_t value_ = -1;
};

}  // namespace lumen::model::infer
