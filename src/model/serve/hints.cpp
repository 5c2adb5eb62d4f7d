#include "model/serve/hints.h"

#include "base/error.h"
#include "model/infer/schema/schema.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostEndIds = 64, kMostBreakers = 64;

void take_effort(const ordered_json& value, const std::string& name, ReasoningWish* wish) {
  if (!value.is_string()) throw wrong_value(name, key_in_quotes(name) + " must be a string");
  const std::string effort = value;
  if (effort == "none" || effort == "minimal") {
    wish->is_on = false;
  } else if (effort == "low" || effort == "medium" || effort == "high") {
    wish->is_on = true;
    wish->effort = effort;
  } else if (effort == "xhigh" || effort == "max") {
    wish->is_on = true;
    wish->effort = "high";
  } else if (effort != "auto") {
    throw wrong_value(name, "an effort is 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max' or 'auto'");
  }
}

// {"effort", "summary", "enabled", ..}
void take_reasoning(const ordered_json& value, ReasoningWish* wish, FieldNotes* notes) {
  if (!value.is_object()) throw wrong_value("reasoning", "'reasoning' must be an object");
  Fields fields(value, notes);
  if (const ordered_json* effort = fields.find("effort")) take_effort(*effort, "reasoning", wish);
  if (fields.find("enabled")) wish->is_on = fields.boolean("enabled", true);
  fields.ignore({"summary", "generate_summary"});  // all reasoning is returned
  fields.settle_others();
}

// {"type": "enabled", "disabled" or "adaptive", "budget_tokens"}, or a boolean
void take_thinking(const ordered_json& value, ReasoningWish* wish, FieldNotes* notes) {
  if (value.is_boolean()) {
    wish->is_on = value.get<bool>();
    return;
  }
  if (!value.is_object()) throw wrong_value("thinking", "'thinking' must be an object with a 'type'");
  Fields fields(value, notes);
  const ordered_json* type = fields.find("type");
  if (!type || (*type != "enabled" && *type != "disabled" && *type != "adaptive"))
    throw wrong_value("thinking", "the 'type' of 'thinking' is 'enabled', 'disabled' or 'adaptive'");
  if (*type != "adaptive") wish->is_on = *type == "enabled";
  if (fields.find("budget_tokens") && notes)
    notes->add("'budget_tokens' has no effect here: only the limit of the whole output ends reasoning");
  fields.ignore({"display"});
  fields.settle_others();
}

// The grammar of one of these strings.
std::string choice_grammar(const ordered_json& choices, const std::string& name) {
  if (!choices.is_array() || choices.empty()) throw wrong_value(name, key_in_quotes(name) + " is a list of strings");
  std::string out = "root ::= ";
  for (const ordered_json& choice : choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      throw wrong_value(name, key_in_quotes(name) + " is a list of strings");
    if (!out.ends_with("= ")) out += " | ";
    out += infer::grammar_literal(choice);
  }
  return out + "\n";
}

std::string regex_grammar(const std::string& pattern, const std::string& name) {
  try {
    return infer::pattern_grammar(pattern);
  } catch (const Error& error) {
    throw wrong_value(name, error.what());
  }
}

ordered_json format_of_schema(const ordered_json& given, const std::string& name) {
  ordered_json schema = given;
  if (given.is_string()) schema = ordered_json::parse(given.get_ref<const std::string&>(), nullptr, false);
  if (schema.is_discarded()) throw wrong_value(name, key_in_quotes(name) + " is not a JSON schema");
  return {{"type", "json_schema"}, {"json_schema", {{"schema", std::move(schema)}}}};
}

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// Renames the rule `root` in GBNF; strings, classes and comments stay.
std::string with_root(const std::string& grammar, const std::string& name) {
  std::string out;
  char closes = 0;  // the end of the string, class or comment that `at` is in
  for (size_t at = 0; at < grammar.size();) {
    const char c = grammar[at];
    if (closes != 0) {
      if (c == '\\' && closes != '\n' && at + 1 < grammar.size()) out += grammar[at++];
      if (c == closes) closes = 0;
      out += grammar[at++];
      continue;
    }
    size_t end = at;
    while (end < grammar.size() && is_name_letter(grammar[end])) ++end;
    if (end > at) {
      const std::string word = grammar.substr(at, end - at);
      out += word == "root" ? name : word;
      at = end;
      continue;
    }
    closes = c == '"' ? '"' : c == '[' ? ']' : c == '#' ? '\n' : '\0';
    out += c;
    ++at;
  }
  return out;
}

}  // namespace

