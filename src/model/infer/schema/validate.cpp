#include "model/infer/schema/validate.h"

#include <algorithm>
#include <cmath>

#include "model/infer/schema/automata/formats.h"
#include "model/infer/schema/automata/numbers.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepest = 200;
constexpr size_t kMostWork = 500'000;

struct Unknown {};  // thrown when a check is not possible or takes too long

bool is_whole(const ordered_json& v) {
  return v.is_number_integer() || (v.is_number_float() && v.get<double>() == std::floor(v.get<double>()));
}

bool has_type(const ordered_json& v, const std::string& type) {
  if (type == "integer") return is_whole(v);
  if (type == "number") return v.is_number();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_boolean();
  if (type == "null") return v.is_null();
  return type == "object" ? v.is_object() : v.is_array();
}

int64_t count_of(const ordered_json* v, int64_t fallback) {
  return v ? int64_t(v->get<double>()) : fallback;
}

size_t characters_of(const std::string& text) {
  size_t out = 0;
  for (const char c : text) out += (uint8_t(c) & 0xc0) != 0x80 ? 1 : 0;
  return out;
}

// Exact where both have few digits, else in floating point.
int compare_numbers(const ordered_json& a, const ordered_json& b) {
  const auto x = Decimal::of(a), y = Decimal::of(b);
  if (x && y) return compare(*x, *y);
  const double p = a.get<double>(), q = b.get<double>();
  return p < q ? -1 : p > q ? 1 : 0;
}

}  // namespace

bool are_equal(const ordered_json& a, const ordered_json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    return nlohmann::json(a) == nlohmann::json(b);
  }
  if (a.is_array() && b.is_array()) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), are_equal);
  }
  return a == b;
}

void SchemaValidator::spend(size_t work) {
  work_ += work;
  if (work_ > kMostWork) throw Unknown();
}

const EcmaPattern* SchemaValidator::pattern(const std::string& text) {
  const auto [at, is_new] = patterns_.try_emplace(text);
  if (is_new) at->second = EcmaPattern::parse(text);
  return at->second ? &*at->second : nullptr;
}

std::optional<bool> SchemaValidator::check(const ordered_json& value, const ordered_json* schema, Scope scope) {
  work_ = 0;
  try {
    return valid(value, schema, 0, nullptr, scope);
  } catch (const Unknown&) {
    return std::nullopt;
  }
}

bool SchemaValidator::valid(const ordered_json& value, const ordered_json* schema, int depth, Evaluated* done,
                            Scope scope) {
  if (schema->is_boolean()) return schema->get<bool>();
  if (depth > kDeepest) throw Unknown();  // a reference that leads to itself
  spend(1);
  const SchemaNode& node = document_.node(schema);
  if (scope != Scope::not_null && value.is_null()) {
    const auto* nullable = node.find("nullable");
    if (nullable && *nullable == true) return true;
  }
  Evaluated own;
  const bool needs = node.has("unevaluatedProperties") || node.has("unevaluatedItems");
  Evaluated* here = needs || done ? &own : nullptr;
  if (!valid_any(value, node)) return false;
  if (value.is_number() && !valid_number(value, node)) return false;
  if (value.is_string() && !valid_string(value.get_ref<const std::string&>(), node)) return false;
  if (value.is_array() && !valid_array(value, node, depth, here)) return false;
  if (value.is_object() && !valid_object(value, node, depth, here)) return false;
  if (scope != Scope::local && !valid_in_place(value, node, depth, here)) return false;
  if (const auto* rest = node.find("unevaluatedItems"); rest && value.is_array() && scope != Scope::local) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (own.items.contains(i)) continue;
      if (!valid(value[i], rest, depth + 1, nullptr)) return false;
      own.items.insert(i);
    }
  }
  if (const auto* rest = node.find("unevaluatedProperties"); rest && value.is_object() && scope != Scope::local) {
    for (const auto& [name, member] : value.items()) {
      if (own.names.contains(name)) continue;
      if (!valid(member, rest, depth + 1, nullptr)) return false;
      own.names.insert(name);
    }
  }
  if (done) {
    done->names.merge(own.names);
    done->items.merge(own.items);
  }
  return true;
}

