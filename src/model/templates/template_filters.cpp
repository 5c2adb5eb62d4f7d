// Filters, tests and global functions of templates.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/printable.h"
#include "model/templates/template_run.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::templates {
namespace {

using Filter = Value (*)(TemplateRun&, const Value&, TemplateCall&);
using Test = bool (*)(TemplateRun&, const Value&, TemplateCall&);

std::string change_case(const std::string& text, bool up) {
  return text::each_character(text, [&](char32_t c, std::string& out) {
    const auto code = static_cast<utf8proc_int32_t>(c);
    if (up && c == 0xdf) {
      out += "SS";
    } else {
      text::utf8_append(out, static_cast<char32_t>(up ? utf8proc_toupper(code) : utf8proc_tolower(code)));
    }
  });
}

// Calls a string method on the value's text.
Value by_method(TemplateRun& r, const char* name, const Value& v, TemplateCall& c) {
  const auto m = r.method(Value(v.print()), name);
  return r.call(*m, c);
}

int64_t count_of(const Value& v) {
  if (v.is_undefined()) return 0;
  if (v.is_text()) return character_starts(TemplateMarks::without(v.text())).size() - 1;
  if (v.is_sequence()) return v.list().items.size();
  if (v.is_table()) return v.table().items.size();
  refuse(fmt::format("object of type '{}' has no len()", v.type_name()));
}

int64_t whole(const Value& v, int64_t fallback) {
  if (v.is_undefined()) return fallback;
  if (!v.is_integer() && !v.is_bool()) refuse(fmt::format("a whole number is needed, not {}", v.type_name()));
  return v.integer();
}

// a.b.c of a value, for sort and related filters.
Value attribute(TemplateRun& r, const Value& v, const Value& name) {
  if (name.is_integer()) return r.item(v, name);
  Value out = v;
  const std::string path = name.print();
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool number = !part.empty() && part.size() < 10 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    out = r.item(out, number ? Value(static_cast<int64_t>(std::strtol(part.c_str(), nullptr, 10))) : Value(part));
    at = end + 1;
  }
  return out;
}

Value folded(const Value& v, bool sensitive) {
  return !sensitive && v.is_text() ? Value(change_case(v.text(), false)) : v;
}

