#include "model/infer/sample/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepest = 64;
constexpr size_t kMostRules = 20000;

// White space is at most one space or one newline with an indent, so that a model cannot generate it forever.
constexpr std::pair<const char*, const char*> kBase[] = {
    {"space", R"(| " " | "\n" [ \t]{0,20})"},
    {"hex", R"([0-9a-fA-F])"},
    {"character", R"([^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" hex{4}))"},
    {"string", R"("\"" character* "\"")"},
    {"whole", R"("-"? ("0" | [1-9] [0-9]{0,15}))"},
    {"integer", R"(whole)"},
    {"number", R"(whole ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
    {"value", R"(object | array | string | number | boolean | null)"},
    {"object", R"("{" space (string ":" space value ("," space string ":" space value)* space)? "}")"},
    {"array", R"("[" space (value ("," space value)* space)? "]")"},
    {"date", R"([0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [1-2] [0-9] | "3" [0-1]))"},
    {"time",
     R"(([0-1] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{3})? ("Z" | [-+] ([0-1] [0-9] | "2" [0-3]) ":" [0-5] [0-9]))"},
    {"uuid", R"(hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12})"},
};

// Quotes a string as a grammar literal.
std::string literal(const std::string& text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = utf8_char(text, at, &c);
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else {
      out.append(text, at, n);
    }
    at += std::max<size_t>(n, 1);
  }
  return out + "\"";
}

class Converter {
 public:
  Converter(const ordered_json& root, std::string prefix) : root_(root), prefix_(std::move(prefix)) {}

  SchemaRules run() {
    SchemaRules out;
    out.value = visit(root_, "#", 0);
    for (const std::string& rule : rules_) out.rules += rule + "\n";
    return out;
  }

 private:
  Error wrong(const std::string& place, const std::string& what) const {
    return user_error("JSON schema, {}: {}", place, what);
  }

  std::string rule(const std::string& text) {
    if (rules_.size() >= kMostRules) throw user_error("JSON schema: too large");
    const std::string name = fmt::format("{}r{}", prefix_, rules_.size());
    rules_.push_back(name + " ::= " + text);
    return name;
  }

  int64_t count(const ordered_json& s, const char* key, int64_t fallback, const std::string& place) const {
    if (!s.contains(key)) return fallback;
    if (!s[key].is_number_integer() || s[key].get<int64_t>() < 0 || s[key].get<int64_t>() > 4096)
      throw wrong(place, fmt::format("{} must be a whole number up to 4096", key));
    return s[key].get<int64_t>();
  }

  std::string visit(const ordered_json& s, const std::string& place, int depth) {
    if (depth > kDeepest) throw wrong(place, "nested too deeply");
    if (s.is_boolean()) {
      if (!s.get<bool>()) throw wrong(place, "'false' allows nothing");
      return "value";
    }
    if (!s.is_object()) throw wrong(place, "a schema is an object, true or false");
    check_keys(s, place);
    if (s.contains("$ref")) return reference(s["$ref"], place, depth);
    if (s.contains("const")) return literal(s["const"].dump());
    if (s.contains("enum")) return enumeration(s["enum"], place);
    for (const char* key : {"anyOf", "oneOf"}) {
      if (s.contains(key)) return alternatives(s[key], place + "/" + key, depth);
    }
    if (s.contains("allOf")) {
      if (!s["allOf"].is_array() || s["allOf"].size() != 1)
        throw wrong(place, "allOf with several entries is not supported");
      return visit(s["allOf"][0], place + "/allOf/0", depth + 1);
    }
    if (s.contains("type") && s["type"].is_array()) {
      std::string out;
      for (const auto& type : s["type"]) {
        ordered_json one = s;
        one["type"] = type;
        out += (out.empty() ? "" : " | ") + visit(one, place, depth + 1);
      }
      if (out.empty()) throw wrong(place, "no type is allowed");
      return rule(out);
    }
    std::string type;
    if (s.contains("type")) {
      if (!s["type"].is_string()) throw wrong(place, "type must be a string");
      type = s["type"].get<std::string>();
    } else if (s.contains("properties") || s.contains("required") || s.contains("additionalProperties")) {
      type = "object";
    } else if (s.contains("items") || s.contains("prefixItems") || s.contains("minItems") || s.contains("maxItems")) {
      type = "array";
    } else if (s.contains("minLength") || s.contains("maxLength") || s.contains("format")) {
      type = "string";
    }
    if (type.empty()) return "value";
    if (type == "object") return object(s, place, depth);
    if (type == "array") return array(s, place, depth);
    if (type == "string") return string(s, place);
    if (type == "integer" && (zero(s, "minimum") || zero(s, "exclusiveMinimum")))
      return rule(s.contains("minimum") ? "\"0\" | [1-9] [0-9]{0,15}" : "[1-9] [0-9]{0,15}");
    if (s.contains("minimum") || s.contains("exclusiveMinimum"))
      throw wrong(place, "of minimum, only 0 for integers is supported");
    if (type == "integer" || type == "number" || type == "boolean" || type == "null") return type;
    throw wrong(place, fmt::format("unknown type '{}'", type));
  }

