// Items, members and methods of template values, with the semantics of Python.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "model/templates/template_run.h"
#include "model/text/unicode/code_set.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {
namespace {

char32_t lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(c));
}
char32_t upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(c));
}

bool in_category(char32_t c, std::string_view name) {
  const std::string_view category = utf8proc_category_string(c);
  return category.starts_with(name);
}

// Whether the text is not empty and each character satisfies `test`.
template <typename Test>
bool all_characters(const std::string& text, const Test& test) {
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = text::utf8_char(text, at, &c);
    if (n == 0 || !test(c)) return false;
    at += n;
  }
  return !text.empty();
}

const std::string& need_text(const Value& v, std::string_view function) {
  if (v.is_undefined()) refuse_undefined(v);
  if (!v.is_text()) refuse(fmt::format("{}() requires a string, not {}", function, v.type_name()));
  return v.text();
}

int64_t need_integer(const Value& v, std::string_view function) {
  if (v.is_undefined()) refuse_undefined(v);
  if (!v.is_integer() && !v.is_bool()) refuse(fmt::format("{}() requires an integer, not {}", function, v.type_name()));
  return v.integer();
}

// The text without leading or trailing characters that are in `set`, or are white space.
std::string strip(const std::string& text, const std::optional<std::string>& set, bool left, bool right) {
  const std::vector<size_t> starts = character_starts(text);
  size_t begin = 0, end = starts.size() - 1;
  const auto goes = [&](size_t i) {
    const std::string_view c = std::string_view(text).substr(starts[i], starts[i + 1] - starts[i]);
    if (set) return set->find(c) != std::string::npos;
    char32_t code;
    return text::utf8_char(c, 0, &code) != 0 && is_python_space(code);
  };
  while (left && begin < end && goes(begin)) ++begin;
  while (right && begin < end && goes(end - 1)) --end;
  return text.substr(starts[begin], starts[end] - starts[begin]);
}

