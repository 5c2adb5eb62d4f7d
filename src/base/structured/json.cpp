#include "base/structured/json.h"

#include <algorithm>
#include <cctype>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"

namespace lumen {

using nlohmann::json;

namespace {

// An object that keeps the order of its members looks a member up by linear search.
constexpr size_t kMostOrderedMembers = 1024;

constexpr size_t kLongestToken = 24;  // bytes of it shown in a message

struct Mistake {
  size_t at = 0;  // byte of the text
  std::string what, hint;
};

// Describes the text where the parser stopped. `read`: bytes the parser had read; `token`: the last one.
Mistake mistake_at(std::string_view text, size_t read, const std::string& token, bool is_number_too_large) {
  if (is_number_too_large)
    return {read - std::min(read, token.size()), "a number that is too large for any kind of number", ""};
  if (read > text.size() || text.empty()) {
    const bool is_empty = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
    return {text.size(), is_empty ? "there is no value" : "the text ends within a value", "it may have been cut off"};
  }
  const size_t last = read == 0 ? 0 : read - 1;
  const uint8_t c = text[last];
  // A string is shown only if it occurs in the text unchanged: the token has escapes for control characters, and it
  // continues with the marks and words that follow a string or number.
  const bool is_whole =
      !token.empty() && token.size() <= read && text.substr(read - token.size(), token.size()) == token;
  size_t quote = token.find('"', 1);
  while (quote != std::string::npos && token[quote - 1] == '\\') quote = token.find('"', quote + 1);
  if (token.starts_with('"') && quote == std::string::npos) {
    if (c < 0x20) return {last, "a control character within a string", "write it as an escape: \\n, \\t, \\u0000"};
    if (c >= 0x80) return {last, "a byte that is no UTF-8", "the file may be in another encoding; iconv writes UTF-8"};
    return {last, "an escape that JSON does not have", "a backslash is written as two of them"};
  }
  size_t at = last;
  if (is_whole && token[0] == '"' && quote == token.size() - 1) {
    at = read - token.size();
  } else {
    // A word or number is shown whole; one that ends at an invalid byte is shown with that byte.
    const auto is_word = [](char b) { return std::isalnum(uint8_t(b)) || b == '-' || b == '+' || b == '.'; };
    size_t start = last;
    while (start > 0 && is_word(text[start - 1])) --start;
    const std::string_view word = text.substr(start, last - start);
    const bool is_value =
        word == "true" || word == "false" || word == "null" || (!word.empty() && std::isdigit(uint8_t(word.back())));
    if (is_word(char(c)) || !is_value) at = start;
  }
  size_t before = at;
  while (before > 0 &&
         (text[before - 1] == ' ' || text[before - 1] == '\t' || text[before - 1] == '\r' || text[before - 1] == '\n'))
    --before;
  const char first = text[at];
  const bool closes = first == '}' || first == ']';
  std::string hint;
  if (closes && before > 0 && text[before - 1] == ',')
    return {at, fmt::format("a comma in front of '{}'", first), "leave the comma out"};
  if (first == '\'') hint = "strings are in double quotation marks";
  if (first == 'N' || first == 'I' || first == 'n')
    hint = "JSON has no NaN and no infinity, and its null is written in small letters";
  if (first == 'T' || first == 'F') hint = "true and false are written in small letters";
  if (first == '/' || first == '#') hint = "JSON has no comments";
  const std::string_view shown = text.substr(at, std::min(last + 1 - at, kLongestToken));
  return {at, fmt::format("'{}' is not expected here", printable(shown)), hint};
}

// "NAME:LINE:COLUMN: not valid JSON: ...", or "line L, column C: ..." for a text without a name.
[[noreturn]] void refuse(std::string_view text, const std::string& name, const Mistake& mistake) {
  const std::string_view before = text.substr(0, mistake.at);
  const size_t line = 1 + std::count(before.begin(), before.end(), '\n'), start = before.rfind('\n') + 1;
  const size_t column =
      1 + std::count_if(before.begin() + start, before.end(), [](char c) { return (c & 0xc0) != 0x80; });
  const std::string place =
      name.empty() ? (line == 1 ? fmt::format("column {}", column) : fmt::format("line {}, column {}", line, column))
                   : fmt::format("{}:{}:{}: not valid JSON", name, line, column);
  throw Error(Exit::user, fmt::format("{}: {}", place, mistake.what), mistake.hint);
}

// Builds the value while parsing, in time linear in the text: the library's own parser with a callback visits all
// members of an object or list again at the end of each of them.
template <class Json>
class Reader : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  Reader(std::string_view text, const std::string& name, int max_depth)
      : text_(text), name_(name), before_(name.empty() ? "" : name + ": "), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return put(Json(value)); }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t&) override { LUMEN_UNREACHABLE("JSON text has no binary values"); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    auto& members = stack_.back()->template get_ref<typename Json::object_t&>();
    const size_t before = members.size();
    typename Json::object_t::iterator member;
    if constexpr (std::is_same_v<Json, json>) {
      // Most files are sorted by key, so the insertion position is known.
      member = members.emplace_hint(members.end(), std::move(value), nullptr);
    } else {
      if (before == kMostOrderedMembers)
        throw user_error("{}a JSON object with more than {} members", before_, kMostOrderedMembers);
      member = members.emplace(std::move(value), nullptr).first;
    }
    member_ = &member->second;
    if (members.size() == before)
      throw user_error("{}a JSON object has the same key twice: '{}'", before_,
                       printable(member->first.substr(0, 100)));
    return true;
  }
  bool parse_error(size_t read, const std::string& token, const typename Json::exception& error) override {
    constexpr int kNumberTooLarge = 406;
    refuse(text_, name_, mistake_at(text_, read, token, error.id == kNumberTooLarge));
  }

 private:
  Json* place(Json&& value) {
    if (stack_.empty()) return &(root_ = std::move(value));
    if (stack_.back()->is_object()) return &(*member_ = std::move(value));
    auto& list = stack_.back()->template get_ref<typename Json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }
  bool put(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (static_cast<int>(stack_.size()) >= max_depth_)
      throw user_error("{}JSON nested deeper than {} levels", before_, max_depth_);
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& name_;
  std::string before_;  // prefix of messages: the name
  int max_depth_;
  Json root_;
  std::vector<Json*> stack_;  // open objects and lists; only the last one grows
  Json* member_ = nullptr;    // of the last object, for the value after its key
};

