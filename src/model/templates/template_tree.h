// The syntax tree of a template: output and statements. Created by parse_template(), executed by chat_template.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/place.h"
#include "model/templates/template_value.h"

namespace lumen::model::templates {

struct TemplateExpression {
  enum class Kind {
    constant,    // value
    name,        // text
    member,      // parts[0].text
    item,        // parts[0][parts[1]]
    slice,       // parts[0][parts[1]:parts[2]:parts[3]], each of them may be null
    call,        // parts[0](arguments)
    filter,      // parts[0] | text(arguments)
    test,        // parts[0] is text(arguments)
    list,        // [parts]
    tuple,       // (parts)
    table,       // {parts[0]: parts[1], ...}
    negative,    // -parts[0]
    positive,    // +parts[0]
    inverse,     // not parts[0]
    both,        // parts[0] and parts[1]
    either,      // parts[0] or parts[1]
    choice,      // parts[0] if parts[1] else parts[2], which may be null
    arithmetic,  // text: + - * / // % **
    joined,      // parts joined by ~
    comparison,  // parts[0] operators[0] parts[1] operators[1] ...
  } kind = Kind::constant;
  size_t at = 0;  // place in the text
  std::string text = {};
  Value value = {};
  std::vector<std::unique_ptr<TemplateExpression>> parts = {};
  std::vector<std::string> operators = {};
  // Arguments of calls, filters and tests: positional ones, then named ones; `spread` marks *values and **table.
  struct Argument {
    std::string name;
    int spread = 0;  // 1: *, 2: **
    std::unique_ptr<TemplateExpression> value;
  };
  std::vector<Argument> arguments = {};
};

using TemplateExpressionRef = std::unique_ptr<TemplateExpression>;

struct TemplateNode {
  enum class Kind {
    text,     // text
    print,    // expression
    loop,     // for target in expression if condition: body, else other; recursive
    branch,   // if expression: body, else other
    set,      // target = expression
    capture,  // target = output of body, through the filters in expression (on the name ""), or null
    macro,    // text(parameters): body
    call,     // expression is a call; body is its caller
    filter,   // output of body through expression (on the name "")
    with,     // body with the names
    leave,    // break
    next,     // continue
    answer,   // body is the model's answer ({% generation %})
  } kind = Kind::text;
  size_t at = 0;
  std::string text = {};
  TemplateExpressionRef expression = {}, condition = {}, target = {};
  bool recursive = false;
  struct Parameter {
    std::string name;
    TemplateExpressionRef fallback;
  };
  std::vector<Parameter> parameters = {};
  std::vector<std::pair<TemplateExpressionRef, TemplateExpressionRef>> names = {};  // targets and values
  std::vector<TemplateNode> body = {}, other = {};
};

struct TemplateTree {
  SourceRef source;  // positions refer to it
  std::vector<TemplateNode> body;
  bool has_answers = false;  // some node is an answer
};

// Error with file:line:column for invalid or unsupported templates. `name` is used in messages.
TemplateTree parse_template(std::string_view text, const std::string& name);

}  // namespace lumen::model::templates