std::vector<std::string> split_spaces(const std::string& text, int64_t most, bool from_right) {
  const std::vector<size_t> starts = character_starts(text);
  const auto space = [&](size_t i) {
    char32_t c;
    return text::utf8_char(text, starts[i], &c) != 0 && is_python_space(c);
  };
  std::vector<std::string> out;
  const size_t count = starts.size() - 1;
  if (!from_right) {
    for (size_t i = 0; i < count;) {
      while (i < count && space(i)) ++i;
      if (i == count) break;
      size_t end = i;
      if (most >= 0 && std::ssize(out) >= most) {
        end = count;
        while (end > i && space(end - 1)) --end;
        out.push_back(text.substr(starts[i], starts[end] - starts[i]));
        break;
      }
      while (end < count && !space(end)) ++end;
      out.push_back(text.substr(starts[i], starts[end] - starts[i]));
      i = end;
    }
    return out;
  }
  for (size_t i = count; i > 0;) {
    while (i > 0 && space(i - 1)) --i;
    if (i == 0) break;
    size_t begin = i;
    if (most >= 0 && std::ssize(out) >= most) {
      begin = 0;
      while (begin < i && space(begin)) ++begin;
      out.push_back(text.substr(starts[begin], starts[i] - starts[begin]));
      break;
    }
    while (begin > 0 && !space(begin - 1)) --begin;
    out.push_back(text.substr(starts[begin], starts[i] - starts[begin]));
    i = begin;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Position of `what` in `text` at or after `from`, in linear time; a naive search is quadratic.
size_t find_text(std::string_view text, std::string_view what, size_t from = 0) {
  if (from > text.size()) return std::string::npos;
  if (what.empty()) return from;
  const std::string_view rest = text.substr(from);
  const auto* found = reinterpret_cast<const char*>(memmem(rest.data(), rest.size(), what.data(), what.size()));
  const size_t passed = found == nullptr ? rest.size() : found - rest.data();
  TemplateMeter::step(1 + (passed + what.size()) / 8);
  return found == nullptr ? std::string::npos : from + passed;
}

std::string reversed(std::string_view text) {
  TemplateMeter::step(1 + text.size() / 8);
  return {text.rbegin(), text.rend()};
}

// The last position.
size_t rfind_text(std::string_view text, std::string_view what) {
  const size_t at = find_text(reversed(text), reversed(what));
  return at == std::string::npos ? at : text.size() - at - what.size();
}

std::vector<std::string> split_by(const std::string& text, const std::string& by, int64_t most, bool from_right) {
  constexpr size_t kMostPieces = size_t{1} << 20;
  if (by.empty()) refuse("empty separator");
  std::vector<std::string> out;
  if (from_right) {
    out = split_by(reversed(text), reversed(by), most, false);
    for (std::string& piece : out) std::reverse(piece.begin(), piece.end());
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t at = 0;
  for (size_t end; (most < 0 || std::ssize(out) < most) && (end = find_text(text, by, at)) != std::string::npos;
       at = end + by.size()) {
    if (out.size() == kMostPieces) refuse("a list is too long");
    out.push_back(text.substr(at, end - at));
  }
  out.push_back(text.substr(at));
  return out;
}

std::string title(const std::string& text) {
  bool inside = false;
  return text::each_character(text, [&](char32_t c, std::string& out) {
    text::utf8_append(out, inside ? lower(c) : upper(c));
    inside = in_category(c, "L");
  });
}

std::string capitalize(const std::string& text) {
  bool first = true;
  return text::each_character(text, [&](char32_t c, std::string& out) {
    text::utf8_append(out, first ? upper(c) : lower(c));
    first = false;
  });
}

std::string replace(const std::string& text, const std::string& from, const std::string& to, int64_t most) {
  std::string out;
  if (from.empty()) {
    const std::vector<size_t> starts = character_starts(text);
    for (size_t i = 0; i < starts.size(); ++i) {
      if (most < 0 || static_cast<int64_t>(i) < most) out += to;
      if (i + 1 < starts.size()) out += text.substr(starts[i], starts[i + 1] - starts[i]);
      if (out.size() > (size_t{1} << 24)) refuse("a string is too long");
    }
    return out;
  }
  size_t end = 0;
  int64_t n = 0;
  for (size_t at; (most < 0 || n < most) && (at = find_text(text, from, end)) != std::string::npos;
       end = at + from.size(), ++n) {
    out.append(text, end, at - end);
    out += to;
    if (out.size() > (size_t{1} << 24)) refuse("a string is too long");
  }
  return out + text.substr(end);
}

std::string pad(const std::string& text, int64_t width, const std::string& fill, double left) {
  const int64_t size = character_starts(text).size() - 1;
  if (width <= size) return text;
  if (width > 1 << 20) refuse("a string is too long");
  const int64_t missing = width - size;
  int64_t before = static_cast<int64_t>(missing * left);
  if (left == 0.5) before = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (int64_t i = before; i < missing; ++i) out += fill;
  return out;
}

// Wraps a method as a function value.
template <typename Call>
Value callable(const std::string& name, Call call) {
  auto f = std::make_shared<FunctionValue>();
  f->name = name;
  f->call = std::move(call);
  return Value::function(std::move(f));
}

std::optional<Value> table_method(TemplateRun& r, const Value& object, const std::string& name) {
  constexpr std::string_view kChanging[] = {"clear", "pop", "popitem", "setdefault", "update"};
  for (const auto n : kChanging) {
    if (name == n) return Value::undefined(fmt::format("access to attribute '{}' of 'dict' object is unsafe.", name));
  }
  if (name == "get") {
    return callable(name, [object](TemplateCall& c) {
      c.at_most(2, "get");
      const Value* found = object.table().find(c.get(0, "key"));
      return found ? *found : c.has(1, "default") ? c.get(1, "default") : Value(None{});
    });
  }
  if (name == "items" || name == "keys" || name == "values") {
    return callable(name, [&r, object, name](TemplateCall& c) {
      c.at_most(0, name);
      ValueList out;
      for (const auto& [key, value] : object.table().items)
        out.push_back(name == "keys" ? key : name == "values" ? value : r.made(ValueList{key, value}, true));
      return r.made(std::move(out));
    });
  }
  if (name == "copy") return callable(name, [object](TemplateCall&) { return object; });
  return std::nullopt;
}

std::optional<Value> list_method(const Value& object, const std::string& name) {
  constexpr std::string_view kChanging[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  for (const auto n : kChanging) {
    if (name == n) return Value::undefined(fmt::format("access to attribute '{}' of 'list' object is unsafe.", name));
  }
  if (name == "index" || name == "count") {
    return callable(name, [object, name](TemplateCall& c) {
      int64_t n = 0;
      const ValueList& items = object.list().items;
      for (size_t i = 0; i < items.size(); ++i) {
        if (!items[i].same(c.get(0, "value"))) continue;
        if (name == "index") return Value(static_cast<int64_t>(i));
        ++n;
      }
      if (name == "index") refuse("the value is not in the list");
      return Value(n);
    });
  }
  if (name == "copy") return callable(name, [object](TemplateCall&) { return object; });
  return std::nullopt;
}

ValueList value_list(const std::vector<std::string>& parts) {
  ValueList out;
  for (const std::string& p : parts) out.emplace_back(p);
  return out;
}

// Methods of strings: from the string and the arguments to a value.
using TextMethod = Value (*)(TemplateRun&, const std::string&, TemplateCall&);

Value text_split(TemplateRun& r, const std::string& t, TemplateCall& c) {
  const Value by = c.get(0, "sep");
  const int64_t most = c.has(1, "maxsplit") ? need_integer(c.get(1, "maxsplit"), "split") : -1;
  if (!c.has(0, "sep") || by.is_none()) return r.made(value_list(split_spaces(t, most, false)));
  return r.made(value_list(split_by(t, need_text(by, "split"), most, false)));
}

Value text_rsplit(TemplateRun& r, const std::string& t, TemplateCall& c) {
  const Value by = c.get(0, "sep");
  const int64_t most = c.has(1, "maxsplit") ? need_integer(c.get(1, "maxsplit"), "rsplit") : -1;
  if (!c.has(0, "sep") || by.is_none()) return r.made(value_list(split_spaces(t, most, true)));
  return r.made(value_list(split_by(t, need_text(by, "rsplit"), most, true)));
}

Value text_splitlines(TemplateRun& r, const std::string& t, TemplateCall& c) {
  const bool keep = c.get(0, "keepends").truth();
  std::vector<std::string> out;
  for (size_t at = 0; at < t.size();) {
    size_t end = std::min(t.find_first_of("\n\r\v\f", at), t.size()), next = end + (end < t.size() ? 1 : 0);
    if (end + 1 < t.size() && t[end] == '\r' && t[end + 1] == '\n') ++next;
    out.push_back(t.substr(at, (keep ? next : end) - at));
    at = next;
  }
  return r.made(value_list(out));
}

Value text_join(TemplateRun& r, const std::string& t, TemplateCall& c) {
  std::string out;
  bool first = true;
  for (const Value& v : r.iterate(c.get(0, "iterable"))) {
    if (!first) out += t;
    out += need_text(v, "join");
    first = false;
    r.charge(t.size() + v.text().size());
  }
  return r.made(std::move(out));
}

Value text_count(TemplateRun& r, const std::string& t, TemplateCall& c) {
  const std::string& what = need_text(c.get(0, "sub"), "count");
  if (what.empty()) return Value(std::ssize(character_starts(t)));
  int64_t n = 0;
  for (size_t at = find_text(t, what); at != std::string::npos; at = find_text(t, what, at + what.size())) ++n;
  return Value(n);
}

Value text_zfill(TemplateRun& r, const std::string& t, TemplateCall& c) {
  const bool sign = t.starts_with('-') || t.starts_with('+');
  const int64_t width = need_integer(c.get(0, "width"), "zfill");
  if (sign) return r.made(t.substr(0, 1) + pad(t.substr(1), width - 1, "0", 1));
  return r.made(pad(t, width, "0", 1));
}

const std::unordered_map<std::string, TextMethod>& text_methods() {
  static const std::unordered_map<std::string, TextMethod> methods = {
      {"strip",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         const Value set = c.get(0, "chars");
         return r.made(strip(t, set.is_text() ? std::optional(set.text()) : std::nullopt, true, true));
       }},
      {"lstrip",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         const Value set = c.get(0, "chars");
         return r.made(strip(t, set.is_text() ? std::optional(set.text()) : std::nullopt, true, false));
       }},
      {"rstrip",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         const Value set = c.get(0, "chars");
         return r.made(strip(t, set.is_text() ? std::optional(set.text()) : std::nullopt, false, true));
       }},
      {"split", text_split},
      {"rsplit", text_rsplit},
      {"splitlines", text_splitlines},
      {"upper",
       [](TemplateRun& r, const std::string& t, TemplateCall&) {
         TemplateCall none;
         return r.filter("upper", Value(t), none);
       }},
      {"lower",
       [](TemplateRun& r, const std::string& t, TemplateCall&) {
         TemplateCall none;
         return r.filter("lower", Value(t), none);
       }},
      {"casefold",
       [](TemplateRun& r, const std::string& t, TemplateCall&) {
         TemplateCall none;
         return r.filter("lower", Value(t), none);
       }},
      {"title", [](TemplateRun& r, const std::string& t, TemplateCall&) { return r.made(title(t)); }},
      {"capitalize", [](TemplateRun& r, const std::string& t, TemplateCall&) { return r.made(capitalize(t)); }},
      {"swapcase",
       [](TemplateRun& r, const std::string& t, TemplateCall&) {
         return r.made(text::each_character(
             t, [](char32_t c, std::string& out) { text::utf8_append(out, lower(c) == c ? upper(c) : lower(c)); }));
       }},
      {"replace",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         const int64_t most = c.has(2, "count") ? need_integer(c.get(2, "count"), "replace") : -1;
         r.charge(t.size());
         return r.made(replace(t, need_text(c.get(0, "old"), "replace"), need_text(c.get(1, "new"), "replace"), most));
       }},
      {"join", text_join},
      {"count", text_count},
      {"format", [](TemplateRun& r, const std::string& t, TemplateCall& c) { return r.made(format_braces(t, c)); }},
      {"zfill", text_zfill},
      {"ljust",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         return r.made(pad(t, need_integer(c.get(0, "width"), "ljust"),
                           c.has(1, "fillchar") ? need_text(c.get(1, "fillchar"), "ljust") : " ", 0));
       }},
      {"rjust",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         return r.made(pad(t, need_integer(c.get(0, "width"), "rjust"),
                           c.has(1, "fillchar") ? need_text(c.get(1, "fillchar"), "rjust") : " ", 1));
       }},
      {"center",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         return r.made(pad(t, need_integer(c.get(0, "width"), "center"),
                           c.has(1, "fillchar") ? need_text(c.get(1, "fillchar"), "center") : " ", 0.5));
       }},
      {"removeprefix",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         const std::string& p = need_text(c.get(0, "prefix"), "removeprefix");
         return r.made(t.starts_with(p) ? t.substr(p.size()) : t);
       }},
      {"removesuffix",
       [](TemplateRun& r, const std::string& t, TemplateCall& c) {
         const std::string& p = need_text(c.get(0, "suffix"), "removesuffix");
         return r.made(t.ends_with(p) ? t.substr(0, t.size() - p.size()) : t);
       }},
      {"isdigit",
       [](TemplateRun&, const std::string& t, TemplateCall&) {
         return Value(all_characters(t, [](char32_t c) { return in_category(c, "Nd"); }));
       }},
      {"isdecimal",
       [](TemplateRun&, const std::string& t, TemplateCall&) {
         return Value(all_characters(t, [](char32_t c) { return in_category(c, "Nd"); }));
       }},
      {"isnumeric",
       [](TemplateRun&, const std::string& t, TemplateCall&) {
         return Value(all_characters(t, [](char32_t c) { return in_category(c, "N"); }));
       }},
      {"isalpha",
       [](TemplateRun&, const std::string& t, TemplateCall&) {
         return Value(all_characters(t, [](char32_t c) { return in_category(c, "L"); }));
       }},
      {"isalnum",
       [](TemplateRun&, const std::string& t, TemplateCall&) {
         return Value(all_characters(t, [](char32_t c) { return in_category(c, "L") || in_category(c, "N"); }));
       }},
      {"isspace",
       [](TemplateRun&, const std::string& t, TemplateCall&) { return Value(all_characters(t, is_python_space)); }},
      {"isupper",
       [](TemplateRun&, const std::string& t, TemplateCall&) {
         return Value(
             text::each_character(t, [](char32_t c, std::string& out) { text::utf8_append(out, upper(c)); }) == t &&
             text::each_character(t, [](char32_t c, std::string& out) { text::utf8_append(out, lower(c)); }) != t);
       }},
      {"islower",
       [](TemplateRun&, const std::string& t, TemplateCall&) {
         return Value(
             text::each_character(t, [](char32_t c, std::string& out) { text::utf8_append(out, lower(c)); }) == t &&
             text::each_character(t, [](char32_t c, std::string& out) { text::utf8_append(out, upper(c)); }) != t);
       }},
  };
  return methods;
}