void sort_values(TemplateRun& r, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  r.charge(keyed.size() * 16);
  const auto less = [&](const auto& a, const auto& b) {
    r.charge(1);
    if (a.first.is_undefined()) refuse_undefined(a.first);
    if (b.first.is_undefined()) refuse_undefined(b.first);
    const auto order = a.first.order(b.first);
    if (!order)
      refuse(fmt::format("'<' not supported between instances of '{}' and '{}'", a.first.type_name(),
                         b.first.type_name()));
    return *order < 0;
  };
  // A stable sort with a custom comparison; an inconsistent order must not reach std::sort.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), less);
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

// The result of a filter that jinja2 computes when its items are needed: an error occurs only then.
template <typename Make>
Value lazily(const Make& make) {
  try {
    return Value::generator(make().list().items);
  } catch (const TemplateFault& fault) {
    if (fault.is_overrun) throw;
    return Value::generator({}, fault.message);
  }
}

// select, reject and related filters: with a test, optionally on an attribute.
Value chosen(TemplateRun& r, const Value& v, TemplateCall& c, bool wanted, bool by_attribute) {
  TemplateCall rest = c;
  Value name;
  if (by_attribute) {
    if (rest.values.empty()) refuse("the name of an attribute is missing");
    name = rest.values.front();
    rest.values.erase(rest.values.begin());
  }
  std::string test;
  if (!rest.values.empty()) {
    test = rest.values.front().print();
    rest.values.erase(rest.values.begin());
  }
  ValueList out;
  if (!v.truth()) return Value::generator({});
  return lazily([&] {
    for (const Value& item : r.iterate(v)) {
      const Value subject = by_attribute ? attribute(r, item, name) : item;
      const bool holds = test.empty() ? subject.truth() : r.test(test, subject, rest);
      if (holds == wanted) out.push_back(item);
    }
    return r.made(std::move(out));
  });
}

Value mapped(TemplateRun& r, const Value& v, TemplateCall& c) {
  if (!v.truth()) return Value::generator({});
  return lazily([&] {
    ValueList out;
    if (c.values.empty() && c.has(0, "attribute")) {
      const Value name = c.get(0, "attribute");
      for (const Value& item : r.iterate(v)) {
        Value found = attribute(r, item, name);
        out.push_back(found.is_undefined() && c.has(1, "default") ? c.get(1, "default") : found);
      }
      return r.made(std::move(out));
    }
    if (c.values.empty()) refuse("map requires a filter argument");
    TemplateCall rest = c;
    const std::string name = rest.values.front().print();
    rest.values.erase(rest.values.begin());
    for (const Value& item : r.iterate(v)) out.push_back(r.filter(name, item, rest));
    return r.made(std::move(out));
  });
}

Value extreme(TemplateRun& r, const Value& v, TemplateCall& c, bool most) {
  const bool sensitive = c.get(0, "case_sensitive").truth();
  std::optional<Value> best, best_key;
  for (const Value& item : r.iterate(v)) {
    const Value key = folded(c.has(1, "attribute") ? attribute(r, item, c.get(1, "attribute")) : item, sensitive);
    if (best) {
      const auto order = key.order(*best_key);
      if (!order) refuse("values that cannot be ordered");
      if (most ? *order <= 0 : *order >= 0) continue;
    }
    best = item;
    best_key = key;
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value to_json(TemplateRun& r, const Value& v, TemplateCall& c) {
  JsonStyle style;
  style.ascii = c.has(0, "ensure_ascii") && c.get(0, "ensure_ascii").truth();
  const Value by = c.get(1, "indent");
  if (by.is_integer()) {
    style.indent = std::clamp<int64_t>(by.integer(), 0, 64);
    style.item = ",";
  } else if (!by.is_undefined() && !by.is_none()) {
    refuse("indent must be a whole number");
  }
  const Value separators = c.get(2, "separators");
  if (separators.is_list() && separators.list().items.size() == 2) {
    style.item = separators.list().items[0].print();
    style.key = separators.list().items[1].print();
  }
  style.sort = c.get(3, "sort_keys").truth();
  return r.made(template_json(v, style));
}

Value rounded(TemplateRun&, const Value& v, TemplateCall& c) {
  if (!v.is_number()) refuse(fmt::format("cannot round a {}", v.type_name()));
  const int64_t digits = std::clamp<int64_t>(whole(c.get(0, "precision"), 0), -300, 300);
  const std::string how = c.has(1, "method") ? c.get(1, "method").print() : "common";
  const double scale = std::pow(10.0, digits);
  if (how == "ceil") return std::ceil(v.number() * scale) / scale;
  if (how == "floor") return std::floor(v.number() * scale) / scale;
  if (how != "common") refuse("method must be common, ceil or floor");
  if (v.is_integer() && digits >= 0) return v;
  // Rounds like Python: the decimal nearest to the exact value.
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", v.number(), digits).c_str(), nullptr);
  return std::nearbyint(v.number() * scale) / scale;
}

Value filter_abs(TemplateRun& r, const Value& v, TemplateCall& c) {
  if (!v.is_number()) refuse(fmt::format("bad operand type for abs(): '{}'", v.type_name()));
  if (v.is_float()) return Value(std::fabs(v.number()));
  if (v.integer() == INT64_MIN) refuse("a number is too large");
  return Value(v.integer() < 0 ? -v.integer() : v.integer());
}

Value filter_batch(TemplateRun& r, const Value& v, TemplateCall& c) {
  return lazily([&] {
    const int64_t n = whole(c.get(0, "linecount"), 0);
    if (n < 1) refuse("batches need a size");
    ValueList out, one;
    for (const Value& item : r.iterate(v)) {
      if (std::ssize(one) == n) out.push_back(r.made(std::exchange(one, {})));
      one.push_back(item);
    }
    if (!one.empty()) {
      while (c.has(1, "fill_with") && !c.get(1, "fill_with").is_none() && std::ssize(one) < std::min<int64_t>(n, 10000))
        one.push_back(c.get(1, "fill_with"));
      out.push_back(r.made(std::move(one)));
    }
    return r.made(std::move(out));
  });
}

Value filter_default(TemplateRun& r, const Value& v, TemplateCall& c) {
  const bool falsy = c.get(1, "boolean").truth();
  if (v.is_undefined() || (falsy && !v.truth()))
    return c.has(0, "default_value") ? c.get(0, "default_value") : Value("");
  return v;
}

Value filter_dictsort(TemplateRun& r, const Value& v, TemplateCall& c) {
  if (v.is_undefined()) refuse_undefined(v);
  if (!v.is_table()) refuse("dictsort requires a mapping");
  const bool sensitive = c.get(0, "case_sensitive").truth(), reverse = c.get(2, "reverse").truth();
  const bool by_value = c.has(1, "by") && c.get(1, "by").print() == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : v.table().items)
    keyed.emplace_back(folded(by_value ? item : key, sensitive), r.made(ValueList{key, item}, true));
  sort_values(r, keyed, reverse);
  ValueList out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return r.made(std::move(out));
}

Value filter_float(TemplateRun& r, const Value& v, TemplateCall& c) {
  if (v.is_number()) return Value(v.number());
  if (v.is_text()) {
    const std::string text = TemplateMarks::without(v.text());
    char* end = nullptr;
    const double d = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0') return Value(d);
  }
  return c.has(0, "default") ? c.get(0, "default") : Value(0.0);
}

Value filter_int(TemplateRun& r, const Value& v, TemplateCall& c) {
  if (v.is_integer() || v.is_bool()) return Value(v.integer());
  const auto fallback = [&] { return c.has(0, "default") ? c.get(0, "default") : Value(int64_t{0}); };
  double d = 0;
  if (v.is_float()) {
    d = v.number();
  } else if (v.is_text()) {
    const int64_t base = whole(c.get(1, "base"), 10);
    if (base < 2 || base > 36) refuse("a base must lie between 2 and 36");
    const std::string text = TemplateMarks::without(v.text());
    char* end = nullptr;
    errno = 0;
    const long long n = std::strtoll(text.c_str(), &end, base);
    if (!text.empty() && *end == '\0' && errno == 0) return Value(int64_t(n));
    d = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') return fallback();
  } else {
    return fallback();
  }
  if (!(std::fabs(d) < 9.2e18)) return fallback();
  return Value(static_cast<int64_t>(d));
}

Value filter_groupby(TemplateRun& r, const Value& v, TemplateCall& c) {
  const Value name = c.get(0, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : r.iterate(v)) keyed.emplace_back(attribute(r, item, name), item);
  sort_values(r, keyed, false);
  ValueList out;
  for (size_t i = 0; i < keyed.size();) {
    ValueList group;
    const Value key = keyed[i].first;
    for (; i < keyed.size() && keyed[i].first.same(key); ++i) group.push_back(keyed[i].second);
    auto entry = std::make_shared<TableValue>();
    entry->set(Value("grouper"), key);
    entry->set(Value("list"), r.made(group));
    out.push_back(r.made(ValueList{key, r.made(std::move(group))}, true));
  }
  return r.made(std::move(out));
}

Value filter_indent(TemplateRun& r, const Value& v, TemplateCall& c) {
  const Value width = c.get(0, "width");
  const std::string by = width.is_text()
                             ? width.text()
                             : std::string(static_cast<size_t>(std::clamp<int64_t>(whole(width, 4), 0, 1000)), ' ');
  const std::string text = v.print();
  r.charge(std::count(text.begin(), text.end(), '\n') * by.size());
  return r.made(indented(text, by, c.get(1, "first").truth(), c.get(2, "blank").truth()));
}

Value filter_items(TemplateRun& r, const Value& v, TemplateCall& c) {
  return lazily([&] {
    if (v.is_undefined()) return r.made(ValueList());
    if (!v.is_table()) refuse("Can only get item pairs from a mapping.");
    ValueList out;
    for (const auto& [key, item] : v.table().items) out.push_back(r.made(ValueList{key, item}, true));
    return r.made(std::move(out));
  });
}

Value filter_join(TemplateRun& r, const Value& v, TemplateCall& c) {
  const std::string by = c.has(0, "d") ? c.get(0, "d").print() : "";
  std::string out;
  bool first = true;
  for (const Value& item : r.iterate(v)) {
    if (!first) out += by;
    first = false;
    const std::string part = (c.has(1, "attribute") ? attribute(r, item, c.get(1, "attribute")) : item).print();
    r.charge(part.size() + by.size());
    out += part;
  }
  return r.made(std::move(out));
}

Value filter_replace(TemplateRun& r, const Value& v, TemplateCall& c) {
  for (Value& a : c.values) {
    if (!a.is_integer() && !a.is_undefined()) a = Value(a.print());
  }
  return by_method(r, "replace", v, c);
}

Value filter_reverse(TemplateRun& r, const Value& v, TemplateCall& c) {
  ValueList items = r.iterate(v);
  std::reverse(items.begin(), items.end());
  if (v.is_generator()) return r.made(std::move(items));
  if (!v.is_text()) return Value::generator(r.made(std::move(items)).list().items);
  std::string out;
  for (const Value& one : items) out += one.text();
  return r.made(std::move(out));
}

Value filter_slice(TemplateRun& r, const Value& v, TemplateCall& c) {
  return lazily([&] {
    const int64_t n = whole(c.get(0, "slices"), 0);
    if (n < 1 || n > 10000) refuse("slices need a number");
    const ValueList items = r.iterate(v);
    const auto size = std::ssize(items);
    ValueList out;
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t count = size / n + (i < size % n ? 1 : 0);
      ValueList one(items.begin() + at, items.begin() + at + count);
      if (c.has(1, "fill_with") && !c.get(1, "fill_with").is_none() && i >= size % n && size % n != 0)
        one.push_back(c.get(1, "fill_with"));
      out.push_back(r.made(std::move(one)));
      at += count;
    }
    return r.made(std::move(out));
  });
}

Value filter_sort(TemplateRun& r, const Value& v, TemplateCall& c) {
  const bool reverse = c.get(0, "reverse").truth(), sensitive = c.get(1, "case_sensitive").truth();
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : r.iterate(v)) {
    const Value key = c.has(2, "attribute") ? attribute(r, item, c.get(2, "attribute")) : item;
    keyed.emplace_back(folded(key, sensitive), item);
  }
  sort_values(r, keyed, reverse);
  ValueList out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return r.made(std::move(out));
}

