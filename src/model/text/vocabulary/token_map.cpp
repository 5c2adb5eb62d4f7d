#include "model/text/vocabulary/token_map.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>

namespace lumen::model::text {
namespace {

constexpr size_t kAhead = 32;  // lookups that are prefetched at once

struct Keys {
  uint64_t a, b;
};

const Keys& keys() {
  static const Keys drawn = [] {
    std::random_device source;
    const auto draw = [&] { return uint64_t{source()} << 32 | source(); };
    return Keys{draw() | 1, draw() | 1};
  }();
  return drawn;
}

__extension__ using Wide = unsigned __int128;
uint64_t fold(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* p, size_t n) {
  uint64_t x = 0;
  std::memcpy(&x, p, n);
  return x;
}

}  // namespace

uint64_t TokenMap::hash_of(std::string_view text) {
  const Keys& k = keys();
  const char* p = text.data();
  size_t n = text.size();
  uint64_t h = k.a ^ n;
  for (; n > 16; n -= 16, p += 16) h = fold(load(p, 8) ^ k.b, load(p + 8, 8) ^ h);
  const uint64_t first = load(p, n < 8 ? n : 8), last = n > 8 ? load(p + 8, n - 8) : 0;
  return fold(fold(first ^ k.b, last ^ h) ^ k.a, k.b);
}

void TokenMap::reserve(size_t expected) {
  const size_t count = std::bit_ceil(expected * 2 + 16);
  if (count <= slots_.size()) return;
  entries_.reserve(expected);
  slots_.assign(count, {});
  mask_ = count - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const uint64_t hash = hash_of(entries_[i].first);
    size_t at = hash & mask_;
    while (slots_[at].entry != 0) at = (at + 1) & mask_;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(i + 1)};
  }
}

bool TokenMap::emplace(std::string_view text, TokenId id) {
  if ((entries_.size() + 1) * 2 > slots_.size()) reserve(entries_.size() * 2 + 16);
  return put(text, id, hash_of(text));
}

bool TokenMap::put(std::string_view text, TokenId id, uint64_t hash) {
  size_t at = hash & mask_;
  for (; slots_[at].entry != 0; at = (at + 1) & mask_) {
    if (slots_[at].tag == static_cast<uint32_t>(hash >> 32) && entries_[slots_[at].entry - 1].first == text)
      return false;
  }
  entries_.emplace_back(text, id);
  slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(entries_.size())};
  return true;
}

size_t TokenMap::emplace_all(std::span<const std::string> strings) {
  reserve(entries_.size() + strings.size());
  std::array<uint64_t, kAhead> hashes{};
  size_t equal = 0;
  for (size_t i = 0; i < strings.size() + kAhead; ++i) {
    uint64_t& hash = hashes[i % kAhead];
    if (i >= kAhead && !strings[i - kAhead].empty()) equal += !put(strings[i - kAhead], i - kAhead, hash);
    if (i >= strings.size()) continue;
    hash = hash_of(strings[i]);
    __builtin_prefetch(&slots_[hash & mask_], 1);
  }
  return equal;
}

void TokenMap::find_all(std::span<const std::string_view> strings, std::span<TokenId> ids) const {
  std::array<uint64_t, kAhead> hashes{};
  for (size_t first = 0; first < strings.size(); first += kAhead) {
    const size_t count = std::min(kAhead, strings.size() - first);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_of(strings[first + i]);
      __builtin_prefetch(&slots_[hashes[i] & mask_]);
    }
    const auto each = [&](const auto& look) {
      for (size_t i = 0; i < count; ++i) {
        const Slot& slot = slots_[hashes[i] & mask_];
        if (slot.tag == static_cast<uint32_t>(hashes[i] >> 32) && slot.entry != 0) look(entries_[slot.entry - 1]);
      }
    };
    each([](const Entry& e) { __builtin_prefetch(&e); });
    each([](const Entry& e) { __builtin_prefetch(e.first.data()); });
    for (size_t i = 0; i < count; ++i) {
      const Entry* found = find(strings[first + i], hashes[i]);
      ids[first + i] = found == end() ? -1 : found->second;
    }
  }
}

}  // namespace lumen::model::text