Value starts_or_ends(TemplateRun& r, const Value& object, const std::string& name, TemplateCall& c) {
  c.at_most(3, name);
  Value from = c.get(1, "start"), to = c.get(2, "end");
  if (from.is_undefined()) from = None{};
  if (to.is_undefined()) to = None{};
  const Value part = from.is_none() && to.is_none() ? object : r.slice(object, from, to, None{});
  const Value wanted = c.get(0, "prefix");
  const ValueList list = wanted.is_sequence() ? wanted.list().items : ValueList{wanted};
  for (const Value& w : list) {
    const std::string& t = need_text(w, name);
    if (name == "startswith" ? part.text().starts_with(t) : part.text().ends_with(t)) return Value(true);
  }
  return Value(false);
}

Value place_of_text(TemplateRun& r, const Value& object, const std::string& name, TemplateCall& c) {
  c.at_most(1, name);
  const std::string &t = object.text(), &what = need_text(c.get(0, "sub"), name);
  const size_t at = name.starts_with('r') ? rfind_text(t, what) : find_text(t, what);
  if (at == std::string::npos) {
    if (name.ends_with("index")) refuse("substring not found");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(character_starts(std::string_view(t).substr(0, at)).size() - 1));
}

Value parted(TemplateRun& r, const Value& object, const std::string& name, TemplateCall& c) {
  const std::string &t = object.text(), &by = need_text(c.get(0, "sep"), name);
  if (by.empty()) refuse("empty separator");
  const bool right = name == "rpartition";
  const size_t at = right ? rfind_text(t, by) : find_text(t, by);
  if (at == std::string::npos) return right ? r.made(ValueList{"", "", t}, true) : r.made(ValueList{t, "", ""}, true);
  return r.made(ValueList{t.substr(0, at), by, t.substr(at + by.size())}, true);
}

