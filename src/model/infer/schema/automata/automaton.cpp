#include "model/infer/schema/automata/automaton.h"

#include <algorithm>
#include <map>

#include "model/text/unicode/unicode.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kMostWork = size_t{1} << 26;

// Takes `work` from the budget; false when it is used up.
bool spend(size_t* budget, size_t work) {
  const bool has = *budget >= work;
  *budget -= has ? work : *budget;
  return has;
}

}  // namespace

int Automaton::class_of(char32_t c) const {
  const auto above = std::upper_bound(starts_.begin(), starts_.end(), c,
                                      [](char32_t value, const auto& start) { return value < start.first; });
  return above == starts_.begin() ? -1 : std::prev(above)->second;
}

int32_t Automaton::step(uint32_t state, char32_t c) const {
  const int cls = class_of(c);
  return cls < 0 ? kDead : next_[state * classes_ + size_t(cls)];
}

void Automaton::split(std::vector<text::CodeSet> sets) {
  // Borders at which the membership in a set changes.
  std::vector<std::pair<char32_t, uint32_t>> borders;
  for (uint32_t s = 0; s < sets.size(); ++s) {
    for (const auto& [first, last] : sets[s].ranges()) {
      borders.emplace_back(first, s);
      if (last < text::kLastCode) borders.emplace_back(last + 1, s);
    }
  }
  for (const char32_t c : {char32_t{0}, char32_t{0xd800}, char32_t{0xe000}}) borders.emplace_back(c, uint32_t(-1));
  std::sort(borders.begin(), borders.end());
  std::vector<uint32_t> inside;  // sets that contain the current interval, ascending
  std::map<std::vector<uint32_t>, int> known;
  for (size_t i = 0; i < borders.size();) {
    const char32_t c = borders[i].first;
    for (; i < borders.size() && borders[i].first == c; ++i) {
      const uint32_t s = borders[i].second;
      if (s == uint32_t(-1)) continue;
      const auto at = std::lower_bound(inside.begin(), inside.end(), s);
      if (at != inside.end() && *at == s)
        inside.erase(at);
      else
        inside.insert(at, s);
    }
    const bool is_surrogate = c >= 0xd800 && c < 0xe000;
    const int cls = is_surrogate ? -1 : known.emplace(inside, int(known.size())).first->second;
    starts_.emplace_back(c, cls);
  }
  classes_ = known.size();
}

void Automaton::trim() {
  const size_t count = accepts_.size();
  std::vector<std::vector<uint32_t>> from(count);
  for (size_t s = 0; s < count; ++s) {
    for (size_t c = 0; c < classes_; ++c) {
      const int32_t to = next_[s * classes_ + c];
      if (to >= 0 && (from[size_t(to)].empty() || from[size_t(to)].back() != s))
        from[size_t(to)].push_back(uint32_t(s));
    }
  }
  std::vector<bool> live = accepts_;
  std::vector<uint32_t> open;
  for (size_t s = 0; s < count; ++s)
    if (live[s]) open.push_back(uint32_t(s));
  while (!open.empty()) {
    const uint32_t s = open.back();
    open.pop_back();
    for (const uint32_t f : from[s]) {
      if (live[f]) continue;
      live[f] = true;
      open.push_back(f);
    }
  }
  if (count == 0 || !live[0]) {
    next_.clear();
    accepts_.clear();
    return;
  }
  std::vector<int32_t> moved(count, kDead);
  int32_t kept = 0;
  for (size_t s = 0; s < count; ++s)
    if (live[s]) moved[s] = kept++;
  std::vector<int32_t> next;
  std::vector<bool> accepts;
  for (size_t s = 0; s < count; ++s) {
    if (!live[s]) continue;
    accepts.push_back(accepts_[s]);
    for (size_t c = 0; c < classes_; ++c) {
      const int32_t to = next_[s * classes_ + c];
      next.push_back(to < 0 ? kDead : moved[size_t(to)]);
    }
  }
  next_ = std::move(next);
  accepts_ = std::move(accepts);
}

