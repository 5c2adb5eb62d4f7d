#include "model/infer/schema/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepest = 64;
constexpr size_t kMostValues = 100'000, kMostBytes = size_t{4} << 20, kLongestPlace = 200;

// The keywords that are read, by the type of their value.
enum class Value {
  schema,
  schemas,
  map,
  mixed_map,
  list_or_schema,
  names,
  name_lists,
  count,
  number,
  text,
  types,
  list,
  boolean,
  any,
  bound
};
const std::unordered_map<std::string_view, Value>& keywords() {
  static const std::unordered_map<std::string_view, Value> table = {
      {"additionalItems", Value::schema},
      {"additionalProperties", Value::schema},
      {"allOf", Value::schemas},
      {"anyOf", Value::schemas},
      {"const", Value::any},
      {"contains", Value::schema},
      {"dependencies", Value::mixed_map},
      {"dependentRequired", Value::name_lists},
      {"dependentSchemas", Value::map},
      {"else", Value::schema},
      {"enum", Value::list},
      {"exclusiveMaximum", Value::bound},
      {"exclusiveMinimum", Value::bound},
      {"format", Value::text},
      {"if", Value::schema},
      {"items", Value::list_or_schema},
      {"maxContains", Value::count},
      {"maxItems", Value::count},
      {"maxLength", Value::count},
      {"maxProperties", Value::count},
      {"maximum", Value::number},
      {"minContains", Value::count},
      {"minItems", Value::count},
      {"minLength", Value::count},
      {"minProperties", Value::count},
      {"minimum", Value::number},
      {"multipleOf", Value::number},
      {"not", Value::schema},
      {"nullable", Value::boolean},
      {"oneOf", Value::schemas},
      {"pattern", Value::text},
      {"patternProperties", Value::map},
      {"prefixItems", Value::schemas},
      {"properties", Value::map},
      {"propertyNames", Value::schema},
      {"required", Value::names},
      {"then", Value::schema},
      {"type", Value::types},
      {"unevaluatedItems", Value::schema},
      {"unevaluatedProperties", Value::schema},
      {"uniqueItems", Value::boolean},
      {"$dynamicRef", Value::text},
      {"$recursiveRef", Value::text},
      {"$ref", Value::text},
      // Added by the compiler only; no request can have them, see read().
      {"\x01notEnum", Value::list},
      {"\x01notPattern", Value::text},
      {"\x01notFormat", Value::text},
  };
  return table;
}

bool is_schema(const ordered_json& v) {
  return v.is_object() || v.is_boolean();
}

bool are_names(const ordered_json& v) {
  return v.is_array() && std::all_of(v.begin(), v.end(), [](const auto& n) { return n.is_string(); });
}

// Empty if the value has the keyword's type, else the type in words.
const char* fault_of(Value kind, const ordered_json& v) {
  static const std::set<std::string> types = {"string", "number", "integer", "boolean", "null", "object", "array"};
  const auto is_type = [&](const ordered_json& t) { return t.is_string() && types.contains(t.get<std::string>()); };
  const auto all = [&](const auto& test) { return std::all_of(v.begin(), v.end(), test); };
  switch (kind) {
    case Value::schema:
      return is_schema(v) ? nullptr : "a schema (an object, true or false)";
    case Value::schemas:
      return v.is_array() && !v.empty() && all(is_schema) ? nullptr : "a list of schemas";
    case Value::map:
      return v.is_object() && all(is_schema) ? nullptr : "an object of schemas";
    case Value::mixed_map:
      return v.is_object() && all([](const auto& s) { return is_schema(s) || are_names(s); })
                 ? nullptr
                 : "an object of schemas or lists of names";
    case Value::list_or_schema:
      return is_schema(v) || (v.is_array() && all(is_schema)) ? nullptr : "a schema (an object, true or false)";
    case Value::names:
      return are_names(v) || v.is_boolean() ? nullptr : "a list of names";
    case Value::name_lists:
      return v.is_object() && all(are_names) ? nullptr : "an object of lists of names";
    case Value::count:
      return v.is_number() && v.get<double>() >= 0 && v.get<double>() < 9e15 &&
                     v.get<double>() == double(int64_t(v.get<double>()))
                 ? nullptr
                 : "a whole number from 0";
    case Value::number:
      return v.is_number() ? nullptr : "a number";
    case Value::bound:
      return v.is_number() || v.is_boolean() ? nullptr : "a number";
    case Value::text:
      return v.is_string() ? nullptr : "a string";
    case Value::types:
      return is_type(v) || (v.is_array() && !v.empty() && all(is_type))
                 ? nullptr
                 : "one of string, number, integer, boolean, null, object and array, or a list of these";
    case Value::list:
      return v.is_array() && !v.empty() ? nullptr : "a list of values that is not empty";
    case Value::boolean:
      return v.is_boolean() ? nullptr : "true or false";
    case Value::any:
      break;
  }
  return nullptr;
}