ReasoningWish read_reasoning(Fields& fields, FieldNotes* notes) {
  ReasoningWish out;
  if (const ordered_json* effort = fields.find("reasoning_effort")) take_effort(*effort, "reasoning_effort", &out);
  if (const ordered_json* reasoning = fields.find("reasoning")) take_reasoning(*reasoning, &out, notes);
  if (const ordered_json* thinking = fields.find("thinking")) take_thinking(*thinking, &out, notes);
  if (fields.find("enable_thinking")) out.is_on = fields.boolean("enable_thinking", true);
  return out;
}

void grant(const ReasoningWish& wish, const ReasoningForm& form, ordered_json* more, FieldNotes* notes) {
  if (wish.is_on && !form.variable.empty() && !more->contains(form.variable)) (*more)[form.variable] = *wish.is_on;
  if (form.reads_effort && !more->contains("reasoning_effort")) {
    if (!wish.effort.empty()) (*more)["reasoning_effort"] = wish.effort;
    if (wish.is_on == false && form.variable.empty()) (*more)["reasoning_effort"] = "low";
  }
  if (wish.is_on == true && !form.marks && !form.reads_effort && form.variable.empty())
    notes->add("reasoning is not switched on: this model's chat template has no reasoning");
  if (wish.is_on == false && form.marks && form.variable.empty())
    notes->add("reasoning is not switched off: this model's chat template has no variable for it");
}

std::optional<ordered_json> without_guides(const ordered_json& body) {
  ordered_json found = ordered_json::object();  // "json", "choice", ..
  const auto take = [&](const ordered_json& from, const std::string& key, const std::string& kind) {
    const auto at = from.find(key);
    if (at == from.end() || at->is_null()) return;
    if (!found.empty()) throw wrong_value(key, key_in_quotes(key) + " and another grammar exclude each other");
    found[kind] = {{"name", key}, {"value", *at}};
  };
  for (const char* kind : {"json", "choice", "grammar", "regex"}) take(body, std::string("guided_") + kind, kind);
  take(body, "json_schema", "json");
  const auto outputs = body.find("structured_outputs");
  if (outputs != body.end() && outputs->is_object())
    for (const char* kind : {"json", "choice", "grammar", "regex"}) take(*outputs, kind, kind);
  if (found.empty()) return std::nullopt;
  const std::string kind = found.begin().key(), name = found.begin().value()["name"];
  const ordered_json& value = found.begin().value()["value"];
  for (const char* own : {"response_format", "grammar"})
    if (const auto at = body.find(own); at != body.end() && !at->is_null())
      throw wrong_value(name, key_in_quotes(name) + " and " + key_in_quotes(own) + " exclude each other");
  if (kind == "regex" && !value.is_string()) throw wrong_value(name, key_in_quotes(name) + " must be a string");
  ordered_json out = body;
  for (const char* given :
       {"guided_json", "guided_choice", "guided_grammar", "guided_regex", "json_schema", "structured_outputs"})
    out.erase(given);
  if (kind == "json") {
    out["response_format"] = format_of_schema(value, name);
  } else {
    out["grammar"] = kind == "choice"  ? ordered_json(choice_grammar(value, name))
                     : kind == "regex" ? ordered_json(regex_grammar(value, name))
                                       : value;
  }
  return out;
}