// The subset construction. Before and after a match any characters may come.
std::optional<Automaton> Automaton::of(const Nfa& nfa, size_t* budget) {
  Automaton out;
  size_t own = kMostWork;
  if (!budget) budget = &own;
  out.split(nfa.sets);
  // The class of each interval is tested by its first character.
  std::vector<char32_t> sample(out.classes_);
  for (const auto& [start, cls] : out.starts_)
    if (cls >= 0) sample[size_t(cls)] = start;
  std::vector<std::vector<bool>> has(nfa.sets.size(), std::vector<bool>(out.classes_));
  for (size_t s = 0; s < nfa.sets.size(); ++s)
    for (size_t c = 0; c < out.classes_; ++c) has[s][c] = nfa.sets[s].contains(sample[c]);

  std::map<std::vector<uint32_t>, int32_t> known;
  std::vector<std::vector<uint32_t>> states;
  std::vector<uint8_t> seen(nfa.nodes.size(), 0);
  const auto number = [&](std::vector<uint32_t> set) {
    const auto is_match = [&](uint32_t n) { return nfa.nodes[n].kind == Nfa::Node::Kind::match; };
    // After a match everything is accepted, so all such sets are one state.
    if (const auto match = std::find_if(set.begin(), set.end(), is_match); match != set.end()) set = {*match};
    std::sort(set.begin(), set.end());
    const auto [at, is_new] = known.emplace(set, int32_t(states.size()));
    if (is_new) states.push_back(std::move(set));
    return at->second;
  };
  std::vector<uint32_t> set;
  nfa.close(nfa.start, true, false, seen, set);
  number(set);
  for (size_t s = 0; s < states.size(); ++s) {
    if (states.size() > kMostStates || states.size() * out.classes_ > kMostCells) return std::nullopt;
    const std::vector<uint32_t> here = states[s];
    const bool is_match = here.size() == 1 && nfa.nodes[here[0]].kind == Nfa::Node::Kind::match;
    // An end anchor is passed when the text ends here; for the first state, the text is empty.
    bool accepts = is_match;
    if (!is_match) {
      std::vector<uint32_t> last;
      std::fill(seen.begin(), seen.end(), 0);
      for (const uint32_t n : here) nfa.close(n, s == 0, true, seen, last);
      for (const uint32_t n : last) accepts |= nfa.nodes[n].kind == Nfa::Node::Kind::match;
    }
    out.accepts_.push_back(accepts);
    for (size_t c = 0; c < out.classes_; ++c) {
      if (!spend(budget, 8 + here.size() + nfa.nodes.size() / 8)) return std::nullopt;
      if (is_match) {
        out.next_.push_back(int32_t(s));
        continue;
      }
      std::vector<uint32_t> next;
      std::fill(seen.begin(), seen.end(), 0);
      for (const uint32_t n : here)
        if (nfa.nodes[n].kind == Nfa::Node::Kind::set && has[nfa.nodes[n].set][c])
          nfa.close(nfa.nodes[n].next, false, false, seen, next);
      nfa.close(nfa.start, false, false, seen, next);
      out.next_.push_back(number(std::move(next)));
    }
  }
  out.trim();
  return out;
}

std::optional<Automaton> Automaton::of(const EcmaPattern& pattern, size_t* budget) {
  std::optional<Automaton> out;
  for (const EcmaPattern::Part& part : pattern.parts()) {
    std::optional<Automaton> one = of(part.nfa, budget);
    if (one && part.is_negated) one = one->complement();
    if (one && out) one = out->intersect(*one, budget);
    if (!one) return std::nullopt;
    out = std::move(one);
  }
  return out;
}

std::optional<Automaton> Automaton::of_length(int64_t least, int64_t most) {
  const int64_t count = std::max(least, most) + 1;
  if (count > int64_t(kMostStates)) return std::nullopt;
  Automaton out;
  out.split({});
  for (int64_t s = 0; s < count; ++s) {
    out.accepts_.push_back(s >= least && (most < 0 || s <= most));
    out.next_.push_back(s + 1 < count ? int32_t(s + 1) : most < 0 ? int32_t(s) : kDead);
  }
  out.trim();
  return out;
}

