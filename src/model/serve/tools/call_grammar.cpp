#include "model/serve/tools/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostCalls = 64;  // in one answer

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = std::max<size_t>(1, text::utf8_char(text, at, &c));
    out.push_back(text.substr(at, n));
    at += n;
  }
  return out;
}

// Escapes a character for a character class.
std::string in_class(const std::string& character) {
  if (character.size() > 1) return character;
  const char c = character[0];
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return character;
  return fmt::format("\\x{:02x}", uint32_t(uint8_t(c)));
}

bool is_text_schema(const ordered_json& schema) {
  return schema.is_object() && schema.contains("type") && schema["type"] == "string";
}

// Keywords that restrict a string further; strings between markers are any text.
std::vector<std::string> limits_of_text(const ordered_json& schema) {
  std::vector<std::string> out;
  for (const char* keyword :
       {"pattern", "format", "minLength", "maxLength", "const", "not", "anyOf", "oneOf", "allOf", "$ref", "if"})
    if (schema.contains(keyword)) out.emplace_back(keyword);
  return out;
}

class PlanGrammar {
 public:
  PlanGrammar(const CallPlan& plan, const infer::SchemaOptions& options)
      : plan_(plan), form_(plan.form), options_(options) {}
  const std::map<std::string, std::vector<std::string>>& relaxed() const { return relaxed_; }

  std::string run(const std::optional<infer::SchemaRules>& otherwise) {
    const std::string body = one_call();
    std::string all = body;
    if (form_.has_many && !plan_.is_one)
      all += fmt::format(" ({} {}){{0,{}}}", infer::grammar_literal(form_.next), body, kMostCalls - 1);
    if (!form_.end.empty()) all += " " + infer::grammar_literal(form_.end) + "?";
    add("calls", all);
    std::string root;
    const std::string open = infer::grammar_literal(form_.open) + " calls";
    if (plan_.is_needed) {
      root = open;
    } else if (otherwise) {
      root = open + " | space " + otherwise->value + " space";
      text_ += otherwise->rules;
    } else {
      root = "free0";
      text_ += rules_of_text_before("free", form_.open, "calls", true);
    }
    return "root ::= " + root + "\n" + text_ + infer::shared_schema_rules();
  }

 private:
  void add(const std::string& name, const std::string& rule) { text_ += name + " ::= " + rule + "\n"; }

  std::string one_call() {
    std::string all;
    for (size_t i = 0; i < plan_.tools.size(); ++i) {
      const OfferedTool& tool = plan_.tools[i];
      const std::string name = fmt::format("t{}", i);
      try {
        add(name, infer::grammar_literal(tool.name + form_.middle) + " " +
                      (form_.pairs ? pairs_of(tool, name) : object_of(tool, name)));
      } catch (const Error& error) {
        throw user_error("the function '{}': {}", tool.name, error.what());
      }
      all += (all.empty() ? "" : " | ") + name;
    }
    add("named", all);
    const std::string id = form_.has_id ? "[a-z0-9]{9} " + infer::grammar_literal(form_.after_id) + " " : "";
    add("call", id + "named " + infer::grammar_literal(form_.close));
    return "call";
  }

  std::string object_of(const OfferedTool& tool, const std::string& name) {
    const infer::SchemaRules made = schema_rules(tool.parameters, name, options_);
    text_ += made.rules;
    if (!made.relaxed.empty()) relaxed_[tool.name] = made.relaxed;
    return made.value;
  }