void read_dry(Fields& fields, const ServedModel& model, infer::SamplerOptions* s) {
  s->dry_multiplier = fields.real("dry_multiplier", 0, 0, 1000);
  s->dry_base = fields.real("dry_base", s->dry_base, 1, 1000);
  s->dry_allowed_length = fields.whole("dry_allowed_length", s->dry_allowed_length, 0, INT32_MAX);
  s->dry_last = fields.whole("dry_penalty_last_n", s->dry_last, -1, INT32_MAX);
  const std::string name = "dry_sequence_breakers";
  std::vector<std::string> breakers = {"\n", ":", "\"", "*"};
  if (const ordered_json* list = fields.find(name)) {
    if (!list->is_array() || std::ssize(*list) > kMostBreakers)
      throw wrong_value(name, fmt::format("'{}' must be a list of up to {} strings", name, kMostBreakers));
    breakers.clear();
    for (const ordered_json& one : *list) {
      if (!one.is_string() || one.get_ref<const std::string&>().empty())
        throw wrong_value(name, fmt::format("'{}' must be a list of strings that are not empty", name));
      breakers.push_back(one);
    }
  }
  if (s->dry_multiplier > 0) s->dry_breakers = *model.tokens_with(breakers);
}

std::vector<text::TokenId> read_end_ids(Fields& fields, const ServedModel& model) {
  const std::string name = "stop_token_ids";
  const ordered_json* list = fields.find(name);
  if (!list) return {};
  if (!list->is_array() || std::ssize(*list) > kMostEndIds)
    throw wrong_value(name, fmt::format("'{}' must be a list of up to {} token ids", name, kMostEndIds));
  std::vector<text::TokenId> out;
  for (const ordered_json& id : *list)
    out.push_back(text::TokenId(Fields::whole_of(id, name, 0, model.vocabulary - 1)));
  return out;
}

std::optional<uint32_t> read_seed(Fields& fields) {
  const ordered_json* seed = fields.find("seed");
  if (!seed) return std::nullopt;
  if (!seed->is_number_integer()) throw wrong_value("seed", "'seed' must be a whole number of 64 bits");
  if (!seed->is_number_unsigned() && seed->get<int64_t>() == -1) return std::nullopt;
  const uint64_t bits = seed->is_number_unsigned() ? seed->get<uint64_t>() : uint64_t(seed->get<int64_t>());
  constexpr uint32_t kOdd = 0x9e3779b1;  // so that seeds with equal lower halves differ
  return uint32_t(bits) ^ uint32_t(bits >> 32) * kOdd;
}

templates::PromptEnd read_prompt_end(Fields& fields) {
  const bool continues = fields.boolean("continue_final_message", false);
  const bool opens = fields.boolean("add_generation_prompt", !continues);
  if (continues && opens)
    throw wrong_value("continue_final_message", "'continue_final_message' requires 'add_generation_prompt': false");
  return continues ? templates::PromptEnd::continued
         : opens   ? templates::PromptEnd::opening
                   : templates::PromptEnd::closed;
}

std::string grammar_after_reasoning(const std::string& grammar, const ReasoningMarks& marks, bool is_open) {
  const auto unused = [&](const std::string& begin) {
    std::string name = begin;
    for (int64_t i = 0; grammar.find(name) != std::string::npos; ++i) name = fmt::format("{}{}x", begin, i);
    return name;
  };
  const std::string root = unused("answer"), text = unused("reasoning"), blank = unused("blank");
  const std::string mark = marks.answer.empty() ? "" : infer::grammar_literal(marks.answer) + " ";
  std::string out = "root ::= " + text + "0";
  if (!is_open) out = fmt::format("root ::= {}{} | {} {}0", mark, root, infer::grammar_literal(marks.open), text);
  out += fmt::format("\n{} ::= [\\n]? [\\n]?\n", blank);
  out += rules_of_text_before(text, marks.close, (mark.empty() ? blank + " " : mark) + root, false);
  return out + with_root(grammar, root);
}

}  // namespace lumen::model::serve