bool SchemaValidator::valid_any(const ordered_json& value, const SchemaNode& node) {
  if (const auto* type = node.find("type")) {
    const auto fits = [&](const ordered_json& t) { return has_type(value, t.get_ref<const std::string&>()); };
    if (type->is_array() ? std::none_of(type->begin(), type->end(), fits) : !fits(*type)) return false;
  }
  if (const auto* one = node.find("const"); one && !are_equal(value, *one)) return false;
  const auto is_in = [&](const ordered_json& list) {
    spend(list.size());
    return std::any_of(list.begin(), list.end(), [&](const auto& v) { return are_equal(value, v); });
  };
  if (const auto* list = node.find("enum"); list && !is_in(*list)) return false;
  if (const auto* list = node.find("\x01notEnum"); list && is_in(*list)) return false;
  return true;
}

// Schemas for the same value: all of $ref, allOf, anyOf, oneOf, not, if.
bool SchemaValidator::valid_in_place(const ordered_json& value, const SchemaNode& node, int depth, Evaluated* done) {
  for (const auto& [keyword, given] : node.keywords) {
    if (keyword == "$ref" || keyword == "$dynamicRef" || keyword == "$recursiveRef") {
      const ordered_json* to = document_.target(given);
      if (!to || keyword != "$ref") throw Unknown();
      if (!valid(value, to, depth + 1, done)) return false;
    } else if (keyword == "allOf") {
      for (const auto& one : *given)
        if (!valid(value, &one, depth + 1, done)) return false;
    } else if (keyword == "anyOf" || keyword == "oneOf") {
      size_t count = 0;
      for (const auto& one : *given) {
        Evaluated inner;
        if (!valid(value, &one, depth + 1, done ? &inner : nullptr)) continue;
        ++count;
        if (done) {
          done->names.merge(inner.names);
          done->items.merge(inner.items);
        }
        if (!done && keyword == "anyOf") break;
      }
      if (count == 0 || (keyword == "oneOf" && count > 1)) return false;
    } else if (keyword == "not") {
      if (valid(value, given, depth + 1, nullptr)) return false;
    } else if (keyword == "if") {
      Evaluated inner;
      const bool holds = valid(value, given, depth + 1, done ? &inner : nullptr);
      if (holds && done) {
        done->names.merge(inner.names);
        done->items.merge(inner.items);
      }
      const auto* then = node.find(holds ? "then" : "else");
      if (then && !valid(value, then, depth + 1, done)) return false;
    }
  }
  return !value.is_object() || valid_dependencies(value, node, depth, done);
}

bool SchemaValidator::valid_dependencies(const ordered_json& value, const SchemaNode& node, int depth,
                                         Evaluated* done) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const auto* given = node.find(keyword);
    if (!given) continue;
    for (const auto& [name, needs] : given->items()) {
      spend(1);
      if (!value.contains(name)) continue;
      if (needs.is_array()) {
        for (const auto& other : needs)
          if (!value.contains(other.get_ref<const std::string&>())) return false;
      } else if (!valid(value, &needs, depth + 1, done)) {
        return false;
      }
    }
  }
  return true;
}

bool SchemaValidator::valid_number(const ordered_json& value, const SchemaNode& node) {
  const auto flag = [&](const char* keyword) {  // draft 4: exclusiveMinimum is true or false
    const auto* v = node.find(keyword);
    return v && v->is_boolean() && v->get<bool>();
  };
  if (const auto* v = node.find("minimum")) {
    const int order = compare_numbers(value, *v);
    if (order < 0 || (order == 0 && flag("exclusiveMinimum"))) return false;
  }
  if (const auto* v = node.find("maximum")) {
    const int order = compare_numbers(value, *v);
    if (order > 0 || (order == 0 && flag("exclusiveMaximum"))) return false;
  }
  if (const auto* v = node.find("exclusiveMinimum"); v && v->is_number() && compare_numbers(value, *v) <= 0)
    return false;
  if (const auto* v = node.find("exclusiveMaximum"); v && v->is_number() && compare_numbers(value, *v) >= 0)
    return false;
  if (const auto* v = node.find("multipleOf")) {
    const auto number = Decimal::of(value), of = Decimal::of(*v);
    const auto exact = number && of ? is_multiple(*number, *of) : std::nullopt;
    if (exact) return *exact;
    const double ratio = value.get<double>() / v->get<double>();
    return std::isfinite(ratio) && ratio == std::floor(ratio);
  }
  return true;
}

