#include "model/templates/template_value.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <ctime>

#include "model/templates/chat_template.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kLongestText = size_t{1} << 24;
constexpr uint64_t kStepsPerLook = 20'000;  // between reads of the clock

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

void check_length(const std::string& text) {
  if (text.size() > kLongestText) throw TemplateFault{"a string is too long"};
}

void check_depth(int depth) {
  if (depth > kMaxDepth) throw TemplateFault{"values are nested too deeply"};
}

std::string quote_text(const std::string& text) {
  TemplateMeter::step(text.size());
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = TemplateMarks::length_at(text, at)) {
      out.append(text, at, length);
      at += length;
      continue;
    }
    char32_t c = 0;
    const size_t n = text::utf8_char(text, at, &c);
    if (n == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const auto category = utf8proc_category(c);
    const bool printable = c == ' ' || !(category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                                         category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CO ||
                                         category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_ZL ||
                                         category == UTF8PROC_CATEGORY_ZP || category == UTF8PROC_CATEGORY_ZS);
    if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (printable) {
      out.append(text, at, n);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
    at += n;
  }
  return out + quote;
}

std::string json_text(const std::string& given, bool ascii) {
  const std::string text = ascii ? TemplateMarks::without(given) : given;
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = TemplateMarks::length_at(text, at)) {
      out.append(text, at, length);
      at += length;
      continue;
    }
    char32_t c = 0;
    const size_t n = text::utf8_char(text, at, &c);
    TemplateMeter::step();
    if (n == 0) throw TemplateFault{"a string is not valid UTF-8"};
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) {
          out += c == 0x7f ? std::string("\x7f") : fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
        } else if (ascii && c >= 0x10000) {
          const uint32_t v = c - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff));
        } else {
          out.append(text, at, n);
        }
    }
    at += n;
  }
  return out + "\"";
}

void write_json(const Value& v, const JsonStyle& style, int depth, std::string& out) {
  check_depth(depth);
  TemplateMeter::step();
  check_length(out);
  const auto line = [&](int level) {
    if (style.indent < 0) return;
    out += '\n';
    out.append(style.indent * static_cast<size_t>(level), ' ');
  };
  if (v.is_none()) {
    out += "null";
  } else if (v.is_bool()) {
    out += v.truth() ? "true" : "false";
  } else if (v.is_integer()) {
    out += std::to_string(v.integer());
  } else if (v.is_float()) {
    const double d = v.number();
    out += std::isnan(d) ? "NaN" : std::isinf(d) ? (d > 0 ? "Infinity" : "-Infinity") : print_float(d);
  } else if (v.is_text()) {
    out += json_text(v.text(), style.ascii);
  } else if (v.is_sequence()) {
    const ValueList& items = v.list().items;
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style.item;
      line(depth + 1);
      write_json(items[i], style, depth + 1, out);
    }
    if (!items.empty()) line(depth);
    out += ']';
  } else if (v.is_table()) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : v.table().items) {
      if (!key.is_text() && !key.is_number() && !key.is_none())
        throw TemplateFault{fmt::format("keys must be strings or numbers, not {}", key.type_name())};
      std::string name;
      if (key.is_text()) {
        name = key.text();
      } else {
        write_json(key, style, depth, name);
      }
      entries.emplace_back(std::move(name), &value);
    }
    if (style.sort)
      std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style.item;
      line(depth + 1);
      out += json_text(entries[i].first, style.ascii) + style.key;
      write_json(*entries[i].second, style, depth + 1, out);
    }
    if (!entries.empty()) line(depth);
    out += '}';
  } else {
    throw TemplateFault{fmt::format("Object of type {} is not JSON serializable", v.type_name())};
  }
}

}  // namespace

thread_local TemplateMeter* TemplateMeter::current = nullptr;

thread_local TemplateBudget* TemplateBudget::current = nullptr;

TemplateBudget::TemplateBudget(const TemplateLimits& limits)
    : most_seconds_(limits.seconds), steps_left_(limits.steps), seconds_left_(limits.seconds), before_(current) {
  current = this;
}

TemplateBudget::~TemplateBudget() {
  current = before_;
}

TemplateMeter::TemplateMeter(uint64_t steps, double seconds)
    : budget_(TemplateBudget::current),
      most_steps_(budget_ ? std::min(steps, budget_->steps_left_) : steps),
      most_seconds_(budget_ ? std::min(seconds, budget_->seconds_left_) : seconds),
      told_seconds_(budget_ && budget_->seconds_left_ < seconds ? budget_->most_seconds_ : seconds),
      before_(current),
      begin_(thread_seconds()) {
  current = this;
}

