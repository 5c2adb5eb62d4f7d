#include "model/infer/schema/automata/pattern.h"

#include <algorithm>
#include <memory>
#include <string>

#include "model/text/unicode/unicode.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kLongestPattern = 8192, kMostNodes = 20000;
constexpr int kDeepest = 60, kMostRepeats = 10000;

struct Unsupported {};

struct Tree {
  enum class Kind { set, sequence, choice, repeat, begin, end } kind = Kind::sequence;
  text::CodeSet set = {};
  int least = 0, most = -1;
  std::vector<Tree> parts = {};
};

const text::CodeSet& every_character() {
  static const text::CodeSet all{{0, 0xd7ff}, {0xe000, text::kLastCode}};
  return all;
}

// The classes \d, \w and \s of ECMA-262.
const text::CodeSet& digits() {
  static const text::CodeSet set{{'0', '9'}};
  return set;
}
const text::CodeSet& word_characters() {
  static const text::CodeSet set{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
const text::CodeSet& spaces() {
  static const text::CodeSet set{{9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680},
                                 {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                 {0x3000, 0x3000}, {0xfeff, 0xfeff}};
  return set;
}
const text::CodeSet& line_ends() {
  static const text::CodeSet set{{10, 10}, {13, 13}, {0x2028, 0x2029}};
  return set;
}

text::CodeSet inverse(const text::CodeSet& set) {
  return set.complement().intersect(every_character());
}

class Parser {
 public:
  explicit Parser(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      char32_t c = 0;
      const size_t n = text::utf8_char(text, at, &c);
      if (n == 0) throw Unsupported();
      text_.push_back(c);
      at += n;
    }
  }

  struct Look {
    Tree tree;
    bool is_negated;
  };

  // The whole pattern, and the lookaheads after its leading ^.
  Tree run(std::vector<Look>* looks) {
    if (peek('^')) {
      const size_t begin = at_;
      ++at_;
      while (peek('(') && at_ + 2 < text_.size() && text_[at_ + 1] == '?' &&
             (text_[at_ + 2] == '=' || text_[at_ + 2] == '!')) {
        const bool is_negated = text_[at_ + 2] == '!';
        at_ += 3;
        Tree inner = choice(1);
        expect(')');
        if (peek('*') || peek('+') || peek('?') || peek('{')) throw Unsupported();
        looks->push_back({std::move(inner), is_negated});
      }
      if (looks->empty()) at_ = begin;
    }
    Tree all = choice(0);
    if (at_ < text_.size()) throw Unsupported();
    if (looks->empty()) return all;
    if (all.kind == Tree::Kind::choice) throw Unsupported();  // the lookaheads belong to the first alternative only
    Tree out;
    out.parts.push_back({.kind = Tree::Kind::begin});
    out.parts.push_back(std::move(all));
    return out;
  }

 private:
  bool peek(char32_t c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char32_t c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }
  void expect(char32_t c) {
    if (!take(c)) throw Unsupported();
  }
  char32_t next() {
    if (at_ >= text_.size()) throw Unsupported();
    return text_[at_++];
  }

  Tree choice(int depth) {
    if (depth > kDeepest) throw Unsupported();
    Tree out{.kind = Tree::Kind::choice};
    do out.parts.push_back(sequence(depth));
    while (take('|'));
    return out.parts.size() == 1 ? std::move(out.parts[0]) : out;
  }

  Tree sequence(int depth) {
    Tree out;
    while (at_ < text_.size() && !peek('|') && !peek(')')) {
      Tree item = atom(depth);
      if (item.kind != Tree::Kind::begin && item.kind != Tree::Kind::end) repeated(item);
      out.parts.push_back(std::move(item));
    }
    return out;
  }

  void repeated(Tree& item) {
    Tree out{.kind = Tree::Kind::repeat};
    if (take('*')) {
      out.least = 0;
    } else if (take('+')) {
      out.least = 1;
    } else if (take('?')) {
      out.most = 1;
    } else if (!peek('{') || !counts(&out)) {
      return;
    }
    take('?');  // lazy: the same language
    if (peek('*') || peek('+') || peek('?')) throw Unsupported();
    out.parts.push_back(std::move(item));
    item = std::move(out);
  }

  // {2}, {2,} or {2,5}. False and nothing read for a brace that begins no count, which is then a character.
  bool counts(Tree* out) {
    const size_t begin = at_++;
    const auto number = [&]() -> int {
      int n = -1;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        n = std::max(n, 0) * 10 + int(text_[at_++] - '0');
        if (n > kMostRepeats) throw Unsupported();
      }
      return n;
    };
    out->least = number();
    out->most = out->least;
    if (out->least >= 0 && take(',')) out->most = number();
    if (out->least < 0 || !take('}')) {
      at_ = begin;
      return false;
    }
    if (out->most >= 0 && out->most < out->least) throw Unsupported();
    return true;
  }

  static Tree of(text::CodeSet set) { return {.kind = Tree::Kind::set, .set = std::move(set)}; }

  Tree atom(int depth) {
    const char32_t c = next();
    switch (c) {
      case '^':
        return {.kind = Tree::Kind::begin};
      case '$':
        return {.kind = Tree::Kind::end};
      case '.':
        return of(inverse(line_ends()));
      case '[':
        return of(bracket());
      case '\\':
        return of(escape(false));
      case '(': {
        if (take('?') && !take(':')) {
          expect('<');
          if (peek('=') || peek('!')) throw Unsupported();
          while (next() != '>') {
          }
        }
        Tree inner = choice(depth + 1);
        expect(')');
        return inner;
      }
      case '*':
      case '+':
      case '?':
        throw Unsupported();
      default:
        return of(text::CodeSet{{c, c}});
    }
  }

  char32_t hexadecimal(int count) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const char32_t d = next();
      if (d >= '0' && d <= '9')
        value = value * 16 + (d - '0');
      else if ((d | 32) >= 'a' && (d | 32) <= 'f')
        value = value * 16 + ((d | 32) - 'a' + 10);
      else
        throw Unsupported();
    }
    return value;
  }

  char32_t unicode_escape() {
    char32_t value = 0;
    if (take('{')) {
      int count = 0;
      while (!peek('}')) {
        value = value * 16 + hexadecimal(1);
        if (++count > 6) throw Unsupported();
      }
      expect('}');
    } else {
      value = hexadecimal(4);
      if (value >= 0xd800 && value < 0xdc00 && take('\\')) {
        expect('u');
        const char32_t low = hexadecimal(4);
        if (low < 0xdc00 || low > 0xdfff) throw Unsupported();
        value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
      }
    }
    if (value > text::kLastCode || (value >= 0xd800 && value < 0xe000)) throw Unsupported();
    return value;
  }

  text::CodeSet property(bool is_inverse) {
    expect('{');
    std::string name;
    while (!peek('}')) {
      const char32_t c = next();
      if (c > 0x7e || name.size() > 60) throw Unsupported();
      name += char(c);
    }
    expect('}');
    for (const char* prefix : {"General_Category=", "gc=", "Script=", "sc="})
      if (name.starts_with(prefix)) name.erase(0, std::string_view(prefix).size());
    static constexpr std::pair<const char*, const char*> kLong[] = {{"Letter", "L"},
                                                                    {"Uppercase_Letter", "Lu"},
                                                                    {"Lowercase_Letter", "Ll"},
                                                                    {"Number", "N"},
                                                                    {"Decimal_Number", "Nd"},
                                                                    {"Punctuation", "P"},
                                                                    {"Symbol", "S"},
                                                                    {"Mark", "M"},
                                                                    {"Separator", "Z"},
                                                                    {"digit", "Nd"}};
    for (const auto& [full, brief] : kLong)
      if (name == full) name = brief;
    const std::optional<text::CodeSet> set = text::CodeSet::property(name);
    if (!set) throw Unsupported();
    return is_inverse ? inverse(*set) : set->intersect(every_character());
  }

  text::CodeSet escape(bool in_brackets) {
    const char32_t c = next();
    const auto one = [](char32_t x) { return text::CodeSet{{x, x}}; };
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return inverse(digits());
      case 'w':
        return word_characters();
      case 'W':
        return inverse(word_characters());
      case 's':
        return spaces();
      case 'S':
        return inverse(spaces());
      case 'p':
        return property(false);
      case 'P':
        return property(true);
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(hexadecimal(2));
      case 'u':
        return one(unicode_escape());
      case 'c': {
        const char32_t letter = next();
        if ((letter | 32) < 'a' || (letter | 32) > 'z') throw Unsupported();
        return one(letter % 32);
      }
      case '0':
        if (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') throw Unsupported();
        return one(0);
      case 'b':
        if (in_brackets) return one('\b');
        throw Unsupported();
      default:
        break;
    }
    const bool is_letter = (c >= '1' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    if (is_letter) throw Unsupported();
    return one(c);
  }

  text::CodeSet bracket() {
    const bool is_inverse = take('^');
    std::vector<text::CodeSet::Range> ranges;
    while (!take(']')) {
      bool is_set = false;
      const text::CodeSet first = member(&is_set);
      if (!is_set && peek('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        bool ends_in_set = false;
        const text::CodeSet last = member(&ends_in_set);
        const char32_t from = first.ranges().at(0).first;
        if (ends_in_set || last.ranges().at(0).first < from) throw Unsupported();
        ranges.emplace_back(from, last.ranges()[0].first);
        continue;
      }
      ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
    }
    const text::CodeSet set(std::move(ranges));
    return is_inverse ? inverse(set) : set.intersect(every_character());
  }
  text::CodeSet member(bool* is_set) {
    const char32_t c = next();
    if (c != '\\') return text::CodeSet{{c, c}};
    text::CodeSet out = escape(true);
    *is_set = out.ranges().size() != 1 || out.ranges()[0].first != out.ranges()[0].second;
    return out;
  }

  std::u32string text_;
  size_t at_ = 0;
};

// Builds the automaton from its end: every node knows its successor when it is made.
class Builder {
 public:
  Nfa run(const Tree& tree) {
    const uint32_t match = add({.kind = Nfa::Node::Kind::match});
    out_.start = put(tree, match);
    return std::move(out_);
  }

 private:
  uint32_t add(Nfa::Node node) {
    if (out_.nodes.size() >= kMostNodes) throw Unsupported();
    out_.nodes.push_back(node);
    return uint32_t(out_.nodes.size() - 1);
  }

  uint32_t put(const Tree& t, uint32_t next) {
    using Kind = Nfa::Node::Kind;
    switch (t.kind) {
      case Tree::Kind::set:
        if (out_.sets.empty() || !(out_.sets.back() == t.set)) out_.sets.push_back(t.set);
        return add({.kind = Kind::set, .set = uint32_t(out_.sets.size() - 1), .next = next});
      case Tree::Kind::begin:
        return add({.kind = Kind::begin, .next = next});
      case Tree::Kind::end:
        return add({.kind = Kind::end, .next = next});
      case Tree::Kind::sequence:
        for (size_t i = t.parts.size(); i-- > 0;) next = put(t.parts[i], next);
        return next;
      case Tree::Kind::choice: {
        uint32_t out = put(t.parts.back(), next);
        for (size_t i = t.parts.size() - 1; i-- > 0;) {
          const uint32_t one = put(t.parts[i], next);
          out = add({.kind = Kind::split, .next = one, .other = out});
        }
        return out;
      }
      case Tree::Kind::repeat:
        return put_repeat(t, next);
    }
    return next;
  }

  uint32_t put_repeat(const Tree& t, uint32_t next) {
    using Kind = Nfa::Node::Kind;
    uint32_t out = next;
    if (t.most < 0) {
      const uint32_t loop = add({.kind = Kind::split, .next = next, .other = next});
      const uint32_t body = put(t.parts[0], loop);
      out_.nodes[loop].next = body;
      out = loop;
    } else {
      for (int i = t.least; i < t.most; ++i) {
        const uint32_t body = put(t.parts[0], out);
        out = add({.kind = Kind::split, .next = body, .other = next});
      }
    }
    for (int i = 0; i < t.least; ++i) {
      out = put(t.parts[0], out);
      if (++copies_ > kMostNodes) throw Unsupported();  // copies of something empty add no node
    }
    return out;
  }

  Nfa out_;
  size_t copies_ = 0;
};

bool matches_part(const Nfa& nfa, std::string_view text) {
  std::vector<uint8_t> seen(nfa.nodes.size(), 0);
  std::vector<uint32_t> here, next;
  const auto has_match = [&](const std::vector<uint32_t>& set) {
    return std::any_of(set.begin(), set.end(), [&](uint32_t n) { return nfa.nodes[n].kind == Nfa::Node::Kind::match; });
  };
  nfa.close(nfa.start, true, text.empty(), seen, here);
  for (size_t at = 0; at < text.size();) {
    if (has_match(here)) return true;
    char32_t c = 0;
    const size_t n = text::utf8_char(text, at, &c);
    if (n == 0) c = 0xfffd;
    at += std::max<size_t>(n, 1);
    next.clear();
    std::fill(seen.begin(), seen.end(), 0);
    const bool at_end = at >= text.size();
    for (const uint32_t node : here)
      if (nfa.nodes[node].kind == Nfa::Node::Kind::set && nfa.sets[nfa.nodes[node].set].contains(c))
        nfa.close(nfa.nodes[node].next, false, at_end, seen, next);
    nfa.close(nfa.start, false, at_end, seen, next);
    here.swap(next);
  }
  return has_match(here);
}

}  // namespace