bool has_marks(const Value& v) {
  if (v.is_text()) return TemplateMarks::any(v.text());
  return v.is_sequence() && std::any_of(v.list().items.begin(), v.list().items.end(), has_marks);
}

Value without_marks(const Value& v) {
  if (v.is_text()) return Value(TemplateMarks::without(v.text()));
  if (!v.is_sequence()) return v;
  ValueList out;
  for (const Value& item : v.list().items) out.push_back(without_marks(item));
  return Value::list(std::move(out), v.list().tuple);
}

bool is_marked(const Value& object, const TemplateCall& c) {
  return has_marks(object) || std::any_of(c.values.begin(), c.values.end(), has_marks) ||
         std::any_of(c.named.begin(), c.named.end(), [](const auto& n) { return has_marks(n.second); });
}

// str.replace of a text with marks: those of replaced parts go, those of new parts come.
Value replace_marked(TemplateRun& r, const MarkedText& text, TemplateCall& c) {
  const std::string from = TemplateMarks::without(need_text(c.get(0, "old"), "replace"));
  const std::string& to = need_text(c.get(1, "new"), "replace");
  const int64_t most = c.has(2, "count") ? need_integer(c.get(2, "count"), "replace") : -1;
  const std::string& t = text.text();
  if (from.empty()) return r.made(TemplateMarks::as_plain(replace(t, from, TemplateMarks::without(to), most)));
  std::string out;
  size_t end = 0;
  int64_t n = 0;
  for (size_t at; (most < 0 || n < most) && (at = find_text(t, from, end)) != std::string::npos;
       end = at + from.size(), ++n) {
    out += text.part(end, at) + to;
    r.charge(out.size() / 8);
    if (out.size() > (size_t{1} << 24)) refuse("a string is too long");
  }
  return r.made(out + text.part(end, t.size()));
}

