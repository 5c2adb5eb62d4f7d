// The word models of tokenizers from their tables.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/text/tokenizer_parts.h"
#include "model/text/unicode.h"
#include "model/text/unigram.h"
#include "model/text/word_piece.h"

namespace lumen::model {
namespace {

bool in_model(const TokenizerParts& p, size_t id) {
  // No text of a user becomes a control token, whatever pieces it is made of.
  if (p.tokens[id].empty() || p.kinds[id] == TokenKind::control) return false;
  if (!p.in_model.empty()) return id < p.in_model.size() && p.in_model[id];
  return p.kinds[id] == TokenKind::normal || p.kinds[id] == TokenKind::user_defined ||
         (p.kinds[id] == TokenKind::unused && p.kind != VocabularyKind::unigram);
}

TokenMap model_tokens(const TokenizerParts& p) {
  TokenMap out;
  out.reserve(p.tokens.size());
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (in_model(p, i)) out.emplace(p.tokens[i], static_cast<TokenId>(i));
  }
  return out;
}

std::vector<std::pair<std::string_view, TokenId>> model_texts(const TokenizerParts& p) {
  std::vector<std::pair<std::string_view, TokenId>> out;
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (in_model(p, i)) out.emplace_back(p.tokens[i], static_cast<TokenId>(i));
  }
  return out;
}

// Tokens of the single bytes, written <0x00> to <0xFF>; -1 where there is none.
std::array<TokenId, 256> byte_tokens(const TokenizerParts& p, bool wanted) {
  std::array<TokenId, 256> out;
  for (int b = 0; b < 256; ++b) {
    const auto found = p.ids.find(fmt::format("<0x{:02X}>", b));
    out[static_cast<size_t>(b)] = found == p.ids.end() || !wanted ? -1 : found->second;
  }
  return out;
}

std::unique_ptr<const WordModel> byte_pairs(const TokenizerParts& p, const std::string& where) {
  std::array<TokenId, 256> bytes;
  for (int b = 0; b < 256; ++b) {
    const auto found = p.ids.find(to_alphabet(std::string(1, static_cast<char>(b))));
    // An added token that reads like a letter of the byte alphabet stands for that letter, not for the byte.
    bytes[b] = found == p.ids.end() || p.verbatim[found->second] ? -1 : found->second;
  }
  PairTable merges(p.merges.size());
  std::string text;
  for (size_t rank = 0; rank < p.merges.size(); ++rank) {
    const auto& [left, right] = p.merges[rank];
    text.assign(left).append(right);
    const auto a = p.ids.find(left), b = p.ids.find(right), both = p.ids.find(text);
    if (a == p.ids.end() || b == p.ids.end() || both == p.ids.end())
      throw user_error("{}: merge {} ('{}' with '{}') names a token that is not in the vocabulary", where, rank, left,
                       right);
    merges.insert(a->second, b->second, {static_cast<int32_t>(rank), both->second});
  }
  return std::make_unique<BytePairModel>(bytes, std::move(merges), p.ignore_merges ? &p.ids : nullptr, &p.verbatim,
                                         p.unknown);
}

CharacterPairModel::Options character_options(const TokenizerParts& p) {
  return {.bytes = byte_tokens(p, p.byte_fallback),
          .unknown = p.unknown,
          .fuse_unknown = p.fuse_unknown,
          .whole_first = p.ignore_merges,
          .continuing = p.continuing,
          .word_end = p.word_end};
}

std::unique_ptr<const WordModel> character_pairs(const TokenizerParts& p, const std::string& where) {
  TokenMap tokens = model_tokens(p);
  PairTable merges(p.merges.size());
  for (size_t rank = 0; rank < p.merges.size(); ++rank) {
    const auto& [left, right] = p.merges[rank];
    const std::string_view rest =
        right.starts_with(p.continuing) ? std::string_view(right).substr(p.continuing.size()) : std::string_view(right);
    const auto a = tokens.find(left), b = tokens.find(right), both = tokens.find(left + std::string(rest));
    if (a == tokens.end() || b == tokens.end() || both == tokens.end())
      throw user_error("{}: merge {} ('{}' with '{}') names a token that is not in the vocabulary", where, rank, left,
                       right);
    merges.insert(a->second, b->second, {static_cast<int32_t>(rank), both->second});
  }
  return std::make_unique<CharacterPairModel>(std::move(tokens), std::vector<std::pair<char32_t, TokenId>>(),
                                              std::move(merges), character_options(p));
}

