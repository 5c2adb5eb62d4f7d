// Graphs from text; the inverse of print.cpp. The text is untrusted: every mistake is an Error with its position, and
// the parsed graph is verified. Proved by tests/graph/ir/text_test.cpp.
#include <cctype>
#include <charconv>
#include <map>

#include "graph/ir/build.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"

namespace lumen::graph {

namespace {

constexpr size_t kMaxNodes = 1 << 22;
constexpr size_t kMaxRank = 32;

template <size_t N>
std::optional<int> position(const std::string_view (&names)[N], std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::optional<Op> op_from_name(std::string_view name) {
  for (int op = 0; op < op_count(); ++op) {
    if (op_info(static_cast<Op>(op)).name == name) return static_cast<Op>(op);
  }
  return std::nullopt;
}

class Parser {
 public:
  Parser(SourceRef source, const FormatLookup& formats) : source_(std::move(source)), formats_(formats) {}

  std::vector<std::shared_ptr<Graph>> file() {
    std::vector<std::shared_ptr<Graph>> graphs;
    while (skip_blank(), at_ < text().size()) {
      auto g = std::make_shared<Graph>(graph());
      if (callees_.contains(g->name)) fail(fmt::format("a second graph is called {}", g->name));
      callees_[g->name] = g;
      graphs.push_back(g);
    }
    return graphs;
  }

 private:
  // --- characters and words
  const std::string& text() const { return source_->text; }
  char peek() const { return at_ < text().size() ? text()[at_] : '\0'; }
  static bool word_part(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  }

  [[noreturn]] void fail(std::string_view message, std::string_view hint = {}) const { fail_from(at_, message, hint); }
  [[noreturn]] void fail_from(size_t begin, std::string_view message, std::string_view hint = {}) const {
    const uint32_t limit = text().size();
    const uint32_t from = std::min<uint32_t>(begin, limit);
    throw error_at({source_, from, std::max(std::min(from + 1, limit), std::min<uint32_t>(at_, limit))}, message, hint);
  }

  void skip_blank() {
    for (;; ++at_) {
      if (peek() == '#') {
        while (at_ < text().size() && peek() != '\n') ++at_;
      }
      if (at_ >= text().size() || !std::isspace(static_cast<unsigned char>(peek()))) return;
    }
  }

  bool accept(std::string_view token) {
    skip_blank();
    if (text().compare(at_, token.size(), token) != 0) return false;
    const bool word = word_part(token.back());
    if (word && at_ + token.size() < text().size() && word_part(text()[at_ + token.size()])) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("expected '{}'", token));
  }

  std::string word(std::string_view what) {
    skip_blank();
    const size_t begin = at_;
    while (word_part(peek())) ++at_;
    if (begin == at_) fail(fmt::format("expected {}", what));
    return text().substr(begin, at_ - begin);
  }

  std::string quoted() {
    expect("\"");
    std::string s;
    while (peek() != '"') {
      char c = peek();
      if (at_ >= text().size()) fail("the string does not end");
      ++at_;
      if (c == '\\') {
        c = peek();
        ++at_;
        if (c == 'n') c = '\n';
        if (c == 't') c = '\t';
      }
      s += c;
    }
    ++at_;
    return s;
  }

  std::string name(std::string_view what) {
    skip_blank();
    return peek() == '"' ? quoted() : word(what);
  }

  template <typename Number>
  Number number() {
    skip_blank();
    Number n{};
    const auto [end, status] = std::from_chars(text().data() + at_, text().data() + text().size(), n);
    if (status != std::errc()) fail("expected a number");
    at_ = static_cast<size_t>(end - text().data());
    return n;
  }

  template <typename Item>
  std::vector<Item> list(std::string_view open, std::string_view close) {
    std::vector<Item> items;
    expect(open);
    if (accept(close)) return items;
    do items.push_back(number<Item>());
    while (accept(","));
    expect(close);
    return items;
  }

  // --- types
  std::string symbol_word() {
    const size_t begin = at_;
    const auto part = [&](char c) { return (std::isalnum(static_cast<unsigned char>(c)) || c == '_') && c != 'x'; };
    while (part(peek())) ++at_;
    return text().substr(begin, at_ - begin);
  }

  // One factor of a dimension: 12, T or (any name). nullopt if the next word is an element's name.
  std::optional<Dim> factor() {
    const char c = peek();
    if (std::isdigit(static_cast<unsigned char>(c))) return Dim(number<int64_t>());
    if (c >= 'A' && c <= 'Z') return Dim(symbol_word());
    if (c != '(') return std::nullopt;
    const size_t begin = at_++;
    std::string inner = word("a symbol");
    expect(")");
    if (peek() == '>') {  // it was an element
      at_ = begin;
      return std::nullopt;
    }
    return Dim(std::move(inner));
  }

  Element element() {
    const size_t begin = at_;
    const bool parentheses = accept("(");
    const std::string s = word("a scalar type or a format");
    if (parentheses) expect(")");
    if (const auto scalar = scalar_from_name(s); scalar && !parentheses) return {*scalar, nullptr};
    FormatRef format = formats_ ? formats_(s) : nullptr;
    if (!format) fail_from(begin, fmt::format("'{}' is neither a scalar type nor a known format", s));
    return {Scalar::f32, format};
  }

  Type type() {
    expect("tensor");
    expect("<");
    Type t;
    while (auto dim = factor()) {
      while (peek() == '*') {
        ++at_;
        const auto next = factor();
        if (!next) fail("expected a factor of the dimension");
        dim = *dim * *next;
      }
      if (peek() != 'x') fail("expected 'x' after a dimension");
      ++at_;
      t.shape.push_back(*dim);
      if (t.shape.size() > kMaxRank) fail(fmt::format("more than {} axes", kMaxRank));
    }
    t.element = element();
    expect(">");
    return t;
  }

  // --- nodes
  Role role() {
    const std::string s = word("data, parameter or state");
    constexpr std::string_view kNames[] = {"data", "parameter", "state"};
    const auto r = position(kNames, s);
    if (!r) fail(fmt::format("'{}' is no role", s), "data, parameter or state");
    return static_cast<Role>(*r);
  }

  ValueId value() {
    expect("%");
    const size_t begin = at_ - 1;
    const std::string opening = peek() == '"' ? "\"" : "";
    const std::string s = opening + name("a value");
    const auto found = values_.find(s);
    if (found == values_.end()) fail_from(begin, fmt::format("%{} is not defined above", s));
    return found->second;
  }

  void attribute(Attributes& a, std::string_view word_) {
    if (word_ == "role") {
      a.role = role();
    } else if (word_ == "data") {
      a.data = list<double>("{", "}");
    } else if (word_ == "axis" || word_ == "index") {
      expect(word_);
      expect("=");
      (word_ == "axis" ? a.axis : a.index) = number<int>();
    } else if (word_ == "carries" || word_ == "sequences") {
      expect(word_);
      expect("=");
      (word_ == "carries" ? a.carries : a.sequences) = number<int>();
    } else if (word_ == "reverse") {
      a.reverse = accept(word_);
    } else if (word_ == "axes") {
      expect("axes=");
      a.axes = list<int>("[", "]");
    } else if (word_ == "formula") {
      a.formula = parse_formula(source_, &at_);
    } else if (word_ == "indices") {
      expect("(");
      do a.indices.push_back(letters());
      while (accept(","));
      expect("->");
      a.indices.push_back(letters());
      expect(")");
    } else if (word_ == "reduction") {
      constexpr std::string_view kNames[] = {"sum", "max", "min"};
      const auto r = position(kNames, word("a reduction"));
      if (!r) fail("expected sum, max or min");
      a.reduction = static_cast<Reduction>(*r);
    } else if (word_ == "starts") {
      expect("starts=");
      a.starts = list<int64_t>("[", "]");
      a.strides.assign(a.starts.size(), 1);
    } else if (word_ == "strides") {
      if (accept("strides=")) a.strides = list<int64_t>("[", "]");
    } else if (word_ == "subscripts") {
      expect("at=");
      subscripts(a);
    } else if (word_ == "sources") {
      if (accept("sources=")) sources(a);
    } else if (word_ == "salt") {
      expect("salt=");
      a.salt = number<uint32_t>();
    } else if (word_ == "moves") {
      constexpr std::string_view kNames[] = {"gather", "spread"};
      const auto m = position(kNames, word("the operand of an exchange"));
      if (!m) fail("expected gather or spread");
      a.moves = Moves(*m);
    } else if (word_ == "ranks") {
      expect("ranks=");
      a.ranks = number<int>();
    } else if (word_ == "callee") {
      expect("@");
      a.name = name("a graph's name");
      const auto found = callees_.find(a.name);
      if (found == callees_.end()) fail(fmt::format("no graph @{} above", a.name));
      a.callee = found->second;
    }
  }

  std::string letters() {
    skip_blank();
    const size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek()))) ++at_;
    return text().substr(begin, at_ - begin);
  }

  // Positions at which axes are read: [i0, 2*i1+i2+3, 0]. The number of indices is known with the type: see
  // spread_subscripts.
  void subscripts(Attributes& a) {
    terms_.clear();
    expect("[");
    do {
      int64_t start = 0;
      do {
        int64_t stride = 1;
        if (!accept_index()) {
          stride = number<int64_t>();
          if (!accept("*")) {
            if (__builtin_add_overflow(start, stride, &start)) fail("the subscript is too large");
            continue;
          }
          if (!accept_index()) fail("expected an index: i0, i1, ..");
        }
        const size_t index = number<uint32_t>();
        if (index >= kMaxRank) fail(fmt::format("more than {} axes", kMaxRank));
        terms_.push_back({a.starts.size(), index, stride});
      } while (accept("+"));
      a.starts.push_back(start);
      if (a.starts.size() > kMaxRank) fail(fmt::format("more than {} axes", kMaxRank));
    } while (accept(","));
    expect("]");
  }
  bool accept_index() {
    skip_blank();
    if (peek() != 'i') return false;
    ++at_;
    return true;
  }
  void spread_subscripts(Node& node, size_t begin) const {
    const size_t rank = node.type.shape.size();
    node.attributes.strides.assign(node.attributes.starts.size() * rank, 0);
    for (const Term& t : terms_) {
      if (t.index >= rank)
        fail_from(begin, fmt::format("there is no index i{}: the result has {} axes", t.index, rank));
      int64_t& stride = node.attributes.strides[t.axis * rank + t.index];
      if (__builtin_add_overflow(stride, t.stride, &stride)) fail_from(begin, "the subscript is too large");
    }
  }

  void sources(Attributes& a) {
    constexpr std::string_view kNames[] = {"fitted", "learned", "supplied", "delayed", "predicted"};
    expect("[");
    do {
      const int field = number<int>();
      expect(":");
      const auto source = position(kNames, word("a source"));
      if (!source) fail("no such source of a field", "fitted, learned, supplied, delayed or predicted");
      a.sources.emplace_back(field, static_cast<FieldSource>(*source));
    } while (accept(","));
    expect("]");
  }

  void add(Graph& g, Node node, const std::string& key, size_t begin) {
    if (std::string wrong = check_type(g, node); !wrong.empty()) fail_from(begin, wrong);
    if (g.nodes.size() >= kMaxNodes) fail("the graph is too large");
    if (!values_.emplace(key, static_cast<ValueId>(g.nodes.size())).second) {
      fail_from(begin, fmt::format("%{} is defined twice", key));
    }
    g.nodes.push_back(std::move(node));
  }

  // `%name: role type` in the head.
  void head_input(Graph& g) {
    skip_blank();
    const size_t begin = at_;
    expect("%");
    const bool in_quotes = peek() == '"';
    Node node{Op::input_, {}, {}, {}, {}};
    node.attributes.name = name("a name");
    expect(":");
    node.attributes.role = role();
    node.type = type();
    label(node);
    const std::string key = (in_quotes ? "\"" : "") + node.attributes.name;  // a quoted name is never a number
    add(g, std::move(node), key, begin);
  }

  void label(Node& node) {
    skip_blank();
    if (peek() == '"') node.label = quoted();
  }

  void statement(Graph& g) {
    skip_blank();
    const size_t begin = at_;
    expect("%");
    const bool in_quotes = peek() == '"';
    const std::string defined = name("a value");
    expect("=");
    const std::string op_name = word("an operator");
    const auto op = op_from_name(op_name);
    if (!op) fail_from(at_ - op_name.size(), fmt::format("'{}' is no operator", op_name));
    Node node{*op, {}, {}, {}, {}};
    if (*op == Op::input_) {
      node.attributes.name = defined;
    } else if (defined != std::to_string(g.nodes.size())) {
      fail_from(begin, fmt::format("value number {} is written %{}", g.nodes.size(), defined));
    }
    skip_blank();
    if (peek() == '%') {
      do node.operands.push_back(value());
      while (accept(","));
    }
    std::string_view words = op_info(*op).attributes;
    while (!words.empty()) {
      const size_t end = std::min(words.find(' '), words.size());
      attribute(node.attributes, words.substr(0, end));
      words.remove_prefix(std::min(end + 1, words.size()));
    }
    expect(":");
    node.type = type();
    if (*op == Op::windows_) spread_subscripts(node, begin);
    label(node);
    add(g, std::move(node), (in_quotes ? "\"" : "") + defined, begin);
  }

  Graph graph() {
    const size_t begin = at_;
    expect("graph");
    Graph g;
    values_.clear();
    g.name = name("the graph's name");
    expect("(");
    if (!accept(")")) {
      do head_input(g);
      while (accept(","));
      expect(")");
    }
    expect("{");
    while (skip_blank(), peek() == '%') statement(g);
    if (accept("return")) {
      do {
        skip_blank();
        std::string result_name;
        if (peek() != '%') {
          result_name = name("a result's name");
          expect("=");
        }
        g.result_names.push_back(std::move(result_name));
        g.results.push_back(value());
      } while (accept(","));
    }
    expect("}");
    if (std::string wrong = verify(g); !wrong.empty()) fail_from(begin, wrong);
    return g;
  }

  struct Term {  // stride * index, on an axis
    size_t axis, index;
    int64_t stride;
  };

  SourceRef source_;
  const FormatLookup& formats_;
  size_t at_ = 0;
  std::vector<Term> terms_;                // of the last subscripts parsed
  std::map<std::string, ValueId> values_;  // by spelling: quoted names keep their opening quote
  std::map<std::string, std::shared_ptr<const Graph>> callees_;
};

}  // namespace

std::vector<std::shared_ptr<Graph>> parse(SourceRef source, const FormatLookup& formats) {
  return Parser(std::move(source), formats).file();
}

}  // namespace lumen::graph
