#include "model/infer/schema/schema.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"
#include "base/structured/json.h"
#include "model/infer/schema/compiler.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestText = 512;
constexpr size_t kPatternSteps = size_t{1} << 25;

// White space is at most one space or one newline with an indent, so that a model cannot generate it forever. Exponents
// stay within what a double holds, and \u escapes are whole characters.
constexpr std::pair<const char*, const char*> kBase[] = {
    {"space", R"(| " " | "\n" [ \t]{0,20})"},
    {"hex", R"([0-9a-fA-F])"},
    {"unit", R"([0-9a-cA-CefEF] hex{3} | [dD] [0-7] hex{2})"},
    {"pair", R"([dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2})"},
    {"character", R"([^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" (unit | pair)))"},
    {"string", R"("\"" character* "\"")"},
    {"whole", R"("-"? ("0" | [1-9] [0-9]{0,15}))"},
    {"integer", R"(whole)"},
    {"number", R"(whole ("." [0-9]{1,16})? ([eE] [-+]? ([0-9]{1,2} | [12] [0-8] [0-9]))?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
    {"value", R"(object | array | string | number | boolean | null)"},
    {"object", R"("{" space (string ":" space value ("," space string ":" space value)* space)? "}")"},
    {"array", R"("[" space (value ("," space value)* space)? "]")"},
};

}  // namespace

SchemaRules schema_rules(const ordered_json& schema, const std::string& prefix, const SchemaOptions& options) {
  SchemaDocument document(schema);
  SchemaCompiler compiler(document, prefix, options.is_exact, options.is_stopped);
  const int32_t root = compiler.run(&document.root());
  SchemaRules out{compiler.rules().name(root), compiler.rules().print(root), {}};
  if (out.rules.empty()) throw user_error("JSON schema, #: no value fits it");
  out.relaxed.assign(compiler.relaxed().begin(), compiler.relaxed().end());
  return out;
}

std::string shared_schema_rules() {
  std::string out;
  for (const auto& [name, text] : kBase) out += fmt::format("{} ::= {}\n", name, text);
  return out;
}

std::string schema_grammar(const ordered_json& schema, const SchemaOptions& options,
                           std::vector<std::string>* relaxed) {
  SchemaRules made = schema_rules(schema, "", options);
  if (relaxed) *relaxed = std::move(made.relaxed);
  return "root ::= space " + made.value + " space\n" + shared_schema_rules() + made.rules;
}

std::string pattern_grammar(const std::string& pattern) {
  size_t budget = kPatternSteps;
  const auto parsed = EcmaPattern::parse("^(?:" + pattern + ")$");
  if (!parsed) throw user_error("'{}' is no regular expression, or has parts that are not regular", printable(pattern));
  const auto automaton = Automaton::of(*parsed, &budget);
  if (!automaton) throw user_error("the regular expression '{}' has too many states", printable(pattern));
  Rules rules("");
  const int32_t root = rules.add(*automaton, false);
  if (automaton->empty()) throw user_error("no text matches the regular expression '{}'", printable(pattern));
  return "root ::= " + rules.name(root) + "\n" + rules.print(root);
}

struct SchemaCheck::Parts {
  explicit Parts(const ordered_json& schema) : document(schema), validator(document) {}
  SchemaDocument document;
  SchemaValidator validator;
};

SchemaCheck::SchemaCheck(const ordered_json& schema) : parts_(std::make_unique<Parts>(schema)) {}
SchemaCheck::~SchemaCheck() = default;
SchemaCheck::SchemaCheck(SchemaCheck&&) noexcept = default;

std::optional<bool> SchemaCheck::check(std::string_view json) {
  ordered_json value;
  try {
    value = parse_ordered_json(json, "the output", kDeepestText);
  } catch (const Error&) {
    return false;
  }
  return parts_->validator.check(value, &parts_->document.root());
}

}  // namespace lumen::model::infer