void Nfa::close(uint32_t node, bool at_begin, bool at_end, std::vector<uint8_t>& seen,
                std::vector<uint32_t>& out) const {
  std::vector<uint32_t> open{node};
  while (!open.empty()) {
    const uint32_t n = open.back();
    open.pop_back();
    if (seen[n]) continue;
    seen[n] = 1;
    const Node& at = nodes[n];
    switch (at.kind) {
      case Node::Kind::set:
      case Node::Kind::match:
        out.push_back(n);
        break;
      case Node::Kind::split:
        open.push_back(at.other);
        open.push_back(at.next);
        break;
      case Node::Kind::begin:
        if (at_begin) open.push_back(at.next);
        break;
      case Node::Kind::end:
        // Kept in the set, so that the end of the text can be found later.
        out.push_back(n);
        if (at_end) open.push_back(at.next);
        break;
    }
  }
}

std::optional<EcmaPattern> EcmaPattern::parse(std::string_view ecma) {
  if (ecma.size() > kLongestPattern) return std::nullopt;
  try {
    Parser parser(ecma);
    std::vector<Parser::Look> looks;
    const Tree tree = parser.run(&looks);
    EcmaPattern out;
    out.parts_.push_back({Builder().run(tree), false});
    for (auto& look : looks) {
      Tree anchored;
      anchored.parts.push_back({.kind = Tree::Kind::begin});
      anchored.parts.push_back(std::move(look.tree));
      out.parts_.push_back({Builder().run(anchored), look.is_negated});
    }
    return out;
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

bool EcmaPattern::matches(std::string_view text) const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [&](const Part& p) { return matches_part(p.nfa, text) != p.is_negated; });
}

size_t EcmaPattern::size() const {
  size_t out = 0;
  for (const Part& p : parts_) out += p.nfa.nodes.size();
  return out;
}

}  // namespace lumen::model::infer