  static bool zero(const ordered_json& s, const char* key) { return s.contains(key) && s[key] == 0; }

  void check_keys(const ordered_json& s, const std::string& place) const {
    static const std::set<std::string> known = {
        "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
        "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "minLength", "maxLength", "format", "minimum",
        "exclusiveMinimum",
        // Annotations without effect on validation.
        "title", "description", "default", "examples", "example", "$schema", "$id", "$comment", "$defs", "definitions",
        "deprecated", "readOnly", "writeOnly", "strict", "name"};
    for (const auto& [key, value] : s.items()) {
      if (!known.contains(key)) throw wrong(place, fmt::format("'{}' is not supported", key));
    }
  }

  std::string reference(const ordered_json& ref, const std::string& place, int depth) {
    if (!ref.is_string()) throw wrong(place, "$ref must be a string");
    const std::string target = ref.get<std::string>();
    if (const auto found = references_.find(target); found != references_.end()) return found->second;
    if (!target.starts_with('#')) throw wrong(place, "only references within this document are supported (#/...)");
    const ordered_json* at = &root_;
    for (size_t i = 1; i < target.size();) {
      const size_t end = std::min(target.find('/', i + 1), target.size());
      std::string key = target.substr(i + 1, end - i - 1);
      for (size_t p = 0; (p = key.find('~', p)) != std::string::npos && p + 1 < key.size(); ++p)
        key.replace(p, 2, key[p + 1] == '1' ? "/" : "~");
      if (at->is_object() && at->contains(key)) {
        at = &(*at)[key];
      } else {
        throw wrong(place, fmt::format("'{}' does not exist in this document", target));
      }
      i = end;
    }
    // The name is registered first, because a schema may refer to itself.
    const std::string name = fmt::format("{}ref{}", prefix_, references_.size());
    references_[target] = name;
    rules_.push_back(name + " ::= " + visit(*at, target, depth + 1));
    return name;
  }

  std::string enumeration(const ordered_json& values, const std::string& place) {
    if (!values.is_array() || values.empty()) throw wrong(place, "enum must be a list of values");
    std::string out;
    for (const auto& v : values) out += (out.empty() ? "" : " | ") + literal(v.dump());
    return rule(out);
  }

  std::string alternatives(const ordered_json& list, const std::string& place, int depth) {
    if (!list.is_array() || list.empty()) throw wrong(place, "a list of schemas is needed");
    std::string out;
    for (size_t i = 0; i < list.size(); ++i)
      out += (out.empty() ? "" : " | ") + visit(list[i], fmt::format("{}/{}", place, i), depth + 1);
    return rule(out);
  }

  std::string string(const ordered_json& s, const std::string& place) {
    if (s.contains("format")) {
      const std::string format = s["format"].is_string() ? s["format"].get<std::string>() : "";
      if (format == "date" || format == "time" || format == "uuid") return rule("\"\\\"\" " + format + " \"\\\"\"");
      if (format == "date-time") return rule("\"\\\"\" date \"T\" time \"\\\"\"");
      throw wrong(place, fmt::format("the format '{}' is not supported", format));
    }
    if (!s.contains("minLength") && !s.contains("maxLength")) return "string";
    const int64_t least = count(s, "minLength", 0, place), most = count(s, "maxLength", -1, place);
    if (most >= 0 && most < least) throw wrong(place, "maxLength is below minLength");
    return rule(fmt::format("\"\\\"\" character{{{},{}}} \"\\\"\"", least, most < 0 ? "" : std::to_string(most)));
  }