// Calls a method of a string with marks: it sees the text without them, and they are put back in its result.
template <typename Method>
Value call_marked(TemplateRun& r, const Value& object, const std::string& name, TemplateCall& c, const Method& method) {
  // Letters of another case and joined texts keep the marks where they are.
  constexpr std::string_view kWithMarks[] = {"upper", "lower", "casefold", "swapcase", "join", "format"};
  if (std::find(std::begin(kWithMarks), std::end(kWithMarks), name) != std::end(kWithMarks)) return method(object, c);
  const MarkedText text(object.text());
  if (name == "replace") return replace_marked(r, text, c);
  TemplateCall plain = c;
  for (Value& v : plain.values) v = without_marks(v);
  for (auto& [key, v] : plain.named) v = without_marks(v);
  const Value made = method(Value(text.text()), plain);
  constexpr std::string_view kPadding[] = {"center", "ljust", "rjust", "zfill"};
  if (made.is_text() && std::find(std::begin(kPadding), std::end(kPadding), name) != std::end(kPadding))
    return r.made(text.within(made.text()));
  return text.pieces(made, name == "lstrip" || name == "removeprefix");
}

// Looks up a method of a string: in the table, or among the functions that implement several names.
std::optional<Value> text_method(TemplateRun& r, const Value& object, const std::string& name) {
  if (const auto found = text_methods().find(name); found != text_methods().end()) {
    const TextMethod m = found->second;
    return callable(name, [&r, m, object, name](TemplateCall& c) {
      TemplateMeter::step(object.text().size() / 8);
      const auto method = [&](const Value& text, TemplateCall& given) { return m(r, text.text(), given); };
      return is_marked(object, c) ? call_marked(r, object, name, c, method) : method(object, c);
    });
  }
  using NamedMethod = Value (*)(TemplateRun&, const Value&, const std::string&, TemplateCall&);
  static const std::unordered_map<std::string, NamedMethod> methods = {
      {"startswith", starts_or_ends}, {"endswith", starts_or_ends}, {"find", place_of_text}, {"rfind", place_of_text},
      {"index", place_of_text},       {"rindex", place_of_text},    {"partition", parted},   {"rpartition", parted},
  };
  const auto found = methods.find(name);
  if (found == methods.end()) return std::nullopt;
  return callable(name, [&r, m = found->second, object, name](TemplateCall& c) {
    const auto method = [&](const Value& text, TemplateCall& given) { return m(r, text, name, given); };
    return is_marked(object, c) ? call_marked(r, object, name, c, method) : method(object, c);
  });
}

}  // namespace

