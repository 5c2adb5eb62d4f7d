#include <algorithm>

#include "base/check.h"
#include "model/infer/schema/compiler.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestNegation = 12;
constexpr size_t kMostNegated = 8, kMostPairs = 64, kMostItems = 20'000;
constexpr size_t kMostChoices = 20'000;

bool is_scalar(const ordered_json& v) {
  return v.is_string() || v.is_boolean() || v.is_null();
}

// The values of const or enum; null if there is neither.
std::optional<std::vector<const ordered_json*>> values_of(const SchemaNode& node) {
  std::vector<const ordered_json*> out;
  if (const auto* one = node.find("const")) {
    out.push_back(one);
  } else if (const auto* list = node.find("enum")) {
    for (const auto& v : *list) out.push_back(&v);
  } else {
    return std::nullopt;
  }
  return out;
}

bool have_no_value_in_both(const std::vector<const ordered_json*>& a, const std::vector<const ordered_json*>& b) {
  if (a.size() * b.size() > 10'000) return false;
  return std::none_of(a.begin(), a.end(), [&](const auto* x) {
    return std::any_of(b.begin(), b.end(), [&](const auto* y) { return are_equal(*x, *y); });
  });
}

}  // namespace

const ordered_json* SchemaCompiler::own(Json schema, const Json* origin) {
  const Json* added = document_.add(std::move(schema), origin);
  own_.insert(added);
  return added;
}

SchemaCompiler::Flat SchemaCompiler::flatten(const Items& items) {
  Flat out;
  std::set<Item> seen;
  std::vector<Item> open(items.rbegin(), items.rend());
  while (!open.empty() && !out.is_dead) {
    const Item item = open.back();
    open.pop_back();
    if (!seen.insert(item).second) continue;
    if (seen.size() > kMostItems) {
      if (item.schema) relax(item.schema, "");
      break;
    }
    // Parts come right after what holds them.
    std::vector<Item> parts;
    expand(item, &out, &parts);
    open.insert(open.end(), parts.rbegin(), parts.rend());
  }
  is_full(seen.size());
  const auto unique = [](auto& list) {
    std::set<typename std::decay_t<decltype(list)>::value_type> known;
    std::erase_if(list, [&](const auto& one) { return !known.insert(one).second; });
  };
  unique(out.locals);
  unique(out.choices);
  return out;
}

uint32_t SchemaCompiler::choice_of(const void* key, const std::function<Choice()>& make) {
  if (const auto found = known_choices_.find(key); found != known_choices_.end()) return found->second;
  Choice made = make();
  choices_.push_back(std::move(made));
  const auto id = uint32_t(choices_.size() - 1);
  known_choices_.emplace(key, id);
  return id;
}

void SchemaCompiler::expand(const Item& item, Flat* out, std::vector<Item>* parts) {
  switch (item.kind) {
    case Item::Kind::choice:
      out->choices.push_back(item.choice);
      return;
    case Item::Kind::local:
      out->locals.push_back(item.schema);
      return;
    case Item::Kind::negated: {
      const std::optional<Choice>& opposite = negate(item.schema, 0);
      if (!opposite) {
        relax(item.schema, "");
      } else if (opposite->empty()) {
        out->is_dead = true;
      } else if (opposite->size() == 1) {
        *parts = opposite->front();
      } else {
        parts->push_back({Item::Kind::choice, nullptr, choice_of(&opposite, [&] { return *opposite; })});
      }
      return;
    }
    case Item::Kind::whole:
    case Item::Kind::not_null:
      break;
  }
  if (item.schema->is_boolean()) {
    out->is_dead |= !item.schema->get<bool>();
    return;
  }
  const Json* nullable = find(item.schema, "nullable");
  if (item.kind == Item::Kind::whole && nullable && *nullable == true) {
    const uint32_t choice = choice_of(nullable, [&]() -> Choice {
      return {{whole(own({{"type", "null"}}, item.schema))}, {{Item::Kind::not_null, item.schema, 0}}};
    });
    parts->push_back({Item::Kind::choice, nullptr, choice});
    return;
  }
  out->locals.push_back(item.schema);
  expand_keywords(item.schema, parts);
}

