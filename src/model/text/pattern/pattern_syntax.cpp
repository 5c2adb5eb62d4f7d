#include "model/text/pattern/pattern_syntax.h"

#include <algorithm>
#include <memory>

#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

constexpr size_t kMaxNodes = 4096;
constexpr int kMaxDepth = 64, kMaxRepeat = 64;

struct Tree {
  enum class Kind { empty, set, ahead, sequence, choice, repeat } kind = Kind::empty;
  CodeSet set = {};
  bool end_allowed = false;
  int least = 0, most = 0;  // most -1: unlimited
  bool lazy = false;
  std::vector<Tree> parts = {};
};

struct Outside {};  // thrown at a construct outside the subset

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Tree parse() {
    Tree tree = choice(0);
    if (at_ != text_.size()) throw Outside();
    return tree;
  }

 private:
  bool more() const { return at_ < text_.size(); }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  char32_t next() {
    char32_t c;
    const size_t n = more() ? utf8_char(text_, at_, &c) : 0;
    if (n == 0) throw Outside();
    at_ += n;
    return c;
  }

  Tree choice(int depth) {
    if (depth > kMaxDepth) throw Outside();
    Tree out{.kind = Tree::Kind::choice};
    out.parts.push_back(sequence(depth));
    while (take("|")) out.parts.push_back(sequence(depth));
    return out.parts.size() == 1 ? std::move(out.parts[0]) : out;
  }

  Tree sequence(int depth) {
    Tree out{.kind = Tree::Kind::sequence};
    while (more() && text_[at_] != '|' && text_[at_] != ')') out.parts.push_back(quantified(depth));
    return out;
  }

  Tree quantified(int depth) {
    Tree item = atom(depth);
    while (more()) {
      Tree out{.kind = Tree::Kind::repeat};
      if (take("?")) {
        out.most = 1;
      } else if (take("*")) {
        out.most = -1;
      } else if (take("+")) {
        out.least = 1;
        out.most = -1;
      } else if (text_[at_] == '{' && !counts(&out)) {
        throw Outside();
      } else if (out.most == 0 && out.least == 0) {
        break;
      }
      if (take("+")) throw Outside();  // possessive
      out.lazy = take("?");
      if (item.kind == Tree::Kind::ahead) throw Outside();
      out.parts.push_back(std::move(item));
      item = std::move(out);
    }
    return item;
  }

  bool counts(Tree* out) {
    const size_t begin = at_;
    const auto number = [&]() -> int {
      int n = -1;
      while (more() && text_[at_] >= '0' && text_[at_] <= '9' && n <= kMaxRepeat)
        n = std::max(n, 0) * 10 + (text_[at_++] - '0');
      return n;
    };
    take("{");
    out->least = number();
    out->most = out->least;
    if (out->least >= 0 && take(",")) out->most = number();
    if (out->least < 0 || !take("}") || out->least > kMaxRepeat || out->most > kMaxRepeat ||
        (out->most >= 0 && out->most < out->least) || out->most == 0) {
      at_ = begin;
      return false;
    }
    return true;
  }

  static Tree single(CodeSet set) { return {.kind = Tree::Kind::set, .set = std::move(set)}; }

  Tree atom(int depth) {
    const size_t begin = at_;
    if (take("(")) {
      const bool was = fold_;
      Tree out;
      if (take("?!") || take("?=")) {
        const bool negative = text_[at_ - 1] == '!';
        const Tree inside = choice(depth + 1);
        out = {.kind = Tree::Kind::ahead, .end_allowed = negative};
        const CodeSet* set = single_set(inside);
        if (!set) throw Outside();
        out.set = negative ? set->complement() : *set;
      } else {
        if (take("?i:")) {
          fold_ = true;
        } else if (!take("?:") && more() && (text_[at_] == '?' || text_[at_] == '*')) {
          throw Outside();
        }
        out = choice(depth + 1);
      }
      fold_ = was;
      if (!take(")")) throw Outside();
      return out;
    }
    if (take("[")) {
      if (fold_) throw Outside();
      return single(bracket(depth));
    }
    if (take(".")) return single(CodeSet{{'\n', '\n'}}.complement());
    if (take("$")) return {.kind = Tree::Kind::ahead, .set = {{'\n', '\n'}}, .end_allowed = true};
    if (take("\\")) return single(escape(false));
    const char32_t c = next();
    if (c == '^' || c == '*' || c == '+' || c == '?' || c == ')' || c == '{') {
      at_ = begin;
      throw Outside();
    }
    return single(letter(c));
  }

  static const CodeSet* single_set(const Tree& t) {
    if (t.kind == Tree::Kind::set) return &t.set;
    if (t.kind == Tree::Kind::sequence && t.parts.size() == 1) return single_set(t.parts[0]);
    return nullptr;
  }

  // A character with its other case, if case is ignored.
  CodeSet letter(char32_t c) const {
    if (!fold_) return {{c, c}};
    if (c >= 0x80) throw Outside();
    const char32_t low = c | 0x20;
    if (low < 'a' || low > 'z') return {{c, c}};
    CodeSet set{{low, low}, {low - 0x20, low - 0x20}};
    if (low == 's') set = set.unite({{0x17f, 0x17f}});
    if (low == 'k') set = set.unite({{0x212a, 0x212a}});
    return set;
  }

  char32_t hex(size_t digits) {
    char32_t value = 0;
    size_t n = 0;
    for (; n < digits && more(); ++n) {
      const char c = text_[at_];
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) break;
      value = value * 16 + static_cast<char32_t>(d);
      ++at_;
    }
    if (n == 0 || value > kLastCode) throw Outside();
    return value;
  }

  // Parses an escape after its backslash. `*code` is set when it is a single character.
  CodeSet escape(bool inside, std::optional<char32_t>* code = nullptr) {
    const char32_t c = next();
    const auto one = [&](char32_t x) {
      if (code) *code = x;
      return inside ? CodeSet{{x, x}} : letter(x);
    };
    switch (c) {
      case 's':
        return CodeSet::white_space();
      case 'S':
        return CodeSet::white_space().complement();
      case 'd':
        return *CodeSet::property("Nd");
      case 'D':
        return CodeSet::property("Nd")->complement();
      case 'w':
        return CodeSet::pattern_word(inside);
      case 'W':
        return CodeSet::pattern_word(inside).complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'x': {
        if (!take("{")) {
          const size_t begin = at_;
          const char32_t value = hex(2);
          if (at_ - begin != 2) throw Outside();
          return one(value);
        }
        const char32_t value = hex(6);
        if (!take("}")) throw Outside();
        return one(value);
      }
      case 'p':
      case 'P': {
        if (fold_) throw Outside();
        std::string_view name = text_.substr(at_, 1);
        ++at_;
        if (name == "{") {
          const size_t end = text_.find('}', at_);
          if (end == std::string_view::npos) throw Outside();
          name = text_.substr(at_, end - at_);
          at_ = end + 1;
        }
        bool negative = c == 'P';
        if (name.starts_with("^")) {
          negative = !negative;
          name.remove_prefix(1);
        }
        const auto set = CodeSet::property(name);
        if (!set) throw Outside();
        return negative ? set->complement() : *set;
      }
      default:
        // Letters and digits have special meanings; any other character is literal.
        if (c < 0x80 && (std::isalnum(c) != 0)) throw Outside();
        return one(c);
    }
  }

  CodeSet bracket(int depth) {
    if (depth > kMaxDepth) throw Outside();
    const bool negative = take("^");
    CodeSet out;
    bool first = true;
    for (;; first = false) {
      if (!more()) throw Outside();
      if (text_[at_] == ']') {
        if (first) throw Outside();
        ++at_;
        break;
      }
      if (take("&&")) {
        // Intersection with the rest of the class.
        const size_t begin = at_;
        CodeSet rest;
        while (more() && text_[at_] != ']') rest = rest.unite(item(depth));
        if (at_ == begin) throw Outside();
        out = out.intersect(rest);
        continue;
      }
      out = out.unite(item(depth));
    }
    return negative ? out.complement() : out;
  }

  CodeSet item(int depth) {
    if (take("[")) {
      if (take(":")) throw Outside();
      return bracket(depth + 1);
    }
    std::optional<char32_t> from;
    CodeSet set;
    if (take("\\")) {
      set = escape(true, &from);
    } else {
      from = next();
      set = {{*from, *from}};
    }
    if (!from || at_ + 1 >= text_.size() || text_[at_] != '-' || text_[at_ + 1] == ']') return set;
    ++at_;
    std::optional<char32_t> to;
    if (take("\\")) {
      escape(true, &to);
    } else if (text_[at_] == '[') {
      throw Outside();
    } else {
      to = next();
    }
    if (!to || *to < *from) throw Outside();
    return {{*from, *to}};
  }

  std::string_view text_;
  size_t at_ = 0;
  bool fold_ = false;
};

