// Templates of chats: the part of Jinja that real models use, in a sandbox of our own. A template reads the values it
// is given and prints a text; it can reach nothing else. Loops, depth, memory and time are limited, unknown constructs
// are Errors with their place. What is printed equals what transformers prints. Proved by
// tests/model/template/template_test.cpp.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lumen::model {

struct TemplateTree;

// What is printed around {% generation %} blocks, which hold what the model says itself.
struct AnswerMarks {
  std::string begin = {}, end = {};
};

// What one rendering may take. A step is some nanoseconds; templates of real models take some thousands for a chat.
struct TemplateLimits {
  uint64_t steps = 200'000'000;
  double seconds = 2;  // of the processor
};

// What several renderings of a thread may take together: those of one row, or of the first look at a template. The one
// before comes back at the end.
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

// A template that takes more steps or time than its limits: what another rendering will not mend.
struct TemplateOverrun : Error {
  explicit TemplateOverrun(const Error& error) : Error(error) {}
};

class ChatTemplate {
 public:
  // Error with the place when the text is no template we know. `name` is used in messages.
  static ChatTemplate parse(std::string_view text, const std::string& name = "chat template");

  // What the template prints for the members of `context` (messages, tools, add_generation_prompt, bos_token, ...).
  // Error with the place where it goes wrong, TemplateOverrun where it takes more than the limits.
  // `now`: what strftime_now() tells, in local time; null: the machine's clock.
  std::string render(const nlohmann::ordered_json& context, const std::function<std::tm()>& now = nullptr,
                     const AnswerMarks& marks = {}, const TemplateLimits& limits = {}) const;
  // Whether the template has such blocks.
  bool has_answers() const;

 private:
  std::shared_ptr<const TemplateTree> tree_;
};

}  // namespace lumen::model