// The schemas for the same value.
void SchemaCompiler::expand_keywords(const Json* schema, std::vector<Item>* parts) {
  const auto choose = [&](const Json* key, const std::function<Choice()>& make) {
    if (choices_.size() >= kMostChoices) return relax(schema, "");
    parts->push_back({Item::Kind::choice, nullptr, choice_of(key, make)});
  };
  const SchemaNode& node = document_.node(schema);
  for (const auto& [keyword, given] : node.keywords) {
    const Json* value = given;
    if (keyword == "$ref" || keyword == "$dynamicRef" || keyword == "$recursiveRef") {
      const Json* to = document_.target(value);
      // The target of a dynamic reference depends on what refers to its document.
      if (to && keyword == "$ref")
        parts->push_back(whole(to));
      else
        relax(schema, keyword);
    } else if (keyword == "allOf") {
      for (const auto& one : *value) parts->push_back(whole(&one));
    } else if (keyword == "anyOf") {
      choose(value, [&] {
        Choice out;
        for (const auto& one : *value) out.push_back({whole(&one)});
        return out;
      });
    } else if (keyword == "oneOf") {
      choose(value, [&] { return one_of(schema, *value); });
    } else if (keyword == "not") {
      parts->push_back({Item::Kind::negated, value, 0});
    } else if (keyword == "if" && (node.has("then") || node.has("else"))) {
      choose(value, [&]() -> Choice {
        Items yes{whole(value)}, no{{Item::Kind::negated, value, 0}};
        if (const Json* then = node.find("then")) yes.push_back(whole(then));
        if (const Json* otherwise = node.find("else")) no.push_back(whole(otherwise));
        return {yes, no};
      });
    }
  }
  expand_dependencies(schema, parts);
}

void SchemaCompiler::expand_dependencies(const Json* schema, std::vector<Item>* parts) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json* given = find(schema, keyword);
    if (!given) continue;
    for (const auto& [name, needs] : given->items()) {
      if (choices_.size() >= kMostChoices) return relax(schema, keyword);
      const Json* value = &needs;
      const std::string& member = name;
      const uint32_t choice = choice_of(value, [&]() -> Choice {
        const Json* absent = own({{"properties", {{member, false}}}}, schema);
        const Json* then = value->is_array() ? own({{"required", *value}}, schema) : value;
        const Json* present = own({{"type", "object"}, {"required", Json::array({member})}}, schema);
        return {{whole(absent)}, {whole(present), whole(then)}};
      });
      parts->push_back({Item::Kind::choice, nullptr, choice});
    }
  }
}

// Alternatives that exclude each other need nothing more. For others, each alternative excludes the rest.
SchemaCompiler::Choice SchemaCompiler::one_of(const Json* schema, const Json& list) {
  Choice out;
  bool is_relaxed = list.size() > kMostPairs;
  for (const auto& one : list) {
    Items items{whole(&one)};
    for (const auto& other : list) {
      if (is_relaxed || &one == &other || are_disjoint(&one, &other)) continue;
      if (list.size() > kMostNegated)
        is_relaxed = true;
      else
        items.push_back({Item::Kind::negated, &other, 0});
    }
    out.push_back(std::move(items));
  }
  if (is_relaxed) relax(schema, "oneOf");
  return out;
}

const ordered_json* SchemaCompiler::plain_target(const Json* schema) const {
  for (int i = 0; i < 8; ++i) {
    const Json* reference = find(schema, "$ref");
    const Json* to = reference ? document_.target(reference) : nullptr;
    if (!to) break;
    schema = to;
  }
  return schema;
}

bool SchemaCompiler::are_disjoint(const Json* a, const Json* b) const {
  a = plain_target(a);
  b = plain_target(b);
  for (const Json* one : {a, b}) {
    if (one->is_boolean()) return !one->get<bool>();
    const Json* nullable = find(one, "nullable");
    if (nullable && *nullable == true) return false;
  }
  const SchemaNode &x = document_.node(a), &y = document_.node(b);
  const auto types = [&](const Json* schema, const SchemaNode& node) {
    unsigned out = types_of({{schema}, {}, false});
    if (const auto values = values_of(node)) {
      unsigned own_types = 0;
      for (const auto* v : *values) own_types |= types_of(*v);
      out &= own_types;
    }
    return out;
  };
  const unsigned both = types(a, x) & types(b, y);
  if (both == 0) return true;
  const auto p = values_of(x), q = values_of(y);
  if (p && q) return have_no_value_in_both(*p, *q);
  if (both != object) return false;
  // A member that both need, with different values: {"kind": {"const": "a"}}.
  const Json *listed = x.find("properties"), *others = y.find("properties");
  const Json *needed = x.find("required"), *also = y.find("required");
  if (!listed || !others || !needed || !also || !needed->is_array() || !also->is_array()) return false;
  if (needed->size() > 100 || also->size() > 100) return false;
  for (const auto& name : *needed) {
    if (std::find(also->begin(), also->end(), name) == also->end()) continue;
    const auto& key = name.get_ref<const std::string&>();
    const auto here = listed->find(key), there = others->find(key);
    if (here == listed->end() || there == others->end()) continue;
    const auto r = values_of(document_.node(plain_target(&*here))),
               s = values_of(document_.node(plain_target(&*there)));
    if (r && s && have_no_value_in_both(*r, *s)) return true;
  }
  return false;
}

