// Values of templates: the Python types used by chat templates, with Python's output, comparison and truth rules. Lists
// and tables are shared and immutable, except for namespaces. Proved by tests/model/templates/template_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lumen::model::templates {

class Value;
struct AnswerMarks;
struct TemplateCall;
class TemplateBudget;

struct Undefined {
  std::string what;  // reason: "'x' is undefined"
};
struct None {};
using ValueList = std::vector<Value>;
struct ListValue {
  ValueList items;
  bool tuple = false;
  // A generator of Python: it is true, has no length and no items by index, and gives each item once. If it was made of
  // something that cannot be iterated over, its first use throws `fault`.
  bool generator = false;
  std::string fault = {};
  mutable size_t given = 0;  // items that it has given
};
// In insertion order.
struct TableValue {
  std::vector<std::pair<Value, Value>> items;
  bool changes = false;  // mutable: a namespace
  const Value* find(const Value& key) const;
  void set(Value key, Value value);
};
struct FunctionValue {
  std::string name;
  std::function<Value(TemplateCall&)> call;
  std::map<std::string, Value> members;  // of objects with a call operator and members: loops, macros
  std::string object;                    // type name of an object; empty: a function
};

class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
                   std::shared_ptr<const ListValue>, std::shared_ptr<TableValue>, std::shared_ptr<FunctionValue>>;

  Value() : data_(Undefined{}) {}
  Value(const Value&) = default;
  Value(Value&&) noexcept = default;
  Value& operator=(const Value&) = default;
  Value& operator=(Value&&) noexcept = default;
  ~Value() {
    if (data_.index() > kPlain) release();
  }
  // NOLINTBEGIN(google-explicit-constructor): a function of a template returns what it computed.
  Value(None) : data_(None{}) {}
  Value(bool b) : data_(b) {}
  Value(int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(const char* s) : Value(std::string(s)) {}
  // NOLINTEND(google-explicit-constructor)
  static Value undefined(std::string what);
  // A string of HTML (markupsafe's Markup): what is added to it is escaped.
  static Value markup(std::string text);
  static Value list(ValueList items, bool tuple = false);
  static Value generator(ValueList items, std::string fault = {});
  static Value table(std::shared_ptr<TableValue> table);
  static Value function(std::shared_ptr<FunctionValue> function);
  static Value from_json(const nlohmann::ordered_json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }  // excludes bool
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_integer() || is_float(); }
  bool is_text() const { return std::holds_alternative<std::shared_ptr<const std::string>>(data_); }
  bool is_markup() const { return markup_; }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const ListValue>>(data_); }
  bool is_generator() const { return is_list() && list().generator; }
  bool is_sequence() const { return is_list() && !list().generator; }  // a list or tuple
  bool is_table() const { return std::holds_alternative<std::shared_ptr<TableValue>>(data_); }
  bool is_function() const { return std::holds_alternative<std::shared_ptr<FunctionValue>>(data_); }

  const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const ListValue& list() const { return *std::get<std::shared_ptr<const ListValue>>(data_); }
  TableValue& table() const { return *std::get<std::shared_ptr<TableValue>>(data_); }
  FunctionValue& function() const { return *std::get<std::shared_ptr<FunctionValue>>(data_); }
  const std::string& why_undefined() const { return std::get<Undefined>(data_).what; }
  int64_t integer() const;  // of an integer or bool
  double number() const;    // of any number
  const Data& data() const { return data_; }

  bool truth() const;
  std::string print() const;               // Python's str()
  std::string quote(int depth = 0) const;  // Python's repr()
  const char* type_name() const;           // Python's type name
  bool same(const Value& other) const;     // Python's ==
  // Negative, zero or positive; nullopt if the values cannot be ordered.
  std::optional<int> order(const Value& other) const;

 private:
  static constexpr size_t kPlain = 5;  // types up to this index contain no other values
  // Destroys the content without recursion, so that the stack does not grow with nesting depth.
  void release();

  Data data_;
  bool markup_ = false;
};