bool SchemaValidator::valid_string(const std::string& text, const SchemaNode& node) {
  if (const auto* v = node.find("minLength"); v && int64_t(characters_of(text)) < count_of(v, 0)) return false;
  if (const auto* v = node.find("maxLength"); v && int64_t(characters_of(text)) > count_of(v, 0)) return false;
  const auto matches = [&](const ordered_json& given) {
    const EcmaPattern* p = pattern(given.get_ref<const std::string&>());
    if (!p) throw Unknown();
    spend(text.size() * std::max<size_t>(1, p->size() / 64));
    return p->matches(text);
  };
  if (const auto* v = node.find("pattern"); v && !matches(*v)) return false;
  if (const auto* v = node.find("\x01notPattern"); v && matches(*v)) return false;
  if (const auto* v = node.find("format"); v && !valid_format(text, v->get_ref<const std::string&>())) return false;
  if (const auto* v = node.find("\x01notFormat"); v && valid_format(text, v->get_ref<const std::string&>()))
    return false;
  return true;
}

bool SchemaValidator::valid_format(const std::string& text, const std::string& format) {
  const std::string* known = format_pattern(format);
  if (!known) return true;
  const EcmaPattern* p = pattern(*known);
  if (!p) throw Unknown();
  spend(text.size() * std::max<size_t>(1, p->size() / 64));
  if (!p->matches(text)) return false;
  return format_is_whole(format) || std::ssize(text) <= kLongestHostname;
}

bool SchemaValidator::valid_array(const ordered_json& value, const SchemaNode& node, int depth, Evaluated* done) {
  const auto size = std::ssize(value);
  if (size < count_of(node.find("minItems"), 0)) return false;
  if (const auto* v = node.find("maxItems"); v && size > count_of(v, 0)) return false;
  const auto* items = node.find("items");
  const auto* prefix = node.find("prefixItems");
  if (!prefix && items && items->is_array()) {
    prefix = items;
    items = node.find("additionalItems");
  }
  const size_t listed = prefix ? std::min(prefix->size(), value.size()) : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const ordered_json* one = i < listed ? &(*prefix)[i] : items;
    if (!one) break;
    if (!valid(value[i], one, depth + 1, nullptr)) return false;
    if (done) done->items.insert(i);
  }
  if (const auto* v = node.find("contains")) {
    int64_t count = 0;
    for (size_t i = 0; i < value.size(); ++i) {
      if (!valid(value[i], v, depth + 1, nullptr)) continue;
      ++count;
      if (done) done->items.insert(i);
    }
    if (count < count_of(node.find("minContains"), 1)) return false;
    if (const auto* most = node.find("maxContains"); most && count > count_of(most, 0)) return false;
  }
  if (const auto* v = node.find("uniqueItems"); v && *v == true) {
    std::vector<nlohmann::json> sorted;
    for (const auto& one : value) sorted.emplace_back(one);
    spend(value.size() * 20);
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
  }
  return true;
}

bool SchemaValidator::valid_object(const ordered_json& value, const SchemaNode& node, int depth, Evaluated* done) {
  const auto size = std::ssize(value);
  if (size < count_of(node.find("minProperties"), 0)) return false;
  if (const auto* v = node.find("maxProperties"); v && size > count_of(v, 0)) return false;
  const std::set<std::string> present = [&] {
    std::set<std::string> names;
    for (const auto& [name, member] : value.items()) names.insert(name);
    return names;
  }();
  if (const auto* v = node.find("required"); v && v->is_array()) {
    spend(v->size());
    for (const auto& name : *v)
      if (!present.contains(name.get_ref<const std::string&>())) return false;
  }
  std::unordered_map<std::string_view, const ordered_json*> listed;
  if (const auto* v = node.find("properties")) {
    spend(v->size());
    for (const auto& [name, schema] : v->items()) listed.emplace(name, &schema);
  }
  const auto* patterns = node.find("patternProperties");
  const auto* others = node.find("additionalProperties");
  const auto* names = node.find("propertyNames");
  for (const auto& [name, member] : value.items()) {
    if (names && !valid(name, names, depth + 1, nullptr)) return false;
    bool is_known = false;
    if (const auto found = listed.find(name); found != listed.end()) {
      is_known = true;
      if (!valid(member, found->second, depth + 1, nullptr)) return false;
    }
    if (patterns) {
      for (const auto& [text, schema] : patterns->items()) {
        const EcmaPattern* p = pattern(text);
        if (!p) throw Unknown();
        spend(name.size() * std::max<size_t>(1, p->size() / 64));
        if (!p->matches(name)) continue;
        is_known = true;
        if (!valid(member, &schema, depth + 1, nullptr)) return false;
      }
    }
    if (!is_known && others) {
      is_known = true;
      if (!valid(member, others, depth + 1, nullptr)) return false;
    }
    if (is_known && done) done->names.insert(name);
  }
  return true;
}

}  // namespace lumen::model::infer