// The first item: the same chat must give the same prompt.
Value filter_random(TemplateRun& r, const Value& v, TemplateCall&) {
  if (v.is_undefined()) return Value::undefined("No random item, sequence was empty.");
  if (!v.is_text() && !v.is_sequence()) refuse(fmt::format("object of type '{}' has no len()", v.type_name()));
  return count_of(v) == 0 ? Value::undefined("No random item, sequence was empty.") : r.item(v, Value(int64_t{0}));
}

Value filter_striptags(TemplateRun& r, const Value& v, TemplateCall&) {
  const std::string text = v.print();
  const std::string out = without_tags(TemplateMarks::without(text));
  return r.made(TemplateMarks::any(text) ? TemplateMarks::as_plain(out) : out);
}

Value filter_truncate(TemplateRun& r, const Value& v, TemplateCall& c) {
  if (v.is_undefined()) refuse_undefined(v);
  if (!v.is_text()) refuse(fmt::format("object of type '{}' has no len()", v.type_name()));
  const int64_t length = whole(c.get(0, "length"), 255), leeway = whole(c.get(3, "leeway"), 5);
  const std::string end = c.has(2, "end") ? c.get(2, "end").print() : "...";
  const int64_t end_length = count_of(Value(end));
  if (length < end_length) refuse(fmt::format("expected length >= {}, got {}", end_length, length));
  if (leeway < 0) refuse(fmt::format("expected leeway >= 0, got {}", leeway));
  const int64_t size = count_of(v);
  if (size <= length || size - length <= leeway) return v;
  Value cut = r.slice(v, None{}, Value(length - end_length), None{});
  if (!c.get(1, "killwords").truth()) {
    TemplateCall once{{Value(" "), Value(int64_t{1})}, {}};
    cut = by_method(r, "rsplit", cut, once).list().items.front();
  }
  return r.add(cut, Value(end));
}

