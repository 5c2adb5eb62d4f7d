// String formatting with the semantics of Python.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "model/templates/template_run.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {

// {} {0} {name} of str.format, without format specifications.
std::string format_braces(const std::string& text, const TemplateCall& c) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] == '{' || text[i] == '}') && i + 1 < text.size() && text[i + 1] == text[i]) {
      out += text[i++];
    } else if (text[i] == '{') {
      const size_t end = text.find('}', i);
      if (end == std::string::npos) refuse("single '{' in a format");
      const std::string name = text.substr(i + 1, end - i - 1);
      Value value;
      if (name.empty()) {
        value = c.get(next++, "");
      } else if (std::all_of(name.begin(), name.end(), [](char d) { return d >= '0' && d <= '9'; }) &&
                 name.size() < 4) {
        value = c.get(std::strtol(name.c_str(), nullptr, 10), "");
      } else if (std::all_of(name.begin(), name.end(),
                             [](char d) { return std::isalnum(static_cast<unsigned char>(d)) != 0 || d == '_'; })) {
        value = c.get(c.values.size(), name);
      } else {
        refuse(fmt::format("the format '{{{}}}' is not supported", name));
      }
      if (value.is_undefined()) refuse(fmt::format("there is no argument for '{{{}}}'", name));
      out += value.print();
      i = end;
    } else if (text[i] == '}') {
      refuse("single '}' in a format");
    } else {
      out += text[i];
    }
  }
  return out;
}

namespace {

// A conversion of the % operator: %-08.3f, without the name.
struct Conversion {
  bool minus = false, zero = false, plus = false, space = false;
  int64_t width = 0, precision = -1;
  char kind = 0;
};

// Parses a conversion after the percent sign (and the name); `i` ends at the letter.
Conversion read_conversion(const std::string& text, size_t& i) {
  Conversion out;
  for (; i < text.size(); ++i) {
    if (text[i] == '-') {
      out.minus = true;
    } else if (text[i] == '0') {
      out.zero = true;
    } else if (text[i] == '+') {
      out.plus = true;
    } else if (text[i] == ' ') {
      out.space = true;
    } else {
      break;
    }
  }
  const auto number = [&] {
    int64_t n = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && n < 100000; ++i) n = n * 10 + (text[i] - '0');
    return n;
  };
  out.width = number();
  if (i < text.size() && text[i] == '.') {
    ++i;
    out.precision = number();
  }
  if (i >= text.size()) refuse("incomplete format");
  if (out.width > 10000 || out.precision > 1000) refuse("a format is too wide");
  out.kind = text[i];
  return out;
}

std::string whole_digits(const Conversion& c, const Value& v, bool* negative) {
  const char kind = c.kind;
  if (!v.is_number() || (v.is_float() && kind != 'd' && kind != 'i' && kind != 'u'))
    refuse(fmt::format("%{} format: a real number is required, not {}", kind, v.type_name()));
  if (v.is_float() && !(std::fabs(v.number()) < 9e18)) refuse("a number is too large");
  const int64_t n = v.is_float() ? static_cast<int64_t>(v.number()) : v.integer();
  const uint64_t bits = n, size = n < 0 ? 0 - bits : bits;
  *negative = n < 0;
  std::string body = kind == 'x'   ? fmt::format("{:x}", size)
                     : kind == 'X' ? fmt::format("{:X}", size)
                     : kind == 'o' ? fmt::format("{:o}", size)
                                   : fmt::format("{}", size);
  while (c.precision > std::ssize(body)) body.insert(body.begin(), '0');
  return body;
}

std::string real_digits(const Conversion& c, const Value& v, bool* negative) {
  if (!v.is_number()) refuse(fmt::format("must be real number, not {}", v.type_name()));
  const double d = v.number();
  *negative = std::signbit(d);
  const int digits = c.precision < 0 ? 6 : c.precision;
  const double size = std::fabs(d);
  return c.kind == 'f' || c.kind == 'F' ? fmt::format("{:.{}f}", size, digits)
         : c.kind == 'e'                ? fmt::format("{:.{}e}", size, digits)
         : c.kind == 'E'                ? fmt::format("{:.{}E}", size, digits)
         : c.kind == 'g'                ? fmt::format("{:.{}g}", size, digits)
                                        : fmt::format("{:.{}G}", size, digits);
}

// Formats the value, padded to the width.
std::string converted(const Conversion& c, const Value& v) {
  const std::string_view kind(&c.kind, 1);
  if (v.is_undefined() && c.kind != 's') refuse_undefined(v);
  std::string body;
  bool negative = false, number = false;
  if (kind == "s" || kind == "r") {
    body = kind == "s" ? v.print() : v.quote();
    if (c.precision >= 0) {
      const auto starts = character_starts(body);
      body.resize(starts[std::min<size_t>(c.precision, starts.size() - 1)]);
    }
  } else if (std::string_view("diuxXo").find(kind) != std::string_view::npos) {
    number = true;
    body = whole_digits(c, v, &negative);
  } else if (std::string_view("fFeEgG").find(kind) != std::string_view::npos) {
    number = true;
    body = real_digits(c, v, &negative);
  } else if (kind == "c") {
    if (!v.is_text() || character_starts(v.text()).size() != 2) refuse("%c requires a character");
    body = v.text();
  } else {
    refuse(fmt::format("unsupported format character '{}'", kind));
  }
  const std::string sign = !number ? "" : negative ? "-" : c.plus ? "+" : c.space ? " " : "";
  const bool zero = c.zero && number;
  const int64_t size = character_starts(body).size() - 1 + sign.size();
  const std::string fill(std::max<int64_t>(0, c.width - size), zero && !c.minus ? '0' : ' ');
  return c.minus ? sign + body + fill : zero ? sign + fill + body : fill + sign + body;
}

}  // namespace