template <class Json>
Json parse(std::string_view text, const std::string& name, int max_depth) {
  Reader<Json> reader(text, name, max_depth);
  try {
    Json::sax_parse(text.begin(), text.end(), &reader);
  } catch (const typename Json::exception&) {
    refuse(text, name, {0, "it cannot be read", ""});
  }
  return reader.take();
}

}  // namespace

json parse_json(std::string_view text, const std::string& name, int max_depth) {
  return parse<json>(text, name, max_depth);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, int max_depth) {
  return parse<nlohmann::ordered_json>(text, name, max_depth);
}

const json& json_member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) throw user_error("{}: expected a JSON object", where);
  const auto at = object.find(key);
  if (at == object.end()) throw user_error("{}: \"{}\" is missing", where, key);
  return *at;
}

std::string json_text(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  if (!value.is_string()) throw user_error("{}: \"{}\" is no string", where, key);
  return value.get<std::string>();
}

int64_t json_integer(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  if (value.is_number_unsigned() ? value.get<uint64_t>() > INT64_MAX : !value.is_number_integer())
    throw user_error("{}: \"{}\" is no whole number", where, key);
  return value.get<int64_t>();
}

bool json_boolean(const json& object, const char* key, bool fallback, const std::string& where) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return fallback;
  if (!at->is_boolean()) throw user_error("{}: \"{}\" is neither true nor false", where, key);
  return at->get<bool>();
}

std::string json_print(const json& value, const std::string& where, int indent) {
  try {
    return value.dump(indent);
  } catch (const json::exception&) {
    throw user_error("{}: a string in it is not valid UTF-8", where);
  }
}

}  // namespace lumen
