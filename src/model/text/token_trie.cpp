#include "model/text/token_trie.h"

#include <algorithm>

namespace lumen::model {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens) {
  std::erase_if(tokens, [](const auto& t) { return t.first.empty(); });
  std::sort(tokens.begin(), tokens.end());
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
    nodes_[n].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      const auto part = std::partition_point(tokens.begin() + static_cast<ptrdiff_t>(begin),
                                             tokens.begin() + static_cast<ptrdiff_t>(end),
                                             [&](const auto& t) { return t.first[depth] == byte; });
      const auto stop = static_cast<size_t>(part - tokens.begin());
      ranges.push_back({begin, stop, depth + 1});
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
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

}  // namespace lumen::model
