#include "model/infer/grammar/grammar.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/place.h"
#include "model/text/unicode/code_set.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kLongestText = size_t{4} << 20, kMostElements = size_t{1} << 21;
constexpr int kDeepest = 100, kMostRepeats = 4096;

// The syntax tree of a grammar.
struct Tree {
  enum class Kind { text, set, rule, sequence, choice, repeat } kind = Kind::sequence;
  std::string text = {};
  text::CodeSet set = {};
  uint32_t rule = 0;
  int least = 0, most = -1;
  std::vector<Tree> parts = {};
};

class Parser {
 public:
  Parser(const std::string& text, const std::string& name)
      : source_(std::make_shared<const Source>(Source{name, text})), text_(source_->text) {}

  // Returns the rules by number. Error if a rule is used but not defined.
  std::vector<std::optional<Tree>> run() {
    space(true);
    while (at_ < text_.size()) {
      const size_t begin = at_;
      const std::string name = rule_name();
      const uint32_t id = number(name, begin);
      space(true);
      if (!take("::=")) throw wrong(at_, "expected '::='");
      space(true);
      if (rules_[id]) throw wrong(begin, fmt::format("the rule '{}' is defined twice", name));
      Tree tree = choice(0);
      rules_[id] = std::move(tree);
      if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r')
        throw wrong(at_, "expected the end of the line");
      space(true);
    }
    for (const auto& [name, id] : ids_) {
      if (!rules_[id]) throw wrong(first_use_[id], fmt::format("the rule '{}' is not defined", name));
    }
    if (!ids_.contains("root")) throw wrong(0, "a grammar begins with the rule 'root', which is missing");
    return std::move(rules_);
  }
  uint32_t root() const { return ids_.at("root"); }
  Error wrong(size_t at, const std::string& what) const {
    const uint32_t begin = std::min(at, text_.size());
    return error_at({source_, begin, begin + 1}, what);
  }
  size_t place_of(uint32_t rule) const { return first_use_[rule]; }

 private:
  bool take(std::string_view what) {
    if (!std::string_view(text_).substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  void space(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        break;
      }
    }
  }

