#include "model/infer/schema/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/text/unicode/unicode.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kBlock = 64;  // long repetitions are made of blocks of this many, which keeps grammars small

std::string class_character(char32_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return std::string(1, char(c));
  if (c < 0x80) return fmt::format("\\x{:02x}", uint32_t(c));
  return c <= 0xffff ? fmt::format("\\u{:04x}", uint32_t(c)) : fmt::format("\\U{:08x}", uint32_t(c));
}

std::string class_text(const text::CodeSet& set) {
  std::string out = "[";
  for (const auto& [first, last] : set.ranges()) {
    out += class_character(first);
    if (last > first) out += "-" + class_character(last);
  }
  return out + "]";
}

const text::CodeSet& plain_characters() {  // written in JSON strings as they are
  static const text::CodeSet set{{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, text::kLastCode}};
  return set;
}

// Expressions of the characters of `set` that a JSON string writes as escapes.
std::vector<std::string> escapes(const text::CodeSet& set) {
  static constexpr std::pair<char32_t, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  std::vector<std::string> out;
  for (const auto& [c, letter] : kShort)
    if (set.contains(c)) out.push_back(grammar_literal(std::string("\\") + letter));
  if (set.contains('/')) out.push_back(grammar_literal("\\/"));
  for (char32_t c = 0; c < 0x20; ++c)
    if (set.contains(c)) out.push_back(fmt::format("\"\\\\u00{:x}\" [{:x}{:X}]", c / 16, c % 16, c % 16));
  return out;
}

}  // namespace

std::string grammar_literal(const std::string& text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = text::utf8_char(text, at, &c);
    if (c == '"' || c == '\\') {
      out += {'\\', char(c)};
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", uint32_t(c));
    } else {
      out.append(text, at, n);
    }
    at += std::max<size_t>(n, 1);
  }
  return out + "\"";
}

int32_t Rules::add() {
  rules_.emplace_back();
  bytes_ += prefix_.size() + 12;
  return int32_t(rules_.size() - 1);
}

int32_t Rules::add(std::vector<RuleParts> alternatives) {
  const int32_t rule = add();
  for (RuleParts& one : alternatives) put(rule, std::move(one));
  return rule;
}

void Rules::put(int32_t rule, RuleParts alternative) {
  for (const RulePart& p : alternative) bytes_ += p.text.size() + prefix_.size() + 8;
  rules_[size_t(rule)].push_back(std::move(alternative));
}

int32_t Rules::characters(const text::CodeSet& set, bool in_string) {
  const auto [at, is_new] = sets_.emplace(std::pair(in_string, set.ranges()), -1);
  if (!is_new) return at->second;
  const int32_t rule = add();
  at->second = rule;
  const text::CodeSet plain = in_string ? set.intersect(plain_characters()) : set;
  if (!plain.empty()) put(rule, {text(class_text(plain))});
  if (in_string)
    for (std::string& one : escapes(set)) put(rule, {text(std::move(one))});
  return rule;
}

int32_t Rules::add(const Automaton& automaton, bool in_string) {
  if (automaton.empty()) return add();
  const int32_t first = add();
  for (size_t s = 1; s < automaton.states(); ++s) add();
  for (uint32_t s = 0; s < automaton.states(); ++s) {
    const int32_t rule = first + int32_t(s);
    for (const auto& [to, set] : automaton.successors(s))
      put(rule, {use(characters(set, in_string)), use(first + int32_t(to))});
    if (automaton.accepts(s)) put(rule, {text("\"\"")});
  }
  return first;
}