std::optional<Value> TemplateRun::method(const Value& object, const std::string& name) {
  if (object.is_table() && !object.table().changes) return table_method(*this, object, name);
  if (object.is_sequence()) return list_method(object, name);
  if (object.is_text()) return text_method(*this, object, name);
  return std::nullopt;
}

Value TemplateRun::member(const Value& object, const std::string& name) {
  if (object.is_undefined()) refuse_undefined(object);
  charge(4);
  if (name.starts_with("__")) return Value::undefined(fmt::format("access to attribute '{}' is unsafe", name));
  if (auto m = method(object, name)) return *std::move(m);
  if (object.is_table()) {
    if (const Value* found = object.table().find(Value(name))) return *found;
  }
  if (object.is_function()) {
    const auto found = object.function().members.find(name);
    if (found != object.function().members.end()) return found->second;
  }
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

Value TemplateRun::item(const Value& object, const Value& key) {
  if (object.is_undefined()) refuse_undefined(object);
  charge(4);
  if (object.is_table()) {
    if (const Value* found = object.table().find(key)) return *found;
  }
  if ((object.is_text() || object.is_sequence()) && (key.is_integer() || key.is_bool())) {
    if (object.is_text() && TemplateMarks::any(object.text())) {
      const MarkedText text(object.text());
      const Value one = item(Value(text.text()), key);
      if (!one.is_text()) return one;
      const std::vector<size_t> starts = character_starts(text.text());
      const size_t n = key.integer() < 0 ? key.integer() + starts.size() - 1 : key.integer();
      return made(text.part(starts[n], starts[n + 1]));
    }
    const std::vector<size_t> starts = object.is_text() ? character_starts(object.text()) : std::vector<size_t>();
    if (object.is_text()) charge(object.text().size() / 4);
    const int64_t size = object.is_text() ? starts.size() - 1 : object.list().items.size();
    int64_t i = key.integer();
    if (i < 0) i += size;
    if (i < 0 || i >= size)
      return Value::undefined(fmt::format("'{} object' has no element {}", object.type_name(), key.integer()));
    const size_t n = i;
    if (object.is_list()) return object.list().items[n];
    return made(object.text().substr(starts[n], starts[n + 1] - starts[n]));
  }
  if (key.is_text()) {
    if (auto m = method(object, key.text())) return *std::move(m);
    if (object.is_function()) return member(object, key.text());
  }
  return Value::undefined(fmt::format("'{} object' has no attribute {}", object.type_name(), key.quote()));
}

bool TemplateRun::contains(const Value& container, const Value& value) {
  if (container.is_text()) {
    if (!value.is_text())
      refuse(fmt::format("'in <string>' requires string as left operand, not {}", value.type_name()));
    return find_text(TemplateMarks::without(container.text()), TemplateMarks::without(value.text())) !=
           std::string::npos;
  }
  if (container.is_table()) {
    charge(container.table().items.size());
    return container.table().find(value) != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is_list()) refuse(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  if (container.is_generator()) {  // it gives its items up to the one that is found
    const ListValue& l = container.list();
    if (!l.fault.empty()) refuse(l.fault);
    while (l.given < l.items.size())
      if (l.items[l.given++].same(value)) return true;
    return false;
  }
  charge(container.list().items.size());
  return std::any_of(container.list().items.begin(), container.list().items.end(),
                     [&](const Value& v) { return v.same(value); });
}

ValueList TemplateRun::iterate(const Value& value) {
  ValueList out;
  if (value.is_undefined()) return out;
  if (value.is_generator()) {
    const ListValue& l = value.list();
    if (!l.fault.empty()) refuse(l.fault);
    out.assign(l.items.begin() + l.given, l.items.end());
    l.given = l.items.size();
  } else if (value.is_list()) {
    out = value.list().items;
  } else if (value.is_table() && !value.table().changes) {
    for (const auto& [key, item] : value.table().items) out.push_back(key);
  } else if (value.is_text()) {
    const MarkedText text(value.text());
    const std::vector<size_t> starts = character_starts(text.text());
    charge(starts.size() * 8);
    for (size_t i = 0; i + 1 < starts.size(); ++i) out.emplace_back(text.part(starts[i], starts[i + 1]));
  } else {
    refuse(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  charge(out.size() * 2);
  return out;
}

}  // namespace lumen::model::templates