  std::string array(const ordered_json& s, const std::string& place, int depth) {
    std::vector<std::string> first;
    if (s.contains("prefixItems")) {
      const auto& list = s["prefixItems"];
      if (!list.is_array()) throw wrong(place, "prefixItems must be a list");
      for (size_t i = 0; i < list.size(); ++i)
        first.push_back(visit(list[i], fmt::format("{}/prefixItems/{}", place, i), depth + 1));
    }
    const bool more = first.empty() ? true : s.contains("items") && s["items"] != false;
    const std::string item =
        s.contains("items") && s["items"] != false ? visit(s["items"], place + "/items", depth + 1) : "value";
    const int64_t least = count(s, "minItems", first.size(), place), most = count(s, "maxItems", -1, place);
    if (most >= 0 && most < least) throw wrong(place, "maxItems is below minItems");
    const auto listed = std::ssize(first);
    if (!first.empty() && (least < listed || (most >= 0 && most < listed)))
      throw wrong(place, "prefixItems must all be required: minItems and maxItems must be at least their number");
    std::string inside;
    for (const std::string& f : first) inside += (inside.empty() ? "" : " \",\" space ") + f;
    if (!first.empty()) {
      if (more)
        inside += fmt::format(" (\",\" space {}){{{},{}}}", item, least - listed,
                              most < 0 ? "" : std::to_string(most - listed));
      return rule("\"[\" space " + inside + " space \"]\"");
    }
    if (most == 0) return rule("\"[\" space \"]\"");
    inside = fmt::format("{} (\",\" space {}){{{},{}}} space", item, item, std::max<int64_t>(0, least - 1),
                         most < 0 ? "" : std::to_string(most - 1));
    return rule(least == 0 ? "\"[\" space (" + inside + ")? \"]\"" : "\"[\" space " + inside + " \"]\"");
  }

  std::string object(const ordered_json& s, const std::string& place, int depth) {
    const ordered_json none = ordered_json::object();
    const ordered_json& properties = s.contains("properties") ? s["properties"] : none;
    if (!properties.is_object()) throw wrong(place, "properties must be an object");
    std::set<std::string> required;
    if (s.contains("required")) {
      if (!s["required"].is_array()) throw wrong(place, "required must be a list of names");
      for (const auto& name : s["required"]) {
        if (!name.is_string() || !properties.contains(name.get<std::string>()))
          throw wrong(place, fmt::format("required names {}, which is not in properties", name.dump()));
        required.insert(name.get<std::string>());
      }
    }
    std::string others;  // rule for members that are not listed; empty: not allowed
    if (s.contains("additionalProperties") ? s["additionalProperties"] != false : properties.empty()) {
      const bool schema = s.contains("additionalProperties") && s["additionalProperties"].is_object();
      others =
          "string \":\" space " + (schema ? visit(s["additionalProperties"], place + "/additionalProperties", depth + 1)
                                          : std::string("value"));
    }
    std::vector<std::pair<std::string, bool>> members;  // rule of a member, and whether it is required
    for (const auto& [name, schema] : properties.items()) {
      const std::string key = literal(ordered_json(name).dump());
      members.emplace_back(key + " \":\" space " + visit(schema, place + "/properties/" + name, depth + 1),
                           required.contains(name));
    }
    // From the last member to the first: the rest of the object if no member has been written yet, and if some have.
    std::string fresh = others.empty() ? "\"\"" : fmt::format("({} (\",\" space {})*)?", others, others);
    std::string going = others.empty() ? "\"\"" : fmt::format("(\",\" space {})*", others);
    for (size_t i = members.size(); i-- > 0;) {
      const auto& [text, needed] = members[i];
      const std::string after = rule(going);
      const std::string member = rule(text);
      const std::string skip = needed ? "" : " | " + rule(fresh);
      fresh = member + " " + after + skip;
      going = "\",\" space " + member + " " + after + (needed ? "" : " | " + after);
    }
    return rule("\"{\" space (" + fresh + ") space \"}\"");
  }

  const ordered_json& root_;
  const std::string prefix_;
  std::vector<std::string> rules_;
  std::map<std::string, std::string> references_;
};

}  // namespace

std::string grammar_literal(const std::string& text) {
  return literal(text);
}

SchemaRules schema_rules(const ordered_json& schema, const std::string& prefix) {
  return Converter(schema, prefix).run();
}

std::string shared_schema_rules() {
  std::string out;
  for (const auto& [name, text] : kBase) out += fmt::format("{} ::= {}\n", name, text);
  return out;
}

std::string schema_grammar(const ordered_json& schema) {
  const SchemaRules made = schema_rules(schema, "");
  return "root ::= space " + made.value + " space\n" + shared_schema_rules() + made.rules;
}

}  // namespace lumen::model
