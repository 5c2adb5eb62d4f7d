// Templates of chats: the part of Jinja that real models use, in a sandbox of our own. A template reads the values it
// is given and prints a text; it can reach nothing else. Loops, depth, memory and time are limited, unknown constructs
// are Errors with their place. What is printed equals what transformers prints. Proved by
// tests/model/template/template_test.cpp.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

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

class ChatTemplate {
 public:
  // Error with the place when the text is no template we know. `name` is used in messages.
  static ChatTemplate parse(std::string_view text, const std::string& name = "chat template");

  // What the template prints for the members of `context` (messages, tools, add_generation_prompt, bos_token, ...).
  // Error with the place where it goes wrong, or takes more than the limits.
  // `now`: what strftime_now() tells, in local time; null: the machine's clock.
  std::string render(const nlohmann::ordered_json& context, const std::function<std::tm()>& now = nullptr,
                     const AnswerMarks& marks = {}, const TemplateLimits& limits = {}) const;
  // Whether the template has such blocks.
  bool has_answers() const;

 private:
  std::shared_ptr<const TemplateTree> tree_;
};

}  // namespace lumen::model