// Limits the running template of a thread: operations whose time depends on the size of values report their cost, and
// TemplateFault ends a template that exceeds its steps or CPU time, or those of its budget. The destructor restores the
// previous meter.
class TemplateMeter {
 public:
  TemplateMeter(uint64_t steps, double seconds);  // limits; `seconds` of CPU time
  TemplateMeter(const TemplateMeter&) = delete;
  TemplateMeter& operator=(const TemplateMeter&) = delete;
  ~TemplateMeter();
  // Does nothing on a thread without a running template.
  static void step(uint64_t cost = 1) {
    if (current != nullptr) current->add(cost);
  }

 private:
  void add(uint64_t cost);

  static thread_local TemplateMeter* current;
  TemplateBudget* const budget_;
  const uint64_t most_steps_;
  const double most_seconds_;  // the remaining time
  const double told_seconds_;  // the limit shown in messages
  TemplateMeter* before_;
  uint64_t steps_ = 0, looked_at_ = 0;  // steps_ at the last read of the clock
  double begin_;                        // the thread's CPU seconds at the start
};

// Python's json.dumps. `indent` below 0: one line. Throws TemplateFault for values without a JSON form.
struct JsonStyle {
  bool ascii = false, sort = false;
  int indent = -1;
  std::string item = ", ", key = ": ";
};
std::string template_json(const Value& value, const JsonStyle& style);
std::string print_float(double d);

// An error during execution, without a position yet.
struct TemplateFault {
  std::string message;
  bool is_overrun = false;  // a limit of steps or time was exceeded
};

// Arguments of a call.
struct TemplateCall {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `index` or by name; undefined if it is missing.
  Value get(size_t index, std::string_view name) const;
  bool has(size_t index, std::string_view name) const;
  void at_most(size_t count, std::string_view function) const;
};

// Marks in texts: ChatRenderer encloses parts of a user's texts in marks (Unicode noncharacters) to find them in the
// rendered text. String operations of a template must not see them: they work on the text without marks, and put the
// marks back around the same characters of their results.

// The marks of the template that runs on this thread. The destructor restores those before.
class TemplateMarks {
 public:
  explicit TemplateMarks(const AnswerMarks& marks);
  TemplateMarks(const TemplateMarks&) = delete;
  TemplateMarks& operator=(const TemplateMarks&) = delete;
  ~TemplateMarks();

  static bool any(std::string_view text);                     // whether the text has marks
  static std::string without(const std::string& text);        // the text without its marks
  static std::string as_plain(const std::string& text);       // the whole text as text of the user
  static size_t length_at(std::string_view text, size_t at);  // bytes of the mark at `at`; 0 if there is none

 private:
  friend class MarkedText;
  static thread_local const AnswerMarks* current;
  const AnswerMarks* const before_;
};

// A text and its marks, apart.
class MarkedText {
 public:
  explicit MarkedText(const std::string& with_marks);
  const std::string& text() const { return text_; }
  // A part of the text with the marks that belong to it. Positions are bytes of text().
  std::string part(size_t begin, size_t end) const;
  // `whole` is a text that contains this one, e.g. after padding: returns it with this text's marks.
  std::string within(const std::string& whole) const;
  // Strings and lists of strings that a method made of this text. Its pieces are found in their order; `at_end`: the
  // only piece is the end of the text.
  Value pieces(const Value& made, bool at_end) const;

 private:
  struct Part {
    size_t begin = 0, end = 0;
  };
  Value piece(const Value& made, size_t* from) const;

  std::string text_;
  std::vector<Part> plain_;
  std::vector<size_t> begins_, ends_;  // answer marks
};

// Byte positions of the characters of a text, and its size.
std::vector<size_t> character_starts(std::string_view text);
bool is_python_space(char32_t c);

}  // namespace lumen::model::templates
