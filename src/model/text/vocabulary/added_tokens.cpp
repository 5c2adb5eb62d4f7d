#include "model/text/vocabulary/added_tokens.h"

#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

uint64_t edge(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

bool word_before(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0 && at - begin < 4) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xc0) != 0x80) break;
  }
  char32_t c;
  return begin < at && utf8_char(text, begin, &c) == at - begin && is_word_char(c);
}

bool word_after(std::string_view text, size_t at) {
  char32_t c;
  return at < text.size() && utf8_char(text, at, &c) != 0 && is_word_char(c);
}

size_t strip_back(std::string_view text, size_t floor, size_t at) {
  while (at > floor) {
    size_t begin = at - 1;
    while (begin > floor && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    char32_t c;
    if (utf8_char(text, begin, &c) != at - begin || !is_white_space(c)) break;
    at = begin;
  }
  return at;
}

size_t strip_ahead(std::string_view text, size_t at) {
  char32_t c;
  while (at < text.size()) {
    const size_t n = utf8_char(text, at, &c);
    if (n == 0 || !is_white_space(c)) break;
    at += n;
  }
  return at;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  if (token.match.empty()) token.match = token.content;
  const auto first = static_cast<unsigned char>(token.match[0]);
  begins_[first] = true;
  for (unsigned second = 0; second < 256 && token.match.size() == 1; ++second) two_[first << 8 | second] = true;
  if (token.match.size() > 1) two_[first << 8 | static_cast<unsigned char>(token.match[1])] = true;
  uint32_t node = 0;
  for (const char byte : token.match) {
    const auto [at, fresh] = edges_.emplace(edge(node, byte), static_cast<uint32_t>(token_at_.size()));
    node = at->second;
    if (fresh) token_at_.push_back(-1);
  }
  if (token_at_[node] < 0) token_at_[node] = tokens_.size();
  tokens_.push_back(std::move(token));
}

int AddedTokens::longest(std::string_view text, size_t at, bool control) const {
  int best = -1;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto next = edges_.find(edge(node, text[i]));
    if (next == edges_.end()) break;
    node = next->second;
    const int token = token_at_[node];
    if (token >= 0 && (control || !tokens_[token].control)) best = token;
  }
  return best;
}

bool AddedTokens::find(std::string_view text, size_t from, bool control, Match* out) const {
  for (size_t at = from; at < text.size(); ++at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (!begins_[first]) continue;
    if (at + 1 < text.size() && !two_[first << 8 | static_cast<unsigned char>(text[at + 1])]) continue;
    const int index = longest(text, at, control);
    if (index < 0) continue;
    const AddedToken& token = tokens_[index];
    const size_t end = at + token.match.size();
    if (token.single_word && (word_before(text, at) || word_after(text, end))) {
      at = end - 1;  // stays plain text
      continue;
    }
    out->begin = token.strip_left ? strip_back(text, from, at) : at;
    out->end = token.strip_right ? strip_ahead(text, end) : end;
    out->id = token.id;
    return true;
  }
  return false;
}

}  // namespace lumen::model::text