  static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string rule_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && name_char(text_[at_])) ++at_;
    if (at_ == begin) throw wrong(at_, "expected the name of a rule");
    return text_.substr(begin, at_ - begin);
  }
  uint32_t number(const std::string& name, size_t at) {
    const auto [found, fresh] = ids_.emplace(name, static_cast<uint32_t>(rules_.size()));
    if (fresh) {
      rules_.emplace_back();
      first_use_.push_back(at);
    }
    return found->second;
  }

  Tree choice(int depth) {
    if (depth > kDeepest) throw wrong(at_, "the grammar is nested too deeply");
    Tree out{.kind = Tree::Kind::choice};
    out.parts.push_back(sequence(depth));
    for (;;) {
      if (depth > 0) space(true);
      if (!take("|")) break;
      space(true);
      out.parts.push_back(sequence(depth));
    }
    return out.parts.size() == 1 ? std::move(out.parts[0]) : out;
  }

  Tree sequence(int depth) {
    Tree out{.kind = Tree::Kind::sequence};
    for (;;) {
      space(depth > 0);
      if (at_ >= text_.size()) break;
      const char c = text_[at_];
      Tree item;
      if (c == '"') {
        item = literal();
      } else if (c == '[') {
        item = set();
      } else if (c == '.') {
        ++at_;
        item = {.kind = Tree::Kind::set, .set = text::CodeSet{{0, 0xd7ff}, {0xe000, text::kLastCode}}};
      } else if (c == '(') {
        ++at_;
        space(true);
        item = choice(depth + 1);
        space(true);
        if (!take(")")) throw wrong(at_, "expected ')'");
      } else if (name_char(c)) {
        const size_t begin = at_;
        const std::string name = rule_name();
        item = {.kind = Tree::Kind::rule, .rule = number(name, begin)};
      } else {
        break;
      }
      repeated(item);
      out.parts.push_back(std::move(item));
    }
    return out;
  }

  void repeated(Tree& item) {
    for (int n = 0;; ++n) {
      space(false);
      Tree out{.kind = Tree::Kind::repeat};
      if (take("*")) {
        out.least = 0;
      } else if (take("+")) {
        out.least = 1;
      } else if (take("?")) {
        out.most = 1;
      } else if (take("{")) {
        out.least = count();
        out.most = out.least;
        space(false);
        if (take(",")) {
          space(false);
          out.most = at_ < text_.size() && text_[at_] != '}' ? count() : -1;
        }
        space(false);
        if (!take("}")) throw wrong(at_, "expected '}'");
        if (out.most >= 0 && out.most < out.least) throw wrong(at_, "the maximum count is below the minimum");
      } else {
        return;
      }
      if (n > 3) throw wrong(at_, "too many nested repetitions");
      out.parts.push_back(std::move(item));
      item = std::move(out);
    }
  }

  int count() {
    int n = -1;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      n = std::max(n, 0) * 10 + (text_[at_++] - '0');
      if (n > kMostRepeats) throw wrong(at_, fmt::format("a repetition count is at most {}", kMostRepeats));
    }
    if (n < 0) throw wrong(at_, "expected a number");
    return n;
  }

  char32_t character() {
    char32_t c = 0;
    if (text_[at_] != '\\') {
      const size_t n = text::utf8_char(text_, at_, &c);
      if (n == 0) throw wrong(at_, "no valid UTF-8");
      at_ += n;
      return c;
    }
    if (++at_ >= text_.size()) throw wrong(at_, "an escape without a character");
    const char e = text_[at_++];
    const auto hex = [&](int digits) {
      char32_t value = 0;
      for (int i = 0; i < digits; ++i, ++at_) {
        const char d = at_ < text_.size() ? text_[at_] : ' ';
        const int v = d >= '0' && d <= '9'   ? d - '0'
                      : d >= 'a' && d <= 'f' ? d - 'a' + 10
                      : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                             : -1;
        if (v < 0) throw wrong(at_, "a hexadecimal digit is missing");
        value = value * 16 + static_cast<char32_t>(v);
      }
      if (value > text::kLastCode || (value >= 0xd800 && value < 0xe000))
        throw wrong(at_, "this is not the number of a character");
      return value;
    };
    switch (e) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(e);
      default:
        throw wrong(at_ - 1, "an unknown escape");
    }
  }

  Tree literal() {
    Tree out{.kind = Tree::Kind::text};
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') text::utf8_append(out.text, character());
    if (!take("\"")) throw wrong(begin, "an unterminated string");
    return out;
  }

  Tree set() {
    const size_t begin = at_++;
    const bool inverse = take("^");
    std::vector<text::CodeSet::Range> ranges;
    while (at_ < text_.size() && text_[at_] != ']') {
      const char32_t from = character();
      char32_t to = from;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        to = character();
      }
      if (to < from) throw wrong(at_, "the end of a range is below its start");
      ranges.emplace_back(from, to);
    }
    if (!take("]")) throw wrong(begin, "an unterminated character class");
    text::CodeSet out(std::move(ranges));
    if (inverse) out = out.complement();
    return {.kind = Tree::Kind::set, .set = out.intersect(text::CodeSet{{0, 0xd7ff}, {0xe000, text::kLastCode}})};
  }

  SourceRef source_;
  const std::string& text_;
  size_t at_ = 0;
  std::map<std::string, uint32_t> ids_;
  std::vector<std::optional<Tree>> rules_;
  std::vector<size_t> first_use_;
};

// Converts a range of characters to sequences of byte ranges.
void byte_sequences(char32_t first, char32_t last, std::vector<std::vector<std::pair<uint8_t, uint8_t>>>& out) {
  for (const char32_t border : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}}) {
    if (first <= border && last > border) {
      byte_sequences(first, border, out);
      byte_sequences(border + 1, last, out);
      return;
    }
  }
  std::string a, b;
  text::utf8_append(a, first);
  text::utf8_append(b, last);
  // Split the range if the bytes after the first differing one do not cover all their values.
  for (size_t i = 1; i < a.size(); ++i) {
    const char32_t mask = (char32_t{1} << (6 * (a.size() - i))) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      byte_sequences(first, first | mask, out);
      byte_sequences((first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      byte_sequences(first, (last & ~mask) - 1, out);
      byte_sequences(last & ~mask, last, out);
      return;
    }
  }
  std::vector<std::pair<uint8_t, uint8_t>> sequence;
  for (size_t i = 0; i < a.size(); ++i) sequence.emplace_back(static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i]));
  out.push_back(std::move(sequence));
}

}  // namespace