// The opposite of a schema: one of its keywords is violated. nullopt: rules cannot express it.
const std::optional<SchemaCompiler::Choice>& SchemaCompiler::negate(const Json* schema, int depth) {
  // While it is computed, the opposite of a recursive schema is unknown.
  const auto [at, is_new] = negated_.try_emplace(schema);
  if (is_new && depth <= kDeepestNegation && !is_full(1)) {
    std::optional<Choice> made = make_negation(schema, depth);
    at->second = std::move(made);
  }
  return at->second;
}

std::optional<SchemaCompiler::Choice> SchemaCompiler::make_negation(const Json* schema, int depth) {
  if (schema->is_boolean()) return schema->get<bool>() ? Choice{} : Choice{{}};
  Choice out;
  for (const auto& [keyword, value] : document_.node(schema).keywords) {
    const auto one = negate_keyword(schema, keyword, *value, depth);
    if (!one) return std::nullopt;
    out.insert(out.end(), one->begin(), one->end());
  }
  const Json* nullable = find(schema, "nullable");
  if (nullable && *nullable == true) {
    const Json* some = own({{"type", {"boolean", "number", "string", "array", "object"}}}, schema);
    for (Items& items : out) items.push_back(whole(some));
  }
  return out;
}

std::optional<SchemaCompiler::Choice> SchemaCompiler::negate_keyword(const Json* schema, std::string_view keyword,
                                                                     const Json& value, int depth) {
  const auto only = [&](Json opposite) -> Choice { return {{whole(own(std::move(opposite), schema))}}; };
  const auto count = [&] { return int64_t(value.get<double>()); };
  const auto below = [&](const char* type, const char* key) {
    return count() == 0 ? Choice{} : only({{"type", type}, {key, count() - 1}});
  };
  const auto above = [&](const char* type, const char* key) { return only({{"type", type}, {key, count() + 1}}); };
  if (keyword == "nullable" || keyword == "then" || keyword == "else") return Choice{};
  if (keyword == "type") {
    const unsigned types = types_of({{schema}, {}, false});
    if ((types & integer) && !(types & fraction)) return std::nullopt;  // numbers that are not whole
    Json list = Json::array();
    static constexpr std::pair<unsigned, const char*> kNames[] = {{null, "null"},      {boolean, "boolean"},
                                                                  {integer, "number"}, {text, "string"},
                                                                  {array, "array"},    {object, "object"}};
    for (const auto& [bit, name] : kNames)
      if (!(types & bit)) list.push_back(name);
    return list.empty() ? Choice{} : only({{"type", std::move(list)}});
  }
  if (keyword == "const" || keyword == "enum") {
    Json list = keyword == "const" ? Json::array({value}) : value;
    if (!std::all_of(list.begin(), list.end(), is_scalar)) return std::nullopt;
    return only({{"\x01notEnum", std::move(list)}});
  }
  if (keyword == "required") {
    if (!value.is_array() || value.size() > 50) return std::nullopt;
    Choice out;
    for (const auto& name : value)
      out.push_back({whole(own({{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}}, schema))});
    return out;
  }
  if (keyword == "properties") {
    if (value.size() > 50) return std::nullopt;
    Choice out;
    for (const auto& [name, part] : value.items()) {
      if (!negate(&part, depth + 1)) return std::nullopt;
      const Json* present = own({{"type", "object"}, {"required", Json::array({name})}}, schema);
      opposite_members_.emplace(present, std::pair(name, Item{Item::Kind::negated, &part, 0}));
      out.push_back({whole(present)});
    }
    return out;
  }
  if (keyword == "not") return Choice{{whole(&value)}};
  if (keyword == "$ref") {
    const Json* to = document_.target(&value);
    if (!to || !negate(to, depth + 1)) return std::nullopt;
    return Choice{{{Item::Kind::negated, to, 0}}};
  }
  if (keyword == "allOf" || keyword == "anyOf") {
    Choice each;
    for (const auto& one : value) {
      if (!negate(&one, depth + 1)) return std::nullopt;
      each.push_back({{Item::Kind::negated, &one, 0}});
    }
    if (keyword == "allOf") return each;
    Items together;
    for (const Items& items : each) together.push_back(items[0]);
    return Choice{together};
  }
  const Json *low = find(schema, "exclusiveMinimum"), *high = find(schema, "exclusiveMaximum");
  if ((low && low->is_boolean()) || (high && high->is_boolean())) return std::nullopt;
  if (keyword == "minimum") return only({{"type", "number"}, {"exclusiveMaximum", value}});
  if (keyword == "maximum") return only({{"type", "number"}, {"exclusiveMinimum", value}});
  if (keyword == "exclusiveMinimum") return only({{"type", "number"}, {"maximum", value}});
  if (keyword == "exclusiveMaximum") return only({{"type", "number"}, {"minimum", value}});
  if (keyword == "pattern") return only({{"type", "string"}, {"\x01notPattern", value}});
  if (keyword == "format") return only({{"type", "string"}, {"\x01notFormat", value}});
  if (keyword == "minLength") return below("string", "maxLength");
  if (keyword == "maxLength") return above("string", "minLength");
  if (keyword == "minItems") return below("array", "maxItems");
  if (keyword == "maxItems") return above("array", "minItems");
  if (keyword == "minProperties") return below("object", "maxProperties");
  if (keyword == "maxProperties") return above("object", "minProperties");
  return std::nullopt;
}

