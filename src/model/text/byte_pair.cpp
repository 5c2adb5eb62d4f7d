#include "model/text/byte_pair.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/check.h"
#include "base/error.h"
#include "model/text/unicode.h"

namespace lumen::model {

PairTable::PairTable(size_t expected) : slots_(std::bit_ceil(expected * 2 + 16)) {}

size_t PairTable::home(uint64_t key) const {
  key *= 0x9e3779b97f4a7c15u;
  key ^= key >> 32;
  return key & (slots_.size() - 1);
}

bool PairTable::insert(TokenId left, TokenId right, Merge merge) {
  LUMEN_CHECK(left >= 0 && right >= 0 && merge.rank >= 0);
  if (size_ * 2 >= slots_.size()) grow();
  const uint64_t key = key_of(left, right);
  size_t at = home(key);
  for (; slots_[at].key != kEmpty; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].key == key) return false;
  }
  slots_[at] = {key, merge};
  ++size_;
  return true;
}

PairTable::Merge PairTable::find(TokenId left, TokenId right) const {
  const uint64_t key = key_of(left, right);
  for (size_t at = home(key); slots_[at].key != kEmpty; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].key == key) return slots_[at].merge;
  }
  return {};
}

void PairTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t at = home(slot.key);
    while (slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

namespace {

struct Symbol {
  TokenId id = -1;
  int64_t previous = -1, next = -1;
};

struct Candidate {
  int32_t rank;
  int64_t left;               // position in the list of symbols
  TokenId left_id, right_id;  // what stood there; stale when it no longer does

  bool operator<(const Candidate& other) const {  // the heap's top is its greatest: lowest rank, then leftmost
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

void BytePairModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  if (whole_) {
    const auto found = whole_->find(to_alphabet(word));
    if (found != whole_->end() && !(*verbatim_)[found->second]) {
      out.push_back(found->second);
      return;
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char c : word) {
    TokenId id = bytes_[static_cast<unsigned char>(c)];
    if (id < 0) {
      if (!unknown_)
        throw Error(Exit::user,
                    fmt::format("the tokenizer has no token for byte {:#04x} of '{}'", static_cast<unsigned char>(c),
                                utf8_repair(word.substr(0, 80))),
                    "choose a tokenizer that was made from text with these characters");
      id = *unknown_;
    }
    const int64_t at = static_cast<int64_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate> heap({}, std::move(storage));
  const auto propose = [&](int64_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const TokenId a = symbols[left].id, b = symbols[symbols[left].next].id;
    const PairTable::Merge merge = merges_.find(a, b);
    if (merge.rank >= 0) heap.push({merge.rank, left, a, b});
  };
  for (int64_t i = 0; i + 1 < static_cast<int64_t>(symbols.size()); ++i) propose(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Symbol& left = symbols[c.left];
    if (left.id != c.left_id || left.next < 0 || symbols[left.next].id != c.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = merges_.find(c.left_id, c.right_id).id;
    left.next = right.next;
    right.id = -1;  // merged away: no candidate that names it is valid any more
    if (left.next >= 0) symbols[left.next].previous = c.left;
    propose(left.previous);
    propose(c.left);
  }
  for (int64_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace lumen::model