Value filter_sum(TemplateRun& r, const Value& v, TemplateCall& c) {
  Value out = c.has(1, "start") ? c.get(1, "start") : Value(int64_t{0});
  for (const Value& item : r.iterate(v))
    out =
        r.add(out, c.has(0, "attribute") && !c.get(0, "attribute").is_none() ? attribute(r, item, c.get(0, "attribute"))
                                                                             : item);
  return out;
}

Value filter_unique(TemplateRun& r, const Value& v, TemplateCall& c) {
  return lazily([&] {
    const bool sensitive = c.get(0, "case_sensitive").truth();
    ValueList out, keys;
    for (const Value& item : r.iterate(v)) {
      const Value key = folded(c.has(1, "attribute") ? attribute(r, item, c.get(1, "attribute")) : item, sensitive);
      r.charge(keys.size());
      if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return k.same(key); })) continue;
      keys.push_back(key);
      out.push_back(item);
    }
    return r.made(std::move(out));
  });
}

Value filter_urlencode(TemplateRun& r, const Value& v, TemplateCall&) {
  return r.made(url_encoded(TemplateMarks::without(v.print())));
}

const std::unordered_map<std::string, Filter>& filters() {
  static const std::unordered_map<std::string, Filter> table = {
      {"abs", filter_abs},
      {"attr",
       [](TemplateRun& r, const Value& v, TemplateCall& c) {
         const auto m = r.method(v, c.get(0, "name").print());
         return m ? *m : Value::undefined("no such attribute");
       }},
      {"batch", filter_batch},
      {"capitalize", [](TemplateRun& r, const Value& v, TemplateCall& c) { return by_method(r, "capitalize", v, c); }},
      {"center",
       [](TemplateRun& r, const Value& v, TemplateCall& c) {
         if (!c.has(0, "width")) c.values.emplace_back(int64_t{80});
         return by_method(r, "center", v, c);
       }},
      {"count", [](TemplateRun&, const Value& v, TemplateCall&) { return Value(count_of(v)); }},
      {"length", [](TemplateRun&, const Value& v, TemplateCall&) { return Value(count_of(v)); }},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"escape", [](TemplateRun& r, const Value& v,
                    TemplateCall&) { return v.is_markup() ? v : Value::markup(r.made(as_markup(v.print())).text()); }},
      {"forceescape", [](TemplateRun& r, const Value& v,
                         TemplateCall&) { return Value::markup(r.made(as_markup(v.print())).text()); }},
      {"first",
       [](TemplateRun& r, const Value& v, TemplateCall&) {
         if (v.is_generator() && v.list().fault.empty() && v.list().given < v.list().items.size())
           return v.list().items[v.list().given++];
         const ValueList items = r.iterate(v);
         return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
       }},
      {"last",
       [](TemplateRun& r, const Value& v, TemplateCall&) {
         if (v.is_generator()) refuse("'generator' object is not reversible");
         const ValueList items = r.iterate(v);
         return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
       }},
      {"float", filter_float},
      {"int", filter_int},
      {"format", [](TemplateRun& r, const Value& v,
                    TemplateCall& c) { return r.made(r.format_percent(v.print(), r.made(c.values, true))); }},
      {"groupby", filter_groupby},
      {"indent", filter_indent},
      {"items", filter_items},
      {"join", filter_join},
      {"list", [](TemplateRun& r, const Value& v, TemplateCall&) { return r.made(r.iterate(v)); }},
      {"lower", [](TemplateRun& r, const Value& v, TemplateCall&) { return r.made(change_case(v.print(), false)); }},
      {"upper", [](TemplateRun& r, const Value& v, TemplateCall&) { return r.made(change_case(v.print(), true)); }},
      {"map", mapped},
      {"max", [](TemplateRun& r, const Value& v, TemplateCall& c) { return extreme(r, v, c, true); }},
      {"min", [](TemplateRun& r, const Value& v, TemplateCall& c) { return extreme(r, v, c, false); }},
      {"pprint", [](TemplateRun& r, const Value& v, TemplateCall&) { return r.made(v.quote()); }},
      {"reject", [](TemplateRun& r, const Value& v, TemplateCall& c) { return chosen(r, v, c, false, false); }},
      {"rejectattr", [](TemplateRun& r, const Value& v, TemplateCall& c) { return chosen(r, v, c, false, true); }},
      {"select", [](TemplateRun& r, const Value& v, TemplateCall& c) { return chosen(r, v, c, true, false); }},
      {"selectattr", [](TemplateRun& r, const Value& v, TemplateCall& c) { return chosen(r, v, c, true, true); }},
      {"replace", filter_replace},
      {"reverse", filter_reverse},
      {"random", filter_random},
      {"round", rounded},
      {"safe", [](TemplateRun& r, const Value& v, TemplateCall&) { return Value::markup(r.made(v.print()).text()); }},
      {"slice", filter_slice},
      {"sort", filter_sort},
      {"string", [](TemplateRun& r, const Value& v, TemplateCall&) { return r.made(v.print()); }},
      {"striptags", filter_striptags},
      {"sum", filter_sum},
      {"title", [](TemplateRun& r, const Value& v, TemplateCall& c) { return by_method(r, "title", v, c); }},
      {"tojson", to_json},
      {"trim", [](TemplateRun& r, const Value& v, TemplateCall& c) { return by_method(r, "strip", v, c); }},
      {"truncate", filter_truncate},
      {"unique", filter_unique},
      {"urlencode", filter_urlencode},
      {"wordcount",
       [](TemplateRun& r, const Value& v, TemplateCall&) {
         TemplateCall none;
         return Value(count_of(by_method(r, "split", v, none)));
       }},
  };
  return table;
}