std::optional<Automaton> Automaton::of_strings(const std::vector<std::string>& list) {
  std::vector<std::u32string> strings;
  std::map<char32_t, text::CodeSet> alphabet;
  size_t total = 1;
  for (const std::string& text : list) {
    std::u32string& t = strings.emplace_back();
    for (size_t at = 0; at < text.size();) {
      char32_t c = 0;
      const size_t n = text::utf8_char(text, at, &c);
      if (n == 0) return std::nullopt;
      at += n;
      t += c;
      alphabet.emplace(c, text::CodeSet{{c, c}});
    }
    total += t.size();
    if (total > 4 * kMostStates) return std::nullopt;
  }
  std::vector<text::CodeSet> sets;
  for (auto& [c, set] : alphabet) sets.push_back(set);
  Automaton out;
  out.split(std::move(sets));
  const auto add_state = [&] {
    out.accepts_.push_back(false);
    out.next_.resize(out.next_.size() + out.classes_, kDead);
    return out.accepts_.size() <= kMostStates && out.next_.size() <= kMostCells;
  };
  add_state();
  for (const std::u32string& text : strings) {
    size_t s = 0;
    for (const char32_t c : text) {
      const size_t cell = s * out.classes_ + size_t(out.class_of(c));
      if (out.next_[cell] < 0) {
        const auto to = int32_t(out.accepts_.size());
        if (!add_state()) return std::nullopt;
        out.next_[cell] = to;
      }
      s = size_t(out.next_[cell]);
    }
    out.accepts_[s] = true;
  }
  out.trim();
  return out;
}

// A state is the remainder and the number of digits after the point. Before the point the latter is 0; state 0 is the
// start, where a sign may be.
std::optional<Automaton> Automaton::of_multiples(int64_t a, int places) {
  if (a <= 0 || a * (places + 2) + 2 > int64_t(kMostStates)) return std::nullopt;
  Automaton out;
  std::vector<text::CodeSet> sets{text::CodeSet{{'-', '-'}}, text::CodeSet{{'.', '.'}}};
  for (char32_t d = '0'; d <= '9'; ++d) sets.push_back(text::CodeSet{{d, d}});
  out.split(std::move(sets));
  // States: 0 start, 1 after the sign, then whole parts, then fractions after the point with 0..places digits.
  const auto state = [&](int64_t remainder, int digits) { return int32_t(2 + remainder + a * (digits + 1)); };
  const size_t count = size_t(2 + a * (places + 2));
  if (count > kMostStates) return std::nullopt;
  out.accepts_.assign(count, false);
  out.next_.assign(count * out.classes_, kDead);
  const auto put = [&](size_t from, char32_t c, int32_t to) {
    out.next_[from * out.classes_ + size_t(out.class_of(c))] = to;
  };
  int64_t scale = 1;  // 10^places modulo a
  for (int i = 0; i < places; ++i) scale = scale * 10 % a;
  put(0, '-', 1);
  for (int d = 0; d < 10; ++d) {
    put(0, char32_t('0' + d), state(d % a, -1));
    put(1, char32_t('0' + d), state(d % a, -1));
  }
  for (int64_t r = 0; r < a; ++r) {
    int64_t rest = scale;  // 10^(places - digits read) modulo a
    out.accepts_[size_t(state(r, -1))] = r * rest % a == 0;
    if (places > 0) put(size_t(state(r, -1)), '.', state(r, 0));
    for (int digits = -1; digits <= places; ++digits) {
      if (digits >= 1) {
        rest = 1;
        for (int i = digits; i < places; ++i) rest = rest * 10 % a;
        out.accepts_[size_t(state(r, digits))] = r * rest % a == 0;
      }
      if (digits == places) continue;
      for (int d = 0; d < 10; ++d)
        put(size_t(state(r, digits)), char32_t('0' + d), state((r * 10 + d) % a, digits < 0 ? -1 : digits + 1));
    }
  }
  out.trim();
  return out;
}