// Converts the syntax trees to elements; repetitions and choices become rules of their own.
class Grammar::Layout {
 public:
  Layout(Grammar& out, const std::string& name) : out_(out), name_(name) {}

  void run(const std::vector<std::optional<Tree>>& trees) {
    out_.rules_.resize(trees.size());
    for (uint32_t r = 0; r < trees.size(); ++r) {
      std::vector<List> alternatives;
      if (trees[r]->kind == Tree::Kind::choice) {
        for (const Tree& p : trees[r]->parts) put(p, alternatives.emplace_back());
      } else {
        put(*trees[r], alternatives.emplace_back());
      }
      out_.rules_[r] = add_rule(std::move(alternatives));
    }
  }

 private:
  using List = std::vector<Element>;

  Error too_large() const {
    return Error(Exit::user, fmt::format("{}: the grammar is too large", name_), "use smaller repetition counts");
  }

  std::vector<uint32_t> add_rule(std::vector<List> alternatives) {
    std::vector<uint32_t> places;
    for (List& list : alternatives) {
      places.push_back(out_.elements_.size());
      out_.elements_.insert(out_.elements_.end(), list.begin(), list.end());
      out_.elements_.push_back({});
    }
    if (out_.elements_.size() > kMostElements) throw too_large();
    return places;
  }

  static Element rule_element(uint32_t rule) { return Element{.kind = Element::Kind::rule, .rule = rule}; }

  Element new_rule(std::vector<List> alternatives) {
    const uint32_t id = out_.rules_.size();
    out_.rules_.push_back(add_rule(std::move(alternatives)));
    return rule_element(id);
  }

  void put(const Tree& t, List& list) {
    if (++laid_ > kMostElements || list.size() > kMostElements) throw too_large();
    switch (t.kind) {
      case Tree::Kind::text:
        for (const char b : t.text)
          list.push_back(
              {.kind = Element::Kind::bytes, .first = static_cast<uint8_t>(b), .last = static_cast<uint8_t>(b)});
        break;
      case Tree::Kind::set:
        put_set(t, list);
        break;
      case Tree::Kind::rule:
        list.push_back(rule_element(t.rule));
        break;
      case Tree::Kind::sequence:
        for (const Tree& p : t.parts) put(p, list);
        break;
      case Tree::Kind::choice: {
        std::vector<List> alternatives;
        for (const Tree& p : t.parts) put(p, alternatives.emplace_back());
        list.push_back(new_rule(std::move(alternatives)));
        break;
      }
      case Tree::Kind::repeat:
        put_repeat(t, list);
        break;
    }
  }

  void put_set(const Tree& t, List& list) {
    std::vector<std::vector<std::pair<uint8_t, uint8_t>>> sequences;
    for (const auto& [first, last] : t.set.ranges()) byte_sequences(first, last, sequences);
    std::vector<List> alternatives;
    for (const auto& s : sequences) {
      List one;
      for (const auto& [first, last] : s) one.push_back({.kind = Element::Kind::bytes, .first = first, .last = last});
      alternatives.push_back(std::move(one));
    }
    if (alternatives.size() == 1) {
      list.insert(list.end(), alternatives[0].begin(), alternatives[0].end());
    } else {
      list.push_back(new_rule(std::move(alternatives)));  // an empty class has no alternative, so nothing matches
    }
  }

  void put_repeat(const Tree& t, List& list) {
    List one;
    put(t.parts[0], one);
    if (one.size() > 1) one = {new_rule({one})};
    for (int i = 0; i < t.least; ++i) list.insert(list.end(), one.begin(), one.end());
    if (t.most < 0) {
      // again ::= one again | empty
      const uint32_t id = out_.rules_.size();
      out_.rules_.emplace_back();
      List again = one;
      again.push_back(rule_element(id));
      out_.rules_[id] = add_rule({std::move(again), {}});
      list.push_back(rule_element(id));
      return;
    }
    // up to k more ::= one (up to k - 1 more) | empty
    std::optional<Element> inner;
    for (int i = t.least; i < t.most; ++i) {
      List more = one;
      if (inner) more.push_back(*inner);
      inner = new_rule({std::move(more), {}});
    }
    if (inner) list.push_back(*inner);
  }

  Grammar& out_;
  const std::string& name_;
  size_t laid_ = 0;
};