Value argument(TemplateCall& c) {
  return c.get(0, "other");
}

const std::unordered_map<std::string, Test>& tests() {
  constexpr auto order = [](const Value& a, const Value& b) {
    const auto o = a.order(b);
    if (!o) refuse(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
    return *o;
  };
  static constexpr auto kOrder = order;
  static const std::unordered_map<std::string, Test> table = {
      {"boolean", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_bool(); }},
      {"callable", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_function(); }},
      {"defined", [](TemplateRun&, const Value& v, TemplateCall&) { return !v.is_undefined(); }},
      {"undefined", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_undefined(); }},
      {"divisibleby",
       [](TemplateRun&, const Value& v, TemplateCall& c) {
         const int64_t by = whole(c.get(0, "num"), 0);
         if (by == 0) refuse("division by zero");
         return by == -1 || whole(v, 0) % by == 0;
       }},
      {"eq", [](TemplateRun&, const Value& v, TemplateCall& c) { return v.same(argument(c)); }},
      {"ne", [](TemplateRun&, const Value& v, TemplateCall& c) { return !v.same(argument(c)); }},
      {"lt", [](TemplateRun&, const Value& v, TemplateCall& c) { return kOrder(v, argument(c)) < 0; }},
      {"le", [](TemplateRun&, const Value& v, TemplateCall& c) { return kOrder(v, argument(c)) <= 0; }},
      {"gt", [](TemplateRun&, const Value& v, TemplateCall& c) { return kOrder(v, argument(c)) > 0; }},
      {"ge", [](TemplateRun&, const Value& v, TemplateCall& c) { return kOrder(v, argument(c)) >= 0; }},
      {"even", [](TemplateRun&, const Value& v, TemplateCall&) { return whole(v, 1) % 2 == 0; }},
      {"odd", [](TemplateRun&, const Value& v, TemplateCall&) { return whole(v, 0) % 2 != 0; }},
      {"false", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_bool() && !v.truth(); }},
      {"true", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_bool() && v.truth(); }},
      {"float", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_float(); }},
      {"integer", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_integer(); }},
      {"number", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_number(); }},
      {"in", [](TemplateRun& r, const Value& v, TemplateCall& c) { return r.contains(c.get(0, "seq"), v); }},
      {"iterable",
       [](TemplateRun&, const Value& v, TemplateCall&) {
         return v.is_undefined() || v.is_text() || v.is_list() || (v.is_table() && !v.table().changes);
       }},
      {"sequence",
       [](TemplateRun&, const Value& v, TemplateCall&) {
         return v.is_undefined() || v.is_text() || v.is_sequence() || (v.is_table() && !v.table().changes);
       }},
      {"mapping", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_table() && !v.table().changes; }},
      {"string", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_text(); }},
      {"none", [](TemplateRun&, const Value& v, TemplateCall&) { return v.is_none(); }},
      {"lower",
       [](TemplateRun& r, const Value& v, TemplateCall&) {
         TemplateCall none;
         return by_method(r, "islower", v, none).truth();
       }},
      {"upper",
       [](TemplateRun& r, const Value& v, TemplateCall&) {
         TemplateCall none;
         return by_method(r, "isupper", v, none).truth();
       }},
      {"sameas",
       [](TemplateRun&, const Value& v, TemplateCall& c) {
         const Value other = argument(c);
         if (v.is_list() && other.is_list()) return &v.list() == &other.list();
         if (v.is_table() && other.is_table()) return &v.table() == &other.table();
         return std::string_view(v.type_name()) == other.type_name() && v.same(other);
       }},
  };
  return table;
}

constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"d", "default"}, {"e", "escape"}, {"equalto", "eq"}, {"==", "eq"},       {"!=", "ne"},         {"<", "lt"},
    {"<=", "le"},     {">", "gt"},     {">=", "ge"},      {"lessthan", "lt"}, {"greaterthan", "gt"}};

template <typename Table>
auto look_up(const Table& table, const std::string& name) {
  auto found = table.find(name);
  for (const auto& [other, own] : kOtherNames) {
    if (found == table.end() && name == other) found = table.find(std::string(own));
  }
  return found;
}

}  // namespace

Value TemplateRun::filter(const std::string& name, const Value& value, TemplateCall& c) {
  charge(2);
  const auto found = look_up(filters(), name);
  if (found == filters().end()) refuse(fmt::format("no filter named '{}'", name));
  return found->second(*this, value, c);
}

bool TemplateRun::test(const std::string& name, const Value& value, TemplateCall& c) {
  charge(1);
  // These tests take the names of filters and tests.
  if (name == "filter") return look_up(filters(), value.print()) != filters().end();
  if (name == "test") return look_up(tests(), value.print()) != tests().end();
  const auto found = look_up(tests(), name);
  if (found == tests().end()) refuse(fmt::format("no test named '{}'", name));
  return found->second(*this, value, c);
}