class Builder {
 public:
  PatternGraph build(const Tree& tree) {
    const int32_t accept = node({});
    graph_.start = put(tree, accept);
    return std::move(graph_);
  }

 private:
  int32_t node(PatternNode n) {
    if (graph_.nodes.size() >= kMaxNodes) throw Outside();
    graph_.nodes.push_back(n);
    return graph_.nodes.size() - 1;
  }
  int32_t set(const CodeSet& s) {
    const auto found = std::find(graph_.sets.begin(), graph_.sets.end(), s);
    if (found != graph_.sets.end()) return found - graph_.sets.begin();
    graph_.sets.push_back(s);
    return graph_.sets.size() - 1;
  }
  int32_t fork(int32_t first, int32_t second) {
    return node({.kind = PatternNode::Kind::fork, .next = first, .other = second});
  }

  // The start node of `tree`, which continues at node `then`.
  int32_t put(const Tree& tree, int32_t then) {
    switch (tree.kind) {
      case Tree::Kind::empty:
        return then;
      case Tree::Kind::set:
        return node({.kind = PatternNode::Kind::set, .set = set(tree.set), .next = then});
      case Tree::Kind::ahead:
        return node(
            {.kind = PatternNode::Kind::ahead, .set = set(tree.set), .next = then, .end_allowed = tree.end_allowed});
      case Tree::Kind::sequence:
        for (size_t i = tree.parts.size(); i-- > 0;) then = put(tree.parts[i], then);
        return then;
      case Tree::Kind::choice: {
        int32_t out = put(tree.parts.back(), then);
        for (size_t i = tree.parts.size() - 1; i-- > 0;) out = fork(put(tree.parts[i], then), out);
        return out;
      }
      case Tree::Kind::repeat: {
        const Tree& part = tree.parts[0];
        int32_t out = then;
        if (tree.most < 0) {
          const int32_t loop = fork(-1, -1);
          const int32_t body = put(part, loop);
          graph_.nodes[loop].next = tree.lazy ? then : body;
          graph_.nodes[loop].other = tree.lazy ? body : then;
          out = loop;
        } else {
          for (int i = tree.least; i < tree.most; ++i) {
            const int32_t body = put(part, out);
            out = tree.lazy ? fork(then, body) : fork(body, then);
          }
        }
        for (int i = 0; i < tree.least; ++i) out = put(part, out);
        return out;
      }
    }
    return then;
  }

  PatternGraph graph_;
};

}  // namespace

std::optional<PatternGraph> parse_pattern(std::string_view text) {
  try {
    return Builder().build(Parser(text).parse());
  } catch (const Outside&) {
    return std::nullopt;
  }
}

}  // namespace lumen::model::text