// Which rules match the empty string. Each alternative waits for one rule at a time, so the time is linear.
std::vector<bool> Grammar::empty_rules() const {
  struct Waiting {
    uint32_t rule, element;
  };
  std::vector<bool> empty(rules_.size(), false);
  std::vector<std::vector<Waiting>> waiting(rules_.size());  // by the rule that must be empty first
  std::vector<uint32_t> found;
  const auto advance = [&](uint32_t rule, uint32_t e) {
    while (elements_[e].kind == Element::Kind::rule && empty[elements_[e].rule]) ++e;
    if (elements_[e].kind == Element::Kind::rule) {
      waiting[elements_[e].rule].push_back({rule, e});
    } else if (elements_[e].kind == Element::Kind::end && !empty[rule]) {
      empty[rule] = true;
      found.push_back(rule);
    }
  };
  for (uint32_t r = 0; r < rules_.size(); ++r)
    for (const uint32_t e : rules_[r]) advance(r, e);
  while (!found.empty()) {
    const uint32_t rule = found.back();
    found.pop_back();
    for (const Waiting& w : std::exchange(waiting[rule], {})) advance(w.rule, w.element);
  }
  return empty;
}

// Rejects left recursion: a rule whose first element can be itself.
void Grammar::refuse_left_recursion(const std::string& name) const {
  const std::vector<bool> empty = empty_rules();
  const size_t count = rules_.size();
  std::vector<uint8_t> seen(count, 0);  // 1: being visited, 2: finished
  for (size_t begin = 0; begin < count; ++begin) {
    if (seen[begin] != 0) continue;
    struct Frame {
      uint32_t rule;
      std::vector<std::pair<uint32_t, bool>> first;  // rules it can start with; true: the rule can end after it
      size_t next = 0;
    };
    const auto frame = [&](uint32_t r) {
      Frame f{r, {}, 0};
      for (uint32_t e : rules_[r]) {
        for (;; ++e) {
          if (elements_[e].kind != Element::Kind::rule) break;
          f.first.emplace_back(elements_[e].rule, elements_[e + 1].kind == Element::Kind::end);
          if (!empty[elements_[e].rule]) break;
        }
      }
      seen[r] = 1;
      return f;
    };
    std::vector<Frame> frames{frame(begin)};
    while (!frames.empty()) {
      Frame& f = frames.back();
      if (f.next == f.first.size()) {
        seen[f.rule] = 2;
        frames.pop_back();
        continue;
      }
      const uint32_t to = f.first[f.next++].first;
      if (seen[to] == 1) {
        // A rule that recurses to itself at its end (a repetition of something that can be empty) makes no progress and
        // is harmless; with elements after it, the stack would grow without end.
        bool grows = false;
        for (size_t i = frames.size(); i-- > 0;) {
          grows |= !frames[i].first[frames[i].next - 1].second;
          if (frames[i].rule == to) break;
        }
        if (!grows) continue;
        throw Error(Exit::user, fmt::format("{}: left recursion: a rule can begin with itself", name),
                    "write repetitions with * or +");
      }
      if (seen[to] == 0) frames.push_back(frame(to));
    }
  }
}

Grammar Grammar::parse(const std::string& text, const std::string& name) {
  if (text.size() > kLongestText) throw user_error("{}: a grammar of {} bytes is too long", name, text.size());
  Parser parser(text, name);
  const std::vector<std::optional<Tree>> trees = parser.run();
  Grammar out;
  out.root_ = parser.root();
  Layout(out, name).run(trees);
  out.refuse_left_recursion(name);
  return out;
}

text::TokenTrie generation_trie(const text::Tokenizer& tokenizer, std::vector<std::string>* strings, bool controls) {
  strings->clear();
  std::vector<std::pair<std::string_view, text::TokenId>> list;
  const std::vector<text::TokenId> ends = tokenizer.end_of_generation();
  for (text::TokenId id = 0; id < tokenizer.size(); ++id) {
    const text::TokenKind kind = tokenizer.kind(id);
    const bool text = kind == text::TokenKind::normal || kind == text::TokenKind::user_defined ||
                      kind == text::TokenKind::byte || (controls && kind == text::TokenKind::control);
    const bool end = std::find(ends.begin(), ends.end(), id) != ends.end();
    strings->push_back(text && !end ? tokenizer.bytes(id) : std::string());
  }
  for (text::TokenId id = 0; id < tokenizer.size(); ++id) list.emplace_back((*strings)[id], id);
  return text::TokenTrie(std::move(list));
}

}  // namespace lumen::model::infer