std::unique_ptr<const WordModel> scored_pairs(TokenizerParts& p) {
  TokenMap tokens = model_tokens(p), symbols = tokens;
  // Characters that occur in pieces but are none themselves take part in merges all the same.
  std::vector<std::pair<char32_t, TokenId>> more;
  auto next = static_cast<TokenId>(p.tokens.size());
  for (size_t id = 0; id < p.tokens.size(); ++id) {
    if (!in_model(p, id)) continue;
    const std::string& text = p.tokens[id];
    for (size_t at = 0; at < text.size();) {
      char32_t c;
      const size_t n = utf8_char(text, at, &c);
      if (n == 0) break;
      if (symbols.emplace(text.substr(at, n), next).second) more.emplace_back(c, next++);
      at += n;
    }
  }
  std::vector<TokenId> order;
  for (size_t id = 0; id < p.tokens.size(); ++id) {
    if (in_model(p, id)) order.push_back(static_cast<TokenId>(id));
  }
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return p.scores[a] > p.scores[b]; });
  PairTable merges(order.size() * 2);
  p.merges.clear();
  int32_t rank = -1;
  for (size_t i = 0; i < order.size(); ++i) {
    const TokenId id = order[i];
    if (i == 0 || p.scores[order[i - 1]] != p.scores[id]) ++rank;  // equal scores: leftmost first
    const std::string& text = p.tokens[id];
    for (size_t at = 1; at < text.size(); ++at) {
      if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
      const auto a = symbols.find(text.substr(0, at)), b = symbols.find(text.substr(at));
      if (a == symbols.end() || b == symbols.end()) continue;
      merges.insert(a->second, b->second, {rank, id});
      if (a->second < static_cast<TokenId>(p.tokens.size()) && b->second < static_cast<TokenId>(p.tokens.size()))
        p.merges.emplace_back(a->first, b->first);
    }
  }
  return std::make_unique<CharacterPairModel>(std::move(tokens), std::move(more), std::move(merges),
                                              character_options(p));
}

std::unique_ptr<const WordModel> unigram(const TokenizerParts& p) {
  std::vector<UnigramModel::Piece> pieces;
  double least = 0;
  bool any = false;
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (!in_model(p, i)) continue;
    pieces.push_back({p.tokens[i], p.scores[i], static_cast<TokenId>(i)});
    least = any ? std::min(least, p.scores[i]) : p.scores[i];
    any = true;
  }
  return std::make_unique<UnigramModel>(std::move(pieces),
                                        UnigramModel::Options{.unknown_score = least - 10,
                                                              .unknown = p.unknown,
                                                              .bytes = byte_tokens(p, p.byte_fallback),
                                                              .single_precision = p.single_precision});
}

}  // namespace

void build_word_model(TokenizerParts& p, const std::string& where) {
  const bool scored = p.kind == VocabularyKind::scored_pairs || p.kind == VocabularyKind::unigram;
  if (scored && p.scores.size() != p.tokens.size())
    throw user_error("{}: {} scores for {} tokens", where, p.scores.size(), p.tokens.size());
  switch (p.kind) {
    case VocabularyKind::byte_pair:
      p.model = byte_pairs(p, where);
      break;
    case VocabularyKind::character_pair:
      p.model = character_pairs(p, where);
      break;
    case VocabularyKind::scored_pairs:
      p.model = scored_pairs(p);
      break;
    case VocabularyKind::unigram:
      p.model = unigram(p);
      break;
    case VocabularyKind::word_piece:
      if (!p.unknown) throw user_error("{}: the vocabulary has no token for unknown words", where);
      p.model =
          std::make_unique<WordPieceModel>(model_texts(p), std::string(), p.continuing, *p.unknown, p.longest_word);
      break;
    case VocabularyKind::whole_word:
      p.model = std::make_unique<WholeWordModel>(model_texts(p), p.unknown);
      break;
  }
  p.cut_words = p.kind == VocabularyKind::character_pair || p.kind == VocabularyKind::scored_pairs;
}

}  // namespace lumen::model
