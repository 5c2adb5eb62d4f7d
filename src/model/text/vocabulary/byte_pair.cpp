#include "model/text/vocabulary/byte_pair.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/check.h"
#include "base/error.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {

PairTable::PairTable(size_t expected) : slots_(std::bit_ceil(expected * 2 + 16)), mask_(slots_.size() - 1) {}

bool PairTable::insert(TokenId left, TokenId right, Merge merge) {
  LUMEN_CHECK(left >= 0 && right >= 0 && merge.rank >= 0);
  if (size_ * 2 >= slots_.size()) grow();
  const uint64_t key = key_of(left, right);
  size_t at = home(key);
  for (; slots_[at].key != kEmpty; at = (at + 1) & mask_) {
    if (slots_[at].key == key) return false;
  }
  slots_[at] = {key, merge};
  const auto a = static_cast<size_t>(left), b = static_cast<size_t>(right);
  if (sides_.size() <= std::max(a, b)) sides_.resize(std::max(a, b) * 2 + 1);
  sides_[a] |= kLeft;
  sides_[b] |= kRight;
  ++size_;
  return true;
}

void PairTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t at = home(slot.key);
    while (slots_[at].key != kEmpty) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

namespace {

constexpr size_t kShort = 64;  // symbols: up to this many, a linear search is faster than a heap

struct Symbol {
  TokenId id = -1;
  int64_t previous = -1, next = -1;
};

struct Candidate {
  int32_t rank;
  int64_t left;               // position in the list of symbols
  TokenId left_id, right_id;  // the pair's ids when proposed; stale when they changed