TemplateMeter::~TemplateMeter() {
  current = before_;
  if (!budget_) return;
  budget_->steps_left_ -= std::min(steps_, budget_->steps_left_);
  budget_->seconds_left_ = std::max(0.0, budget_->seconds_left_ - (thread_seconds() - begin_));
}

void TemplateMeter::add(uint64_t cost) {
  steps_ += cost;
  if (steps_ > most_steps_) throw TemplateFault{"the template takes too many steps", true};
  if (most_seconds_ > 0 && steps_ - looked_at_ < kStepsPerLook) return;
  looked_at_ = steps_;
  if (thread_seconds() - begin_ > most_seconds_)
    throw TemplateFault{fmt::format("the template takes more than {} s of processor time", told_seconds_), true};
}

void Value::release() {
  constexpr int kMostNested = 100;
  static thread_local int nested = 0;
  static thread_local std::vector<Data> waiting;
  if (nested == kMostNested) {
    waiting.push_back(std::move(data_));
    return;
  }
  ++nested;
  data_ = Undefined{};
  --nested;
  while (nested == 0 && !waiting.empty()) {
    Data next = std::move(waiting.back());
    waiting.pop_back();
    ++nested;
    next = Undefined{};
    --nested;
  }
}

const Value* TableValue::find(const Value& key) const {
  for (const auto& [k, v] : items) {
    if (k.same(key)) return &v;
  }
  return nullptr;
}

void TableValue::set(Value key, Value value) {
  for (auto& [k, v] : items) {
    if (k.same(key)) {
      v = std::move(value);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

Value Value::undefined(std::string what) {
  Value v;
  v.data_ = Undefined{std::move(what)};
  return v;
}
Value Value::markup(std::string text) {
  Value v(std::move(text));
  v.markup_ = true;
  return v;
}
Value Value::list(ValueList items, bool tuple) {
  Value v;
  v.data_ = std::make_shared<const ListValue>(ListValue{std::move(items), tuple});
  return v;
}
Value Value::generator(ValueList items, std::string fault) {
  Value v;
  v.data_ = std::make_shared<const ListValue>(
      ListValue{.items = std::move(items), .generator = true, .fault = std::move(fault)});
  return v;
}
Value Value::table(std::shared_ptr<TableValue> table) {
  Value v;
  v.data_ = std::move(table);
  return v;
}
Value Value::function(std::shared_ptr<FunctionValue> function) {
  Value v;
  v.data_ = std::move(function);
  return v;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
      return json.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return json.get<double>();
      return json.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return json.get<std::string>();
    case nlohmann::ordered_json::value_t::array: {
      ValueList items;
      for (const auto& item : json) items.push_back(from_json(item));
      return list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      auto out = std::make_shared<TableValue>();
      for (const auto& [key, item] : json.items()) out->items.emplace_back(Value(key), from_json(item));
      return table(std::move(out));
    }
    default:
      return None{};
  }
}

int64_t Value::integer() const {
  return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_);
}
double Value::number() const {
  return is_float() ? std::get<double>(data_) : integer();
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_bool() || is_integer()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_text()) return !TemplateMarks::without(text()).empty();
  if (is_list()) return is_generator() || !list().items.empty();
  if (is_table()) return table().changes || !table().items.empty();
  return true;
}

std::string print_float(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  const double size = std::fabs(d);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, d, plain ? std::chars_format::fixed : std::chars_format::scientific)
          .ptr;
  std::string out(buffer, end);
  if (plain && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string Value::print() const {
  if (is_undefined()) return "";
  if (is_text()) {
    TemplateMeter::step(text().size() / 64);
    return text();
  }
  return quote();
}

std::string Value::quote(int depth) const {
  check_depth(depth);
  TemplateMeter::step();
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return integer() != 0 ? "True" : "False";
  if (is_integer()) return std::to_string(integer());
  if (is_float()) return print_float(number());
  if (is_text()) return quote_text(text());
  if (is_generator()) return "<generator object>";
  if (is_list()) {
    const ListValue& l = list();
    std::string out = l.tuple ? "(" : "[";
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) out += ", ";
      out += l.items[i].quote(depth + 1);
      check_length(out);
    }
    if (l.tuple && l.items.size() == 1) out += ",";
    return out + (l.tuple ? ")" : "]");
  }
  if (is_table()) {
    std::string out = table().changes ? "<Namespace {" : "{";
    const char* comma = "";
    for (const auto& [key, value] : table().items) {
      out += comma + key.quote(depth + 1) + ": " + value.quote(depth + 1);
      check_length(out);
      comma = ", ";
    }
    return out + (table().changes ? "}>" : "}");
  }
  return function().object.empty() ? "<function " + function().name + ">" : function().object;
}

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (is_list()) return is_generator() ? "generator" : list().tuple ? "tuple" : "list";
  if (is_table()) return table().changes ? "Namespace" : "dict";
  return "function";
}