// The first bytes of a text of any length, for messages.
std::string clipped(const std::string& text) {
  if (text.size() <= kLongestPlace) return text;
  const std::string head = text.substr(0, kLongestPlace);
  return head.substr(0, head.size() - text::utf8_unfinished_tail(head)) + "..";
}

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

// A token of a reference: %XX and then ~1 and ~0 are replaced, in one pass each.
std::string unescaped(std::string_view token) {
  std::string plain, out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '%' && i + 2 < token.size()) {
      const std::string digits(token.substr(i + 1, 2));
      char* end = nullptr;
      const long value = std::strtol(digits.c_str(), &end, 16);
      if (*end == '\0') {
        plain += char(value);
        i += 2;
        continue;
      }
    }
    plain += token[i];
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool is_mark = plain[i] == '~' && i + 1 < plain.size() && (plain[i + 1] == '0' || plain[i + 1] == '1');
    out += is_mark ? (plain[i + 1] == '1' ? '/' : '~') : plain[i];
    i += is_mark;
  }
  return out;
}

}  // namespace

void check_schema_size(const ordered_json& schema) {
  size_t values = 0, bytes = 0;
  std::vector<std::pair<const ordered_json*, int>> open{{&schema, 0}};
  while (!open.empty()) {
    const auto [v, depth] = open.back();
    open.pop_back();
    if (depth > kDeepest) throw user_error("JSON schema: more than {} levels", kDeepest);
    ++values;
    if (v->is_string()) bytes += v->get_ref<const std::string&>().size();
    if (v->is_structured() && values + v->size() > kMostValues)
      throw user_error("JSON schema: more than {} values", kMostValues);
    if (v->is_object())
      for (const auto& [key, value] : v->items()) {
        bytes += key.size();
        open.emplace_back(&value, depth + 1);
      }
    else if (v->is_array())
      for (const auto& value : *v) open.emplace_back(&value, depth + 1);
    if (values + open.size() > kMostValues) throw user_error("JSON schema: more than {} values", kMostValues);
    if (bytes > kMostBytes) throw user_error("JSON schema: more than {} MiB of text", kMostBytes >> 20);
  }
}

const ordered_json* SchemaNode::find(std::string_view keyword) const {
  for (const auto& [name, value] : keywords)
    if (name == keyword) return value;
  return nullptr;
}

SchemaDocument::SchemaDocument(ordered_json schema) : root_(std::move(schema)) {
  check_schema_size(root_);
  if (!is_schema(root_)) throw user_error("JSON schema, #: a schema is an object, true or false");
  read(&root_, {}, 0);
  while (!open_.empty()) {
    const auto [reference, from] = open_.back();
    open_.pop_back();
    resolve(reference, from);
  }
  children_.clear();  // the index is needed for resolving only
}

void SchemaDocument::read(const ordered_json* schema, Parent parent, int depth) {
  if (parents_.contains(schema)) return;
  parents_.emplace(schema, std::move(parent));
  if (!schema->is_object()) return;
  SchemaNode node;
  for (const auto& [key, value] : schema->items()) {
    const auto known = keywords().find(key);
    if (key == "$anchor" || key == "$dynamicAnchor") {
      if (value.is_string()) anchors_.emplace("#" + value.get<std::string>(), schema);
      continue;
    }
    if (key == "$id" || key == "id") {
      if (value.is_string()) anchors_.emplace(value.get<std::string>(), schema);
      has_parts_with_ids_ |= schema != &root_ && value.is_string();
      continue;
    }
    if (key == "$defs" || key == "definitions") {
      if (!value.is_object()) throw user_error("JSON schema, {}: {} must be an object of schemas", place(schema), key);
      read_parts(schema, key, value, depth);
      continue;
    }
    const bool is_private = key.starts_with('\x01') && (added_.empty() || schema != &added_.back());
    if (known == keywords().end() || is_private) continue;
    if (const char* fault = fault_of(known->second, value))
      throw user_error("JSON schema, {}: {} must be {}", place(schema), key, fault);
    node.keywords.emplace_back(known->first, &value);
    switch (known->second) {
      case Value::schema:
      case Value::schemas:
      case Value::map:
      case Value::mixed_map:
      case Value::list_or_schema:
        read_parts(schema, known->first, value, depth);
        break;
      default:
        if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") open_.emplace_back(&value, schema);
        break;
    }
  }
  nodes_.emplace(schema, std::move(node));
}

