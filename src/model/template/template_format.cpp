// Texts made from formats, as Python makes them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "model/template/template_run.h"

namespace lumen::model {

// {} {0} {name} of str.format, without formats of their own.
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
      if (value.is_undefined()) refuse(fmt::format("nothing was given for '{{{}}}'", name));
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

// printf of Python: %s %r %d %i %f %x %X %o %e %g %c %% with flags, width and precision, and %(name)s.
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
      if (end == std::string::npos || !values.is_table()) refuse("a format with a name needs a table");
      value = item(values, Value(text.substr(i + 1, end - i - 1)));
      named = true;
      i = end + 1;
    }
    bool minus = false, zero = false, plus = false, space = false;
    for (; i < text.size(); ++i) {
      if (text[i] == '-') {
        minus = true;
      } else if (text[i] == '0') {
        zero = true;
      } else if (text[i] == '+') {
        plus = true;
      } else if (text[i] == ' ') {
        space = true;
      } else {
        break;
      }
    }
    const auto number = [&] {
      int64_t n = 0;
      for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && n < 100000; ++i) n = n * 10 + (text[i] - '0');
      return n;
    };
    const int64_t width = number();
    int64_t precision = -1;
    if (i < text.size() && text[i] == '.') {
      ++i;
      precision = number();
    }
    if (i >= text.size()) refuse("incomplete format");
    if (width > 10000 || precision > 1000) refuse("a format is too wide");
    const char kind = text[i];
    if (kind == '%') {
      out += '%';
      continue;
    }
    const Value v = value ? *value : take();
    if (v.is_undefined() && kind != 's') refuse_undefined(v);
    std::string body, sign;
    const auto signs = [&](bool negative) { sign = negative ? "-" : plus ? "+" : space ? " " : ""; };
    if (kind == 's' || kind == 'r') {
      body = kind == 's' ? v.print() : v.quote();
      if (precision >= 0) {
        const auto starts = character_starts(body);
        body.resize(starts[std::min<size_t>(precision, starts.size() - 1)]);
      }
      zero = false;
    } else if (kind == 'd' || kind == 'i' || kind == 'u' || kind == 'x' || kind == 'X' || kind == 'o') {
      if (!v.is_number() || (v.is_float() && kind != 'd' && kind != 'i' && kind != 'u'))
        refuse(fmt::format("%{} format: a real number is required, not {}", kind, v.type_name()));
      if (v.is_float() && !(std::fabs(v.number()) < 9e18)) refuse("a number is too large");
      const int64_t n = v.is_float() ? static_cast<int64_t>(v.number()) : v.integer();
      const uint64_t size = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
      signs(n < 0);
      body = kind == 'x'   ? fmt::format("{:x}", size)
             : kind == 'X' ? fmt::format("{:X}", size)
             : kind == 'o' ? fmt::format("{:o}", size)
                           : fmt::format("{}", size);
      while (precision > std::ssize(body)) body.insert(body.begin(), '0');
    } else if (kind == 'f' || kind == 'F' || kind == 'e' || kind == 'E' || kind == 'g' || kind == 'G') {
      if (!v.is_number()) refuse(fmt::format("must be real number, not {}", v.type_name()));
      const double d = v.number();
      signs(std::signbit(d));
      const int digits = precision < 0 ? 6 : precision;
      const double size = std::fabs(d);
      body = kind == 'f' || kind == 'F' ? fmt::format("{:.{}f}", size, digits)
             : kind == 'e'              ? fmt::format("{:.{}e}", size, digits)
             : kind == 'E'              ? fmt::format("{:.{}E}", size, digits)
             : kind == 'g'              ? fmt::format("{:.{}g}", size, digits)
                                        : fmt::format("{:.{}G}", size, digits);
    } else if (kind == 'c') {
      if (!v.is_text() || character_starts(v.text()).size() != 2) refuse("%c requires a character");
      body = v.text();
      zero = false;
    } else {
      refuse(fmt::format("unsupported format character '{}'", kind));
    }
    const auto size = static_cast<int64_t>(character_starts(body).size() - 1 + sign.size());
    const std::string fill(static_cast<size_t>(std::max<int64_t>(0, width - size)), zero && !minus ? '0' : ' ');
    if (minus) {
      out += sign + body + fill;
    } else if (zero) {
      out += sign + fill + body;
    } else {
      out += fill + sign + body;
    }
    charge(body.size() + fill.size());
  }
  if (tuple && !named && next < values.list().items.size())
    refuse("not all arguments converted during string formatting");
  if (!tuple && !named && next == 0 && !values.is_table() && !values.is_list())
    refuse("not all arguments converted during string formatting");
  return out;
}

}  // namespace lumen::model
