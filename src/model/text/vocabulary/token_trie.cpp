#include "model/text/vocabulary/token_trie.h"

#include <algorithm>

namespace lumen::model::text {

namespace {

using Tokens = std::vector<std::pair<std::string_view, TokenId>>;

// Sorts by string and id. The first eight bytes, as an integer, decide nearly always, and are stored contiguously;
// these integers are returned.
std::vector<uint64_t> sort_by_text(Tokens& tokens) {
  struct Keyed {
    uint64_t key;
    uint32_t index;
  };
  std::vector<Keyed> order(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = tokens[i].first;
    uint64_t key = 0;
    for (size_t b = 0; b < 8; ++b) key = key << 8 | (b < text.size() ? static_cast<unsigned char>(text[b]) : 0);
    order[i] = {key, static_cast<uint32_t>(i)};
  }
  std::sort(order.begin(), order.end(), [&](const Keyed& a, const Keyed& b) {
    return a.key != b.key ? a.key < b.key : tokens[a.index] < tokens[b.index];
  });
  Tokens sorted;
  sorted.reserve(tokens.size());
  std::vector<uint64_t> keys;
  keys.reserve(tokens.size());
  for (const Keyed& k : order) {
    sorted.push_back(tokens[k.index]);
    keys.push_back(k.key);
  }
  tokens = std::move(sorted);
  return keys;
}

}  // namespace

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens) {
  std::erase_if(tokens, [](const auto& t) { return t.first.empty(); });
  const std::vector<uint64_t> keys = sort_by_text(tokens);
  const auto byte_at = [&](size_t i, size_t depth) {
    return depth < 8 ? static_cast<uint8_t>(keys[i] >> (56 - 8 * depth)) : static_cast<uint8_t>(tokens[i].first[depth]);
  };
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, tokens.size(), 0}};  // of nodes_, breadth first
  for (size_t n = 0; n < ranges.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    TokenId last = -1;
    while (begin < end && tokens[begin].first.size() == depth) {
      if (nodes_[n].token < 0) {
        nodes_[n].token = tokens[begin].second;
      } else {
        same_.emplace_back(last, tokens[begin].second);
      }
      last = tokens[begin++].second;
    }
    nodes_[n].first_child = nodes_.size();
    while (begin < end) {
      const uint8_t byte = byte_at(begin, depth);
      // Exponential, then binary search: most children cover few tokens.
      size_t same = begin, stop = begin + 1;  // the last one known to have that byte, and one that may not
      for (size_t step = 1; stop < end && byte_at(stop, depth) == byte; step *= 2) {
        same = stop;
        stop = std::min(end, stop + step);
      }
      while (stop - same > 1) {
        const size_t middle = same + (stop - same) / 2;
        (byte_at(middle, depth) == byte ? same : stop) = middle;
      }
      ranges.push_back({begin, stop, depth + 1});
      nodes_.push_back({.byte = byte});
      ++nodes_[n].children;
      begin = stop;
    }
  }
  for (uint32_t c = 0; c < nodes_[0].children; ++c) roots_[nodes_[1 + c].byte] = 1 + c;
  std::sort(same_.begin(), same_.end());
}

uint32_t TokenTrie::child(uint32_t node, uint8_t byte) const {
  if (node == 0) return roots_[byte];
  const Node& n = nodes_[node];
  uint32_t low = n.first_child, count = n.children;
  while (count > 0) {
    const uint32_t half = count / 2;
    if (nodes_[low + half].byte < byte) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return low < n.first_child + n.children && nodes_[low].byte == byte ? low : 0;
}

TokenId TokenTrie::same(TokenId token) const {
  const auto at = std::lower_bound(same_.begin(), same_.end(), std::pair<TokenId, TokenId>(token, -1));
  return at != same_.end() && at->first == token ? at->second : -1;
}

}  // namespace lumen::model::text
