#include "model/text/vocabulary/unigram.h"

#include <algorithm>

#include "base/error.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {

UnigramModel::UnigramModel(std::vector<Piece> pieces, Options options)
    : pieces_(std::move(pieces)), options_(std::move(options)) {
  std::vector<std::pair<std::string_view, TokenId>> strings;
  for (size_t i = 0; i < pieces_.size(); ++i) strings.emplace_back(pieces_[i].text, static_cast<TokenId>(i));
  trie_ = TokenTrie(std::move(strings));
}

void UnigramModel::unknown(std::string_view text, std::vector<TokenId>& out) const {
  const bool bytes =
      std::all_of(text.begin(), text.end(), [&](char b) { return options_.bytes[static_cast<unsigned char>(b)] >= 0; });
  if (bytes) {
    for (const char b : text) out.push_back(options_.bytes[static_cast<unsigned char>(b)]);
    return;
  }
  if (!options_.unknown)
    throw Error(Exit::user, fmt::format("the tokenizer has no token for '{}'", utf8_repair(text.substr(0, 80))),
                "choose a tokenizer trained on text with these characters");
  out.push_back(*options_.unknown);
}

void UnigramModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  struct Best {
    double score = 0;
    int32_t piece = -2;  // -1: unknown; -2: no segmentation ends here
    size_t begin = 0;
  };
  static thread_local std::vector<Best> best;
  best.assign(word.size() + 1, {});
  best[0].piece = -1;
  const auto offer = [&](size_t begin, size_t end, double score, int32_t piece) {
    double sum = best[begin].score + score;
    if (options_.single_precision)
      sum = static_cast<float>(static_cast<float>(best[begin].score) + static_cast<float>(score));
    if (best[end].piece == -2 || sum > best[end].score) best[end] = {sum, piece, begin};
  };
  for (size_t at = 0; at < word.size();) {
    char32_t c;
    const size_t n = std::max<size_t>(1, utf8_char(word, at, &c));
    bool single = false;
    uint32_t node = 0;
    for (size_t i = at; i < word.size(); ++i) {
      node = trie_.child(node, static_cast<uint8_t>(word[i]));
      if (node == 0) break;
      const TokenId piece = trie_.nodes()[node].token;
      if (piece < 0) continue;
      offer(at, i + 1, pieces_[piece].score, piece);
      single |= i + 1 - at == n;
    }
    if (!single) offer(at, at + n, options_.unknown_score, -1);
    at += n;
  }
  static thread_local std::vector<size_t> path;
  path.clear();
  for (size_t end = word.size(); end > 0; end = best[end].begin) path.push_back(end);
  for (size_t i = path.size(); i-- > 0;) {
    size_t end = path[i];
    const Best& b = best[end];
    if (b.piece >= 0) {
      out.push_back(pieces_[b.piece].id);
      continue;
    }
    while (options_.fuse_unknown && i > 0 && best[path[i - 1]].piece == -1) end = path[--i];
    unknown(word.substr(b.begin, end - b.begin), out);
  }
}

}  // namespace lumen::model::text
