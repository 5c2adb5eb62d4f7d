// The state of a running template: names, limits, and evaluation of expressions. Internal to the files that execute
// templates.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <unordered_map>

#include "model/templates/chat_template.h"
#include "model/templates/template_tree.h"

namespace lumen::model::templates {

struct TemplateScope {
  std::unordered_map<std::string, Value> names;
  std::shared_ptr<TemplateScope> parent;
};
using TemplateScopeRef = std::shared_ptr<TemplateScope>;

class TemplateRun {
 public:
  TemplateRun(const TemplateTree& tree, std::function<std::tm()> now, AnswerMarks marks)
      : tree_(tree), now_(std::move(now)), marks_(std::move(marks)) {}
  TemplateRun(const TemplateRun&) = delete;
  TemplateRun& operator=(const TemplateRun&) = delete;
  ~TemplateRun() {
    for (const auto& space : namespaces_) space->items.clear();
  }
  std::string run(const nlohmann::ordered_json& context, const TemplateLimits& limits);

  // Adds a cost: one for every step, and for every byte or element created. TemplateFault if the limit is exceeded.
  void charge(uint64_t cost);
  Value made(std::string text);  // charges for the string
  Value made(ValueList items, bool tuple = false);

  Value call(const Value& function, TemplateCall& call);
  // template_filters.cpp
  Value filter(const std::string& name, const Value& value, TemplateCall& call);
  bool test(const std::string& name, const Value& value, TemplateCall& call);
  // template_members.cpp: a method of a string, list or table, if it exists.
  std::optional<Value> method(const Value& object, const std::string& name);
  Value member(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  Value add(const Value& a, const Value& b);
  Value slice(const Value& object, const Value& from, const Value& to, const Value& step);
  bool contains(const Value& container, const Value& value);
  ValueList iterate(const Value& value);
  std::string format_percent(const std::string& text, const Value& values);

 private:
  enum class Flow { on, leave, next };

  Flow body(const std::vector<TemplateNode>& nodes, const TemplateScopeRef& scope, std::string& out);
  Flow node(const TemplateNode& n, const TemplateScopeRef& scope, std::string& out);
  Flow loop(const TemplateNode& n, const Value& over, int64_t depth, const TemplateScopeRef& scope, std::string& out);
  Value macro(const std::string& name, const TemplateNode& n, const TemplateScopeRef& scope);
  void assign(const TemplateExpression& target, const Value& value, const TemplateScopeRef& scope);
  Value evaluate(const TemplateExpression& e, const TemplateScopeRef& scope);
  Value arithmetic(const std::string& sign, const Value& a, const Value& b);
  bool compare(const std::string& sign, const Value& a, const Value& b);
  TemplateCall arguments(const TemplateExpression& e, const TemplateScopeRef& scope);
  Value name(const std::string& text, const TemplateScopeRef& scope);
  std::string capture(const std::vector<TemplateNode>& nodes, const TemplateScopeRef& scope);
  void print(const std::string& text, std::string& out);
  void define_globals(TemplateScope& scope);
  [[noreturn]] void wrong(size_t at, const TemplateFault& fault) const;

  const TemplateTree& tree_;
  std::function<std::tm()> now_;
  AnswerMarks marks_;
  uint64_t spent_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<TableValue>> namespaces_;  // cleared at the end, because they may contain themselves

  friend struct TemplateDepth;
};

// str.format: {} {0} {name}, without format specifications.
std::string format_braces(const std::string& text, const TemplateCall& c);
// markupsafe's striptags: comments and tags removed, white space collapsed, entities replaced (numbers, and the names
// that text needs).
std::string without_tags(std::string text);
// jinja2's indent: `by` before each line but the first (with `first`: before that, too) and blank ones (`blank`).
std::string indented(const std::string& text, const std::string& by, bool first, bool blank);
std::string url_encoded(const std::string& text);
// Throws the fault for the use of an undefined value.
[[noreturn]] void refuse_undefined(const Value& value);
[[noreturn]] void refuse(std::string message);

}  // namespace lumen::model::templates