bool SchemaCompiler::fits(const Json& value, const Item& item) {
  using Scope = SchemaValidator::Scope;
  const auto holds = [&](Scope scope) {
    const auto out = validator_.check(value, item.schema, scope);
    is_full(validator_.work() / 4);
    return out;
  };
  switch (item.kind) {
    case Item::Kind::whole:
      return holds(Scope::whole).value_or(true);
    case Item::Kind::not_null:
      return holds(Scope::not_null).value_or(true);
    case Item::Kind::local:
      return holds(Scope::local).value_or(true);
    case Item::Kind::negated:
      return !holds(Scope::whole).value_or(false);
    case Item::Kind::choice:
      break;
  }
  const Choice& choice = choices_[item.choice];
  return std::any_of(choice.begin(), choice.end(), [&](const Items& items) {
    return std::all_of(items.begin(), items.end(), [&](const Item& one) { return fits(value, one); });
  });
}

unsigned SchemaCompiler::types_of(const Json& value) {
  if (value.is_number()) return integer | fraction;
  return value.is_string()    ? text
         : value.is_boolean() ? boolean
         : value.is_null()    ? null
         : value.is_array()   ? array
                              : object;
}

unsigned SchemaCompiler::types_of(const Flat& set) const {
  static const std::map<std::string, unsigned> bits = {
      {"null", null},   {"boolean", boolean}, {"integer", integer}, {"number", integer | fraction},
      {"string", text}, {"array", array},     {"object", object}};
  unsigned out = all;
  for (const Json* local : set.locals) {
    const Json* type = find(local, "type");
    if (!type) continue;
    unsigned own_types = 0;
    if (type->is_string())
      own_types = bits.at(type->get<std::string>());
    else
      for (const auto& one : *type) own_types |= bits.at(one.get<std::string>());
    out &= own_types;
  }
  return out;
}

// The type of a schema that names none but has keywords for one type only.
unsigned SchemaCompiler::inferred(const Flat& set) const {
  static const std::map<std::string_view, unsigned> types = {{"properties", object},
                                                             {"required", object},
                                                             {"additionalProperties", object},
                                                             {"patternProperties", object},
                                                             {"minProperties", object},
                                                             {"maxProperties", object},
                                                             {"propertyNames", object},
                                                             {"unevaluatedProperties", object},
                                                             {"items", array},
                                                             {"prefixItems", array},
                                                             {"minItems", array},
                                                             {"maxItems", array},
                                                             {"contains", array},
                                                             {"uniqueItems", array},
                                                             {"unevaluatedItems", array},
                                                             {"minLength", text},
                                                             {"maxLength", text},
                                                             {"pattern", text},
                                                             {"format", text},
                                                             {"minimum", integer | fraction},
                                                             {"maximum", integer | fraction},
                                                             {"exclusiveMinimum", integer | fraction},
                                                             {"exclusiveMaximum", integer | fraction},
                                                             {"multipleOf", integer | fraction}};
  unsigned out = 0;
  for (const Json* local : set.locals) {
    if (is_own(local)) continue;
    for (const auto& [keyword, value] : document_.node(local).keywords)
      if (const auto found = types.find(keyword); found != types.end()) out |= found->second;
  }
  const bool is_one_type = out == object || out == array || out == text || out == (integer | fraction);
  return is_one_type ? out : unsigned(all);
}

}  // namespace lumen::model::infer