// A rule is productive if an alternative has only productive parts; found from the leaves up, each part seen once.
std::vector<bool> Rules::productive() const {
  struct Place {
    size_t rule, alternative;
  };
  std::vector<std::vector<Place>> used(rules_.size());
  std::vector<std::vector<size_t>> missing(rules_.size());
  std::vector<bool> out(rules_.size(), false);
  std::vector<size_t> open;
  const auto found = [&](size_t rule) {
    if (out[rule]) return;
    out[rule] = true;
    open.push_back(rule);
  };
  for (size_t r = 0; r < rules_.size(); ++r) {
    for (size_t a = 0; a < rules_[r].size(); ++a) {
      size_t count = 0;
      for (const RulePart& p : rules_[r][a]) {
        if (p.rule < 0 || p.least == 0) continue;
        used[size_t(p.rule)].push_back({r, a});
        ++count;
      }
      missing[r].push_back(count);
      if (count == 0) found(r);
    }
  }
  while (!open.empty()) {
    const size_t rule = open.back();
    open.pop_back();
    for (const Place& p : used[rule])
      if (--missing[p.rule][p.alternative] == 0) found(p.rule);
  }
  return out;
}

std::string Rules::name(int32_t rule) const {
  return fmt::format("{}r{}", prefix_, rule);
}

std::string Rules::print(int32_t root) const {
  const std::vector<bool> lives = productive();
  if (!lives[size_t(root)]) return {};
  std::string out;
  // Repetitions of a part, in blocks if they are long; the rules of blocks are named after the part.
  std::map<std::string, bool> blocks;
  const auto many = [&](const std::string& item, int64_t count) {
    const std::string block = item + "-b";
    if (count >= kBlock && !blocks[block]) {
      blocks[block] = true;
      out += fmt::format("{} ::= {}{{{}}}\n", block, item, kBlock);
    }
    std::string text;
    if (count / kBlock > 0) text = fmt::format("{}{{{}}}", block, count / kBlock);
    if (count % kBlock > 0) text += fmt::format("{}{}{{{}}}", text.empty() ? "" : " ", item, count % kBlock);
    return text;
  };
  const auto repeated = [&](const std::string& item, int64_t least, int64_t most) -> std::string {
    if (least == 1 && most == 1) return item;
    if (most >= 0 && most < kBlock) return fmt::format("{}{{{},{}}}", item, least, most);
    if (most < 0 && least < kBlock) return fmt::format("{}{{{},}}", item, least);
    std::string text = many(item, least);
    if (most < 0) return text + " " + item + "*";
    const int64_t more = most - least;
    if (!text.empty()) text += " ";
    if (more < kBlock) return text + fmt::format("{}{{0,{}}}", item, more);
    // Fewer blocks than fit with any rest, or all blocks with a rest up to the maximum.
    const std::string block = item + "-b", blocks_of_all = many(item, more / kBlock * kBlock);
    return text + fmt::format("({}{{0,{}}} {}{{0,{}}} | {} {}{{0,{}}})", block, more / kBlock - 1, item, kBlock - 1,
                              blocks_of_all, item, more % kBlock);
  };
  std::vector<bool> seen(rules_.size(), false);
  std::vector<int32_t> open{root};
  seen[size_t(root)] = true;
  while (!open.empty()) {
    const int32_t r = open.back();
    open.pop_back();
    std::string line;
    for (const RuleParts& alternative : rules_[size_t(r)]) {
      const auto is_dead = [&](const RulePart& p) { return p.rule >= 0 && p.least > 0 && !lives[size_t(p.rule)]; };
      if (std::any_of(alternative.begin(), alternative.end(), is_dead)) continue;
      std::string text;
      for (const RulePart& p : alternative) {
        if (p.rule >= 0 && (!lives[size_t(p.rule)] || p.most == 0)) continue;
        if (!text.empty()) text += ' ';
        text += p.rule < 0 ? p.text : repeated(name(p.rule), p.least, p.most);
        if (p.rule < 0 || seen[size_t(p.rule)]) continue;
        seen[size_t(p.rule)] = true;
        open.push_back(p.rule);
      }
      line += (line.empty() ? "" : " | ") + (text.empty() ? "\"\"" : text);
    }
    out += fmt::format("{} ::= {}\n", name(r), line);
  }
  return out;
}

}  // namespace lumen::model::infer