// Python's % operator on strings: %s %r %d %i %f %x %X %o %e %g %c %% with flags, width and precision, and %(name)s.
std::string TemplateRun::format_percent(const std::string& text, const Value& values) {
  std::string out;
  const bool tuple = values.is_list() && values.list().tuple;
  size_t next = 0;
  const auto take = [&]() -> Value {
    if (tuple) {
      if (next >= values.list().items.size()) refuse("not enough arguments for format string");
      return values.list().items[next++];
    }
    if (next++ > 0) refuse("not enough arguments for format string");
    return values;
  };
  bool named = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (++i >= text.size()) refuse("incomplete format");
    std::optional<Value> value;
    if (text[i] == '(') {
      const size_t end = text.find(')', i);
      if (end == std::string::npos || !values.is_table()) refuse("a format with a name requires a mapping");
      value = item(values, Value(text.substr(i + 1, end - i - 1)));
      named = true;
      i = end + 1;
    }
    const Conversion conversion = read_conversion(text, i);
    if (conversion.kind == '%') {
      out += '%';
      continue;
    }
    const std::string part = converted(conversion, value ? *value : take());
    charge(part.size());
    out += part;
  }
  if (tuple && !named && next < values.list().items.size())
    refuse("not all arguments converted during string formatting");
  if (!tuple && !named && next == 0 && !values.is_table() && !values.is_list())
    refuse("not all arguments converted during string formatting");
  return out;
}

namespace {

// The character of an HTML entity between & and ;, or 0: numbers, and the names that text needs.
char32_t entity(std::string_view name) {
  constexpr std::pair<std::string_view, char32_t> kNames[] = {{"amp", '&'},  {"lt", '<'},    {"gt", '>'},
                                                              {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xa0}};
  for (const auto& [known, c] : kNames)
    if (name == known) return c;
  if (!name.starts_with('#')) return 0;
  name.remove_prefix(1);
  const bool hex = name.starts_with('x') || name.starts_with('X');
  if (hex) name.remove_prefix(1);
  uint32_t c = 0;
  const auto end = std::from_chars(name.data(), name.data() + name.size(), c, hex ? 16 : 10);
  const bool valid = end.ec == std::errc() && end.ptr == name.data() + name.size() && c > 0x9f && c < 0x110000;
  const bool ascii = end.ptr == name.data() + name.size() && (c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7f));
  return (valid && (c < 0xd800 || c > 0xdfff)) || ascii ? c : 0;
}

}  // namespace

std::string without_tags(std::string text) {
  for (const auto& [open, close] : {std::pair<std::string_view, std::string_view>{"<!--", "-->"}, {"<", ">"}}) {
    for (size_t at = 0; (at = text.find(open, at)) != std::string::npos;) {
      const size_t end = text.find(close, at);
      if (end == std::string::npos) break;
      TemplateMeter::step(1 + (text.size() - at) / 8);
      text.erase(at, end + close.size() - at);
      at -= std::min(at, open.size() - 1);  // what was apart may be an opening now
    }
  }
  std::string words;
  bool apart = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = std::max<size_t>(1, text::utf8_char(text, at, &c));
    if (is_python_space(c)) {
      apart = !words.empty();
    } else {
      if (std::exchange(apart, false)) words += ' ';
      words.append(text, at, n);
    }
    at += n;
  }
  std::string out;
  for (size_t at = 0; at < words.size();) {
    const size_t end = words[at] == '&' ? words.find(';', at) : std::string::npos;
    const char32_t c = end < at + 12 ? entity(std::string_view(words).substr(at + 1, end - at - 1)) : 0;
    if (c == 0) {
      out += words[at++];
    } else {
      text::utf8_append(out, c);
      at = end + 1;
    }
  }
  return out;
}

std::string indented(const std::string& text, const std::string& by, bool first, bool blank) {
  std::string out;
  size_t at = 0;
  for (bool begin = true; at <= text.size(); begin = false) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (begin ? first : blank || !line.empty()) out += by;
    out += line;
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

std::string url_encoded(const std::string& text) {
  std::string out;
  for (const char b : text) {
    if (std::isalnum(static_cast<unsigned char>(b)) != 0 ||
        std::string_view("_.-~/").find(b) != std::string_view::npos) {
      out += b;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(b));
    }
  }
  return out;
}

}  // namespace lumen::model::templates