  bool operator<(const Candidate& other) const {  // the heap's top is its greatest: lowest rank, then leftmost
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

void PairTable::merge(std::vector<TokenId>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void PairTable::merge_short(std::vector<TokenId>& symbols) const {
  uint32_t ranks[kShort];  // of the pair that begins here; -1 as unsigned is the worst
  TokenId ids[kShort];
  size_t n = symbols.size();
  TokenId* s = symbols.data();
  const auto look = [&](size_t i) {
    const Merge m = find(s[i], s[i + 1]);
    ranks[i] = m.rank;
    ids[i] = m.id;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == ~uint32_t{0}) break;
    s[best] = ids[best];
    for (size_t i = best + 1; i + 1 < n; ++i) s[i] = s[i + 1];
    for (size_t i = best + 1; i + 2 < n; ++i) {
      ranks[i] = ranks[i + 1];
      ids[i] = ids[i + 1];
    }
    --n;
    if (best > 0) look(best - 1);
    if (best + 1 < n) look(best);
  }
  symbols.resize(n);
}

// A heap of candidate pairs with a check for stale entries: O(n log n).
void PairTable::merge_long(std::vector<TokenId>& list) const {
  std::vector<Symbol> symbols(list.size());
  for (size_t i = 0; i < list.size(); ++i)
    symbols[i] = {list[i], static_cast<int64_t>(i) - 1, i + 1 < list.size() ? static_cast<int64_t>(i) + 1 : -1};
  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate> heap({}, std::move(storage));
  const auto propose = [&](int64_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const TokenId a = symbols[left].id, b = symbols[symbols[left].next].id;
    const PairTable::Merge merge = find(a, b);
    if (merge.rank >= 0) heap.push({merge.rank, left, a, b});
  };
  for (int64_t i = 0; i + 1 < std::ssize(symbols); ++i) propose(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Symbol& left = symbols[c.left];
    if (left.id != c.left_id || left.next < 0 || symbols[left.next].id != c.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = find(c.left_id, c.right_id).id;
    left.next = right.next;
    right.id = -1;  // merged away: invalidates candidates with it
    if (left.next >= 0) symbols[left.next].previous = c.left;
    propose(left.previous);
    propose(c.left);
  }
  list.clear();
  for (int64_t i = 0; i >= 0; i = symbols[i].next) list.push_back(symbols[i].id);
}

void BytePairModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  if (whole_) {
    const auto found = whole_->find(to_alphabet(word));
    if (found != whole_->end() && !(*verbatim_)[found->second]) {
      out.push_back(found->second);
      return;
    }
  }
  static thread_local std::vector<TokenId> symbols;
  symbols.clear();
  for (const char c : word) {
    TokenId id = bytes_[static_cast<unsigned char>(c)];
    if (id < 0) {
      if (!unknown_)
        throw Error(Exit::user,
                    fmt::format("the tokenizer has no token for byte {:#04x} of '{}'", static_cast<unsigned char>(c),
                                utf8_repair(word.substr(0, 80))),
                    "choose a tokenizer trained on text with these characters");
      id = *unknown_;
    }
    symbols.push_back(id);
  }
  merges_.merge(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

CharacterPairModel::CharacterPairModel(TokenMap tokens, std::vector<std::pair<char32_t, TokenId>> more,
                                       PairTable merges, Options options)
    : tokens_(std::move(tokens)), merges_(std::move(merges)), options_(std::move(options)), low_(0x10000, -1) {
  const auto put = [&](char32_t c, TokenId id) {
    if (c < 0x10000) {
      low_[c] = id;
    } else {
      high_[c] = id;
    }
  };
  std::unordered_map<char32_t, size_t> starts;
  for (const auto& [text, id] : tokens_) {
    char32_t c;
    const size_t n = utf8_char(text, 0, &c);
    if (n == text.size() && n != 0) put(c, id);
    if (n != 0 && n < text.size()) ++starts[c];
  }
  for (const auto& [c, id] : more) {
    put(c, id);
    utf8_append(behind_[id], c);
  }
  if (options_.whole_first || !options_.continuing.empty() || !options_.word_end.empty()) return;
  // The character that begins most tokens is taken as the mark of word starts.
  size_t most = 0;
  for (const auto& [c, count] : starts) {
    if (count > most || (count == most && c < mark_)) {
      mark_ = c;
      most = count;
    }
  }
  utf8_append(mark_text_, mark_);
  if (most == 0 || !tokens_.contains(mark_text_)) {
    mark_text_.clear();
    return;
  }
  for (const auto& [text, id] : tokens_) {
    for (size_t at = text.find(mark_text_, 1); at != std::string::npos; at = text.find(mark_text_, at + 1)) {
      size_t begin = at - 1;
      while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
      char32_t c;
      if (utf8_char(text, begin, &c) == at - begin) before_mark_.insert(c);
    }
  }
}

size_t CharacterPairModel::independent(std::string_view text) const {
  if (mark_text_.empty()) return text.size();
  for (size_t at = text.find(mark_text_, 1); at != std::string_view::npos; at = text.find(mark_text_, at + 1)) {
    size_t begin = at - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    char32_t c;
    if (utf8_char(text, begin, &c) != at - begin || !before_mark_.contains(c)) return at;
  }
  return text.size();
}

TokenId CharacterPairModel::symbol(std::string_view character, char32_t c, bool first, bool last) const {
  if ((first || options_.continuing.empty()) && (!last || options_.word_end.empty())) {
    if (c < 0x10000) return low_[c];
    const auto found = high_.find(c);
    return found == high_.end() ? -1 : found->second;
  }
  std::string text = first ? std::string() : options_.continuing;
  text += character;
  if (last) text += options_.word_end;
  const auto found = tokens_.find(text);
  return found == tokens_.end() ? -1 : found->second;
}

void CharacterPairModel::missing(std::string_view bytes, std::vector<TokenId>& out, bool* fused) const {
  const bool all = std::all_of(bytes.begin(), bytes.end(),
                               [&](char b) { return options_.bytes[static_cast<unsigned char>(b)] >= 0; });
  if (all) {
    for (const char b : bytes) out.push_back(options_.bytes[static_cast<unsigned char>(b)]);
    *fused = false;
    return;
  }
  if (!options_.unknown)
    throw Error(Exit::user, fmt::format("the tokenizer has no token for '{}'", utf8_repair(bytes.substr(0, 80))),
                "choose a tokenizer trained on text with these characters");
  if (!(*fused && options_.fuse_unknown)) out.push_back(*options_.unknown);
  *fused = true;
}

void CharacterPairModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  if (options_.whole_first) {
    if (const auto found = tokens_.find(word); found != tokens_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  static thread_local std::vector<TokenId> symbols;
  symbols.clear();
  bool fused = false;
  for (size_t at = 0; at < word.size();) {
    char32_t c = 0;
    const size_t valid = utf8_char(word, at, &c), n = std::max<size_t>(valid, 1);
    const TokenId id = valid == 0 ? -1 : symbol(word.substr(at, n), c, at == 0, at + n == word.size());
    if (id >= 0) {
      symbols.push_back(id);
      fused = false;
    } else {
      missing(word.substr(at, n), symbols, &fused);
    }
    at += n;
  }
  merges_.merge(symbols);
  if (behind_.empty()) {
    out.insert(out.end(), symbols.begin(), symbols.end());
    return;
  }
  fused = false;
  for (const TokenId id : symbols) {
    const auto found = behind_.find(id);
    if (found == behind_.end()) {
      out.push_back(id);
      fused = options_.unknown && id == *options_.unknown;
    } else {
      missing(found->second, out, &fused);
    }
  }
}

}  // namespace lumen::model::text