void TemplateRun::define_globals(TemplateScope& scope) {
  const auto define = [&](const char* name, auto call) {
    auto f = std::make_shared<FunctionValue>();
    f->name = name;
    f->call = std::move(call);
    scope.names[name] = Value::function(std::move(f));
  };
  define("raise_exception", [](TemplateCall& c) -> Value { refuse(c.get(0, "message").print()); });
  define("strftime_now", [this](TemplateCall& c) {
    const std::string format = c.get(0, "format").print();
    if (format.empty() || format.size() > 200) return Value("");
    const std::tm now = now_();
    char buffer[1024];
    const size_t n = std::strftime(buffer, sizeof buffer, format.c_str(), &now);
    return Value(std::string(buffer, n));
  });
  define("namespace", [this](TemplateCall& c) {
    auto space = std::make_shared<TableValue>();
    space->changes = true;
    for (const Value& v : c.values) {
      if (!v.is_table()) refuse("namespace() takes a mapping and named values");
      for (const auto& [key, item] : v.table().items) space->set(key, item);
    }
    for (const auto& [name, value] : c.named) space->set(Value(name), value);
    namespaces_.push_back(space);
    charge(64);
    return Value::table(std::move(space));
  });
  define("dict", [](TemplateCall& c) {
    auto table = std::make_shared<TableValue>();
    for (const Value& v : c.values) {
      if (!v.is_table()) refuse("dict() takes a mapping and named values");
      for (const auto& [key, item] : v.table().items) table->set(key, item);
    }
    for (const auto& [name, value] : c.named) table->set(Value(name), value);
    return Value::table(std::move(table));
  });
  define("range", [this](TemplateCall& c) {
    c.at_most(3, "range");
    if (c.values.empty()) refuse("range() needs a number");
    int64_t begin = 0, end = whole(c.values[0], 0), step = 1;
    if (c.values.size() > 1) {
      begin = end;
      end = whole(c.values[1], 0);
    }
    if (c.values.size() > 2) step = whole(c.values[2], 1);
    if (step == 0) refuse("range() arg 3 must not be zero");
    ValueList out;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      if (out.size() >= 100000) refuse("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
      out.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return made(std::move(out));
  });
  define("joiner", [](TemplateCall& c) {
    const Value by = c.has(0, "sep") ? c.get(0, "sep") : Value(", ");
    auto used = std::make_shared<bool>(false);
    auto f = std::make_shared<FunctionValue>();
    f->name = "joiner";
    f->call = [by, used](TemplateCall&) { return std::exchange(*used, true) ? by : Value(""); };
    return Value::function(std::move(f));
  });
  define("cycler", [](TemplateCall& c) {
    if (c.values.empty()) refuse("at least one item has to be provided");
    const ValueList items = c.values;
    auto position = std::make_shared<size_t>(0);
    auto f = std::make_shared<FunctionValue>();
    f->name = "cycler";
    f->object = "<Cycler>";
    const auto member = [&](const char* name, auto call) {
      auto m = std::make_shared<FunctionValue>();
      m->name = name;
      m->call = std::move(call);
      f->members[name] = Value::function(std::move(m));
    };
    member("next", [items, position](TemplateCall&) { return items[(*position)++ % items.size()]; });
    member("reset", [position](TemplateCall&) { return *position = 0, Value(None{}); });
    f->members["current"] = items[0];
    return Value::function(std::move(f));
  });
}

}  // namespace lumen::model::templates