std::optional<Automaton> Automaton::intersect(const Automaton& other, size_t* budget) const {
  Automaton out;
  size_t own = kMostWork;
  if (!budget) budget = &own;
  if (empty() || other.empty()) return out;
  // The classes of both refine each other.
  std::map<std::pair<int, int>, int> pairs;
  size_t i = 0, j = 0;
  while (i < starts_.size() || j < other.starts_.size()) {
    const char32_t here = i < starts_.size() ? starts_[i].first : text::kLastCode + 1;
    const char32_t there = j < other.starts_.size() ? other.starts_[j].first : text::kLastCode + 1;
    const char32_t c = std::min(here, there);
    if (here == c) ++i;
    if (there == c) ++j;
    const int one = i > 0 ? starts_[i - 1].second : -1, two = j > 0 ? other.starts_[j - 1].second : -1;
    const int cls = one < 0 || two < 0 ? -1 : pairs.emplace(std::pair(one, two), int(pairs.size())).first->second;
    out.starts_.emplace_back(c, cls);
  }
  out.classes_ = pairs.size();
  std::map<std::pair<int32_t, int32_t>, int32_t> known{{{0, 0}, 0}};
  std::vector<std::pair<int32_t, int32_t>> states{{0, 0}};
  for (size_t s = 0; s < states.size(); ++s) {
    if (states.size() > 4 * kMostStates || states.size() * out.classes_ > 4 * kMostCells) return std::nullopt;
    if (!spend(budget, 16 * (1 + pairs.size()))) return std::nullopt;
    const auto [a, b] = states[s];
    out.accepts_.push_back(accepts_[size_t(a)] && other.accepts_[size_t(b)]);
    const size_t row = out.next_.size();
    out.next_.resize(row + out.classes_, kDead);
    for (const auto& [pair, cls] : pairs) {
      const int32_t x = next_[size_t(a) * classes_ + size_t(pair.first)];
      const int32_t y = other.next_[size_t(b) * other.classes_ + size_t(pair.second)];
      if (x < 0 || y < 0) continue;
      const auto [at, is_new] = known.emplace(std::pair(x, y), int32_t(states.size()));
      if (is_new) states.emplace_back(x, y);
      out.next_[row + size_t(cls)] = at->second;
    }
  }
  out.trim();
  if (out.states() > kMostStates) return std::nullopt;
  return out;
}

std::optional<Automaton> Automaton::complement() const {
  Automaton out = *this;
  if (empty()) {
    out = Automaton();
    out.split({});
    out.accepts_ = {true};
    out.next_ = {0};
    return out;
  }
  const auto sink = int32_t(out.accepts_.size());
  for (int32_t& to : out.next_) to = to < 0 ? sink : to;
  out.next_.resize(out.next_.size() + out.classes_, sink);
  out.accepts_.push_back(false);
  out.accepts_.flip();
  out.trim();
  if (out.states() > kMostStates) return std::nullopt;
  return out;
}

bool Automaton::accepts_text(std::string_view text) const {
  if (empty()) return false;
  int32_t s = 0;
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = text::utf8_char(text, at, &c);
    if (n == 0) return false;
    at += n;
    s = step(uint32_t(s), c);
    if (s < 0) return false;
  }
  return accepts_[size_t(s)];
}

std::vector<std::pair<uint32_t, text::CodeSet>> Automaton::successors(uint32_t state) const {
  std::map<uint32_t, std::vector<text::CodeSet::Range>> sets;
  for (size_t i = 0; i < starts_.size(); ++i) {
    const auto [first, cls] = starts_[i];
    const int32_t to = cls < 0 ? kDead : next_[state * classes_ + size_t(cls)];
    if (to < 0) continue;
    sets[uint32_t(to)].emplace_back(first, i + 1 < starts_.size() ? starts_[i + 1].first - 1 : text::kLastCode);
  }
  std::vector<std::pair<uint32_t, text::CodeSet>> out;
  for (auto& [to, ranges] : sets) out.emplace_back(to, text::CodeSet(std::move(ranges)));
  return out;
}

}  // namespace lumen::model::infer
