// Chat templates: an interpreter of the part of Jinja used by real models, in a sandbox. A template reads the given
// values and prints text; it has access to nothing else. Loops, depth, memory and time are limited; unknown constructs
// are Errors with their position. The output equals that of transformers, except that the filter `random` returns the
// first item: the same chat must give the same prompt. Proved by tests/model/templates/template_test.cpp.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lumen::model::templates {

struct TemplateTree;

// Strings printed around {% generation %} blocks, which contain the model's answers. Texts of the context may contain
// them, too, and `plain` around parts that look like control tokens. String operations of a template do not see them.
struct AnswerMarks {
  std::string begin = {}, end = {}, plain = {};
  bool around_answers = true;  // false: only texts of the context have marks
};

// Limits of one rendering. A step takes some nanoseconds; templates of real models take some thousand steps for a chat.
struct TemplateLimits {
  uint64_t steps = 200'000'000;
  double seconds = 2;  // CPU time
};

// Limits for several renderings of a thread together: those of one row, or those that analyze a template. The
// destructor restores the previous budget.
class TemplateBudget {
 public:
  explicit TemplateBudget(const TemplateLimits& limits = {});
  TemplateBudget(const TemplateBudget&) = delete;
  TemplateBudget& operator=(const TemplateBudget&) = delete;
  ~TemplateBudget();

 private:
  friend class TemplateMeter;

  static thread_local TemplateBudget* current;
  const double most_seconds_;
  uint64_t steps_left_;
  double seconds_left_;
  TemplateBudget* before_;
};

// A template exceeded its limits of steps or time; a retry is useless.
struct TemplateOverrun : Error {
  explicit TemplateOverrun(const Error& error) : Error(error) {}
};

class ChatTemplate {
 public:
  // Error with the position if the template is not supported. `name` is used in messages.
  static ChatTemplate parse(std::string_view text, const std::string& name = "chat template");

  // Renders the template with the members of `context` (messages, tools, add_generation_prompt, bos_token, ...). Error
  // with the position of a fault; TemplateOverrun if it exceeds the limits. `now`: local time for strftime_now(); null:
  // the system clock.
  std::string render(const nlohmann::ordered_json& context, const std::function<std::tm()>& now = nullptr,
                     const AnswerMarks& marks = {}, const TemplateLimits& limits = {}) const;
  // Whether the template has {% generation %} blocks.
  bool has_answers() const;

 private:
  std::shared_ptr<const TemplateTree> tree_;
};

}  // namespace lumen::model::templates
