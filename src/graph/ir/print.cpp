// Graphs as text. Each attribute in a row of op.def has one spelling, so new operators need no code here.
// Invariant: parse(print(g)) == g. Proved by tests/graph/ir/text_test.cpp.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "base/check.h"
#include "base/ordinal.h"
#include "graph/ir/text.h"

namespace lumen::graph {

namespace {

std::string quote(std::string_view s) {
  std::string text = "\"";
  for (char c : s) {
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text + '"';
}

// A name that needs no quotes: a letter or _, then letters, digits, _ . and -.
std::string print_name(std::string_view s) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; };
  const bool plain = !s.empty() && letter(s[0]) && std::all_of(s.begin(), s.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
  });
  return plain ? std::string(s) : quote(s);
}

template <typename List>
std::string bracketed(const List& list) {
  return fmt::format("[{}]", fmt::join(list, ", "));
}

std::string_view role_name(Role r) {
  constexpr std::string_view kNames[] = {"data", "parameter", "state"};
  return kNames[ordinal(r)];
}

std::string print_value(const Graph& g, ValueId v) {
  return "%" + (g[v].op == Op::input_ ? print_name(g[v].attributes.name) : std::to_string(v));
}

// i0, 2*i1+i2+3, 0: positions at which an operand's axes are read, by the result's indices.
std::string print_subscripts(const Attributes& a) {
  std::vector<std::string> subscripts;
  const size_t rank = a.starts.empty() ? 0 : a.strides.size() / a.starts.size();
  for (size_t d = 0; d < a.starts.size(); ++d) {
    std::string text;
    for (size_t j = 0; j < rank; ++j) {
      const int64_t stride = a.strides[d * rank + j];
      if (stride == 0) continue;
      text += fmt::format("{}{}i{}", text.empty() ? "" : "+", stride == 1 ? "" : fmt::format("{}*", stride), j);
    }
    if (a.starts[d] != 0 || text.empty()) text += fmt::format("{}{}", text.empty() ? "" : "+", a.starts[d]);
    subscripts.push_back(std::move(text));
  }
  return bracketed(subscripts);
}

// Names of graphs in the text: bodies that passes made from one graph have the same name, and get a number.
using Names = std::map<const Graph*, std::string>;

std::string print_attribute(const Attributes& a, std::string_view word, const Names& names) {
  if (word == "name") return {};  // the value itself has this name
  if (word == "role") return std::string(role_name(a.role));
  if (word == "data") return fmt::format("{{{}}}", fmt::join(a.data, ", "));
  if (word == "axis") return fmt::format("axis={}", a.axis);
  if (word == "axes") return "axes=" + bracketed(a.axes);
  if (word == "formula") return print_formula(a.formula);
  if (word == "indices")
    return fmt::format("({}->{})", fmt::join(a.indices.begin(), a.indices.end() - 1, ","), a.indices.back());
  if (word == "reduction") {
    constexpr std::string_view kNames[] = {"sum", "max", "min"};
    return std::string(kNames[ordinal(a.reduction)]);
  }
  if (word == "starts") return "starts=" + bracketed(a.starts);
  if (word == "strides") {
    const bool dense = std::all_of(a.strides.begin(), a.strides.end(), [](int64_t s) { return s == 1; });
    return dense ? std::string() : "strides=" + bracketed(a.strides);
  }
  if (word == "subscripts") return "at=" + print_subscripts(a);
  if (word == "sources") {
    if (a.sources.empty()) return {};
    constexpr std::string_view kNames[] = {"fitted", "learned", "supplied", "delayed", "predicted"};
    std::vector<std::string> items;
    for (const auto& [field, source] : a.sources) items.push_back(fmt::format("{}:{}", field, kNames[ordinal(source)]));
    return "sources=" + bracketed(items);
  }
  if (word == "salt") return fmt::format("salt={}", a.salt);
  if (word == "moves") return a.moves == Moves::gather ? "gather" : "spread";
  if (word == "ranks") return fmt::format("ranks={}", a.ranks);
  if (word == "callee") return "@" + print_name(names.at(a.callee.get()));
  if (word == "carries") return fmt::format("carries={}", a.carries);
  if (word == "sequences") return fmt::format("sequences={}", a.sequences);
  if (word == "reverse") return a.reverse ? "reverse" : "";
  if (word == "index") return fmt::format("index={}", a.index);
  LUMEN_UNREACHABLE("op.def names an attribute without a spelling: {}", word);
}

std::string print_node(const Graph& g, ValueId v, const Names& names) {
  const Node& n = g[v];
  std::string text = fmt::format("  {} = {}", print_value(g, v), op_info(n.op).name);
  for (size_t i = 0; i < n.operands.size(); ++i) text += (i == 0 ? " " : ", ") + print_value(g, n.operands[i]);
  std::string_view words = op_info(n.op).attributes;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    const std::string attribute = print_attribute(n.attributes, words.substr(0, end), names);
    if (!attribute.empty()) text += " " + attribute;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  text += " : " + print(n.type);
  if (!n.label.empty()) text += " " + quote(n.label);
  return text + "\n";
}

// Inputs at the beginning of the graph are printed in its head; later ones are statements.
std::string print_one(const Graph& g, const Names& names) {
  std::string text = "graph " + print_name(names.at(&g)) + "(";
  ValueId v = 0;
  const ValueId count = g.nodes.size();
  for (; v < count && g[v].op == Op::input_; ++v) {
    if (v > 0) text += ", ";
    text += fmt::format("{}: {} {}", print_value(g, v), role_name(g[v].attributes.role), print(g[v].type));
    if (!g[v].label.empty()) text += " " + quote(g[v].label);
  }
  text += ") {\n";
  for (; v < count; ++v) text += print_node(g, v, names);
  for (size_t r = 0; r < g.results.size(); ++r) {
    text += r == 0 ? "  return " : ", ";
    if (!g.result_names[r].empty()) text += print_name(g.result_names[r]) + " = ";
    text += print_value(g, g.results[r]);
  }
  return text + (g.results.empty() ? "}\n" : "\n}\n");
}

void print_all(const Graph& g, Names& names, std::set<std::string>& taken, std::string& text) {
  for (const Node& n : g.nodes) {
    const Graph* callee = n.attributes.callee.get();
    if (callee && !names.contains(callee)) print_all(*callee, names, taken, text);
  }
  std::string name = g.name;
  for (int number = 2; !taken.insert(name).second; ++number) name = fmt::format("{}.{}", g.name, number);
  names[&g] = std::move(name);
  if (!text.empty()) text += "\n";
  text += print_one(g, names);
}

}  // namespace

std::string print(const Graph& g) {
  Names names;
  std::set<std::string> taken;
  std::string text;
  print_all(g, names, taken, text);
  return text;
}

}  // namespace lumen::graph