  // Members have the schema's order, each with its own marker; a string ends at the first marker after it.
  std::string pairs_of(const OfferedTool& tool, const std::string& name) {
    const ordered_json none = ordered_json::object();
    const ordered_json& schema = tool.parameters;
    const ordered_json& members = schema.contains("properties") ? schema["properties"] : none;
    if (!members.is_object()) throw user_error("JSON schema, #: properties must be an object");
    std::string out;
    int64_t count = 0;
    for (const auto& [key, value] : members.items()) {
      const std::string member = fmt::format("{}m{}", name, count++);
      add(member, infer::grammar_literal(form_.pairs->before_key + key + form_.pairs->after_key) + " " +
                      value_of(tool.name, key, value, schema, member));
      const bool is_needed = schema.contains("required") && schema["required"].is_array() &&
                             std::find(schema["required"].begin(), schema["required"].end(), ordered_json(key)) !=
                                 schema["required"].end();
      out += (out.empty() ? "" : " ") + member + (is_needed ? "" : "?");
    }
    return out.empty() ? "\"\"" : out;
  }

  std::string value_of(const std::string& tool, const std::string& key, const ordered_json& value,
                       const ordered_json& schema, const std::string& member) {
    const auto relax = [&](const std::string& place) {
      relaxed_[tool].push_back(fmt::format("/properties/{}{}{}", key, place.starts_with('/') ? "" : "/", place));
    };
    const std::string after = infer::grammar_literal(form_.pairs->after_value);
    if (is_text_schema(value) && value.contains("enum") && value["enum"].is_array() && !value["enum"].empty()) {
      std::string all;
      for (const auto& one : value["enum"])
        all +=
            (all.empty() ? "" : " | ") + infer::grammar_literal(one.is_string() ? one.get<std::string>() : one.dump());
      return "(" + all + ") " + after;
    }
    if (is_text_schema(value)) {
      for (const std::string& limit : limits_of_text(value)) relax(limit);
      text_ += rules_of_text_before(member + "s", form_.pairs->after_value, "", false);
      return member + "s0";
    }
    // References may point to any part of the whole schema.
    ordered_json alone = value;
    for (const char* shared : {"$defs", "definitions"})
      if (alone.is_object() && schema.contains(shared)) alone[shared] = schema[shared];
    const infer::SchemaRules made = schema_rules(alone, member, options_);
    text_ += made.rules;
    for (const std::string& place : made.relaxed) relax(place);
    return made.value + " " + after;
  }

  const CallPlan& plan_;
  const CallForm& form_;
  const infer::SchemaOptions& options_;
  std::map<std::string, std::vector<std::string>> relaxed_;
  std::string text_;
};

}  // namespace

// The states of a search for `mark` (Knuth, Morris, Pratt), one rule for each matched length.
std::string rules_of_text_before(const std::string& prefix, const std::string& mark, const std::string& then,
                                 bool may_end) {
  const std::vector<std::string> letters = characters_of(mark);
  const size_t size = letters.size();
  std::vector<std::map<std::string, size_t>> next(size);
  size_t fallback = 0;
  for (size_t i = 0; i < size; ++i) {
    if (i > 0) next[i] = next[fallback];
    const size_t behind = i > 0 && next[fallback].contains(letters[i]) ? next[fallback][letters[i]] : 0;
    next[i][letters[i]] = i + 1;
    if (i > 0) fallback = behind;
  }
  std::string out;
  for (size_t i = 0; i < size; ++i) {
    std::string others, rule = may_end ? "\"\" | " : "";
    for (const auto& [letter, to] : next[i]) {
      others += in_class(letter);
      if (to == size)
        rule += infer::grammar_literal(letter) + (then.empty() ? "" : " " + then) + " | ";
      else
        rule += fmt::format("{} {}{} | ", infer::grammar_literal(letter), prefix, to);
    }
    out += fmt::format("{}{} ::= {}[^{}] {}0\n", prefix, i, rule, others, prefix);
  }
  return out;
}

std::string call_grammar(const CallPlan& plan, const std::optional<infer::SchemaRules>& otherwise,
                         const infer::SchemaOptions& options,
                         std::map<std::string, std::vector<std::string>>* relaxed) {
  PlanGrammar grammar(plan, options);
  std::string out = grammar.run(otherwise);
  if (relaxed) *relaxed = grammar.relaxed();
  return out;
}

}  // namespace lumen::model::serve