bool Value::same(const Value& other) const {
  static thread_local int depth = 0;
  struct Guard {
    Guard() { check_depth(++depth); }
    ~Guard() { --depth; }
  };
  TemplateMeter::step();
  if (is_number() && other.is_number()) {
    if (is_float() || other.is_float()) return number() == other.number();
    return integer() == other.integer();
  }
  if (is_text() && other.is_text()) {
    TemplateMeter::step(std::min(text().size(), other.text().size()) / 64);
    if (text() == other.text()) return true;
    return (TemplateMarks::any(text()) || TemplateMarks::any(other.text())) &&
           TemplateMarks::without(text()) == TemplateMarks::without(other.text());
  }
  if ((is_undefined() && other.is_undefined()) || (is_none() && other.is_none())) return true;
  if (is_generator() || other.is_generator()) return is_list() && other.is_list() && &list() == &other.list();
  if (is_list() && other.is_list()) {
    if (depth > kMaxDepth) throw TemplateFault{"values are nested too deeply"};
    const Guard guard;
    const ListValue &a = list(), &b = other.list();
    if (a.tuple != b.tuple || a.items.size() != b.items.size()) return false;
    for (size_t i = 0; i < a.items.size(); ++i) {
      if (!a.items[i].same(b.items[i])) return false;
    }
    return true;
  }
  if (is_table() && other.is_table()) {
    if (&table() == &other.table()) return true;
    if (depth > kMaxDepth) throw TemplateFault{"values are nested too deeply"};
    const Guard guard;
    if (table().changes || other.table().changes || table().items.size() != other.table().items.size()) return false;
    for (const auto& [key, value] : table().items) {
      const Value* twin = other.table().find(key);
      if (!twin || !value.same(*twin)) return false;
    }
    return true;
  }
  return is_function() && other.is_function() && &function() == &other.function();
}

std::optional<int> Value::order(const Value& other) const {
  TemplateMeter::step();
  if (is_number() && other.is_number()) {
    const double a = number(), b = other.number();
    if (!is_float() && !other.is_float()) return integer() < other.integer() ? -1 : integer() > other.integer() ? 1 : 0;
    return a < b ? -1 : a > b ? 1 : 0;
  }
  if (is_text() && other.is_text()) {
    const int c = TemplateMarks::without(text()).compare(
        TemplateMarks::without(other.text()));  // UTF-8 preserves the order of code points
    return c < 0 ? -1 : c > 0 ? 1 : 0;
  }
  if (is_sequence() && other.is_sequence() && list().tuple == other.list().tuple) {
    const ValueList &a = list().items, &b = other.list().items;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (a[i].same(b[i])) continue;
      return a[i].is_list() ? std::nullopt : a[i].order(b[i]);
    }
    return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
  }
  return std::nullopt;
}

std::string template_json(const Value& value, const JsonStyle& style) {
  std::string out;
  write_json(value, style, 0, out);
  return out;
}

Value TemplateCall::get(size_t index, std::string_view name) const {
  if (index < values.size()) return values[index];
  for (const auto& [n, v] : named) {
    if (n == name) return v;
  }
  return Value();
}

bool TemplateCall::has(size_t index, std::string_view name) const {
  if (index < values.size()) return true;
  return std::any_of(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
}

void TemplateCall::at_most(size_t count, std::string_view function) const {
  if (values.size() + named.size() > count)
    throw TemplateFault{fmt::format("{}() takes at most {} arguments", function, count)};
}

std::vector<size_t> character_starts(std::string_view text) {
  std::vector<size_t> out;
  TemplateMeter::step(1 + text.size() / 2);
  for (size_t at = 0; at < text.size();) {
    out.push_back(at);
    char32_t c;
    at += std::max<size_t>(1, text::utf8_char(text, at, &c));
  }
  out.push_back(text.size());
  return out;
}

bool is_python_space(char32_t c) {
  return text::is_white_space(c) || (c >= 0x1c && c <= 0x1f);
}

}  // namespace lumen::model::templates