void SchemaDocument::read_parts(const ordered_json* schema, std::string_view keyword, const ordered_json& value,
                                int depth) {
  const bool is_map = keyword == "properties" || keyword == "patternProperties" || keyword == "$defs" ||
                      keyword == "definitions" || keyword == "dependentSchemas" || keyword == "dependencies";
  if (is_map) {
    for (const auto& [key, part] : value.items())
      if (is_schema(part)) read(&part, {schema, fmt::format("{}/{}", keyword, escaped(key))}, depth + 1);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) read(&value[i], {schema, fmt::format("{}/{}", keyword, i)}, depth + 1);
  } else {
    read(&value, {schema, std::string(keyword)}, depth + 1);
  }
}

const ordered_json* SchemaDocument::child(const ordered_json* parent, const std::string& key) {
  if (parent->is_array()) {
    const bool is_index = !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == std::string::npos;
    const size_t at = is_index ? size_t(std::strtoul(key.c_str(), nullptr, 10)) : parent->size();
    return at < parent->size() ? &(*parent)[at] : nullptr;
  }
  if (!parent->is_object()) return nullptr;
  if (parent->size() < 16) {
    const auto found = parent->find(key);
    return found == parent->end() ? nullptr : &*found;
  }
  auto& index = children_[parent];
  if (index.empty())
    for (const auto& [name, value] : parent->items()) index.emplace(name, &value);
  const auto found = index.find(key);
  return found == index.end() ? nullptr : found->second;
}

void SchemaDocument::resolve(const ordered_json* reference, const ordered_json* from) {
  const std::string& text = reference->get_ref<const std::string&>();
  if (const auto known = known_.find(text); known != known_.end()) {
    targets_[reference] = known->second;
    return;
  }
  const ordered_json* at = nullptr;
  if (const auto anchor = anchors_.find(text); anchor != anchors_.end()) {
    at = anchor->second;
  } else {
    // A reference may begin with the name of this document or of a part of it.
    const size_t mark = std::min(text.find('#'), text.size());
    const std::string base = text.substr(0, mark), rest = text.substr(std::min(mark + 1, text.size()));
    const auto named = anchors_.find(base);
    at = base.empty() ? &root_ : named != anchors_.end() ? named->second : nullptr;
    const bool is_here = at != nullptr;
    if (at && !rest.empty() && rest[0] != '/') at = nullptr;
    for (size_t i = 0; at && i < rest.size();) {
      const size_t end = std::min(rest.find('/', i + 1), rest.size());
      at = child(at, unescaped(std::string_view(rest).substr(i + 1, end - i - 1)));
      i = end;
    }
    if (is_here && !at && !has_parts_with_ids_)
      throw user_error("JSON schema, {}: '{}' does not exist in this document", place(from), clipped(text));
    if (at && !is_schema(*at)) throw user_error("JSON schema, {}: '{}' is not a schema", place(from), clipped(text));
    if (at) read(at, {&root_, rest.empty() ? "" : rest.substr(1)}, 0);
  }
  known_.emplace(text, at);
  targets_[reference] = at;
}

const SchemaNode& SchemaDocument::node(const ordered_json* schema) const {
  static const SchemaNode none;
  const auto found = nodes_.find(schema);
  return found == nodes_.end() ? none : found->second;
}

const ordered_json* SchemaDocument::target(const ordered_json* reference) const {
  const auto found = targets_.find(reference);
  return found == targets_.end() ? nullptr : found->second;
}

std::string SchemaDocument::place(const ordered_json* schema) const {
  std::vector<const std::string*> steps;
  for (auto at = parents_.find(schema); at != parents_.end() && at->second.schema;
       at = parents_.find(at->second.schema))
    if (!at->second.step.empty()) steps.push_back(&at->second.step);
  std::string out;
  for (size_t i = steps.size(); i-- > 0 && out.size() <= kLongestPlace;) out += "/" + *steps[i];
  return out.empty() ? "#" : clipped(out);
}

const ordered_json* SchemaDocument::add(ordered_json schema, const ordered_json* origin) {
  added_.push_back(std::move(schema));
  read(&added_.back(), {origin, ""}, 0);
  return &added_.back();
}

}  // namespace lumen::model::infer
