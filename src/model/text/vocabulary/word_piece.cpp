#include "model/text/vocabulary/word_piece.h"

#include "base/error.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

// The node reached by `text` from `node`; 0 when there is none and the text is not empty.
uint32_t walk(const TokenTrie& trie, uint32_t node, std::string_view text) {
  for (const char b : text) {
    node = trie.child(node, static_cast<uint8_t>(b));
    if (node == 0) return 0;
  }
  return node;
}

}  // namespace

WordPieceModel::WordPieceModel(const std::vector<std::pair<std::string_view, TokenId>>& tokens, std::string first,
                               std::string continuing, TokenId unknown, size_t longest)
    : trie_(tokens),
      first_(std::move(first)),
      continuing_(std::move(continuing)),
      unknown_(unknown),
      longest_(longest) {}

void WordPieceModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  size_t characters = 0;
  for (const char b : word) characters += (static_cast<unsigned char>(b) & 0xc0) != 0x80;
  const size_t before = out.size();
  bool whole = characters <= longest_;
  for (size_t at = 0; whole && at < word.size();) {
    const std::string& prefix = at == 0 ? first_ : continuing_;
    uint32_t node = walk(trie_, 0, prefix);
    size_t end = at;
    TokenId token = -1;
    if (node != 0 || prefix.empty()) {
      for (size_t i = at; i < word.size(); ++i) {
        node = trie_.child(node, static_cast<uint8_t>(word[i]));
        if (node == 0) break;
        if (trie_.nodes()[node].token < 0) continue;
        token = trie_.nodes()[node].token;
        end = i + 1;
      }
    }
    whole = token >= 0;
    if (whole) out.push_back(token);
    at = end;
  }
  if (whole) return;
  out.resize(before);
  out.push_back(unknown_);
}

WholeWordModel::WholeWordModel(const std::vector<std::pair<std::string_view, TokenId>>& tokens,
                               std::optional<TokenId> unknown)
    : trie_(tokens), unknown_(unknown) {}

void WholeWordModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  const uint32_t node = walk(trie_, 0, word);
  const TokenId token = node == 0 ? -1 : trie_.nodes()[node].token;
  if (token < 0 && !unknown_)
    throw Error(Exit::user, fmt::format("the tokenizer has no token for '{}'", utf8_repair(word.substr(0, 80))),
                "choose a tokenizer trained on text with these words");
  out.push_back(token >= 0 ? token : *unknown_);
}

}  // namespace lumen::model::text
