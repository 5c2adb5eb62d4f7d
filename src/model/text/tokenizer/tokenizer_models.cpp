// Creates the word models of tokenizers from their tables.
#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "base/error.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"
#include "model/text/vocabulary/unigram.h"
#include "model/text/vocabulary/word_piece.h"

namespace lumen::model::text {
namespace {

bool in_model(const TokenizerParts& p, size_t id) {
  // User text never becomes a control token, whatever its pieces.
  if (p.tokens[id].empty() || p.kinds[id] == TokenKind::control) return false;
  if (!p.in_model.empty()) return id < p.in_model.size() && p.in_model[id];
  return p.kinds[id] == TokenKind::normal || p.kinds[id] == TokenKind::user_defined ||
         (p.kinds[id] == TokenKind::unused && p.kind != VocabularyKind::unigram);
}

TokenMap model_tokens(const TokenizerParts& p) {
  TokenMap out;
  out.reserve(p.tokens.size());
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (in_model(p, i)) out.emplace(p.tokens[i], i);
  }
  return out;
}

std::vector<std::pair<std::string_view, TokenId>> model_strings(const TokenizerParts& p) {
  std::vector<std::pair<std::string_view, TokenId>> out;
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (in_model(p, i)) out.emplace_back(p.tokens[i], static_cast<TokenId>(i));
  }
  return out;
}

// The byte tokens <0x00> to <0xFF>; -1 where there is none.
std::array<TokenId, 256> byte_tokens(const TokenizerParts& p, bool wanted) {
  std::array<TokenId, 256> out;
  for (int b = 0; b < 256; ++b) {
    const auto found = p.ids.find(fmt::format("<0x{:02X}>", b));
    out[b] = found == p.ids.end() || !wanted ? -1 : found->second;
  }
  return out;
}

// The merges of a file as ids. Strings are looked up in batches.
PairTable pair_table(const TokenizerParts& p, const TokenMap& tokens, const std::string& where) {
  constexpr size_t kTogether = 256;
  PairTable table(p.merges.size());
  std::array<std::string, kTogether> joined;
  std::array<std::string_view, 3 * kTogether> strings;
  std::array<TokenId, 3 * kTogether> ids{};
  for (size_t first = 0; first < p.merges.size(); first += kTogether) {
    const size_t count = std::min(kTogether, p.merges.size() - first);
    for (size_t i = 0; i < count; ++i) {
      const auto& [left, right] = p.merges[first + i];
      std::string_view rest = right;
      if (rest.starts_with(p.continuing)) rest.remove_prefix(p.continuing.size());
      joined[i].assign(left).append(rest);
      strings[3 * i] = left;
      strings[3 * i + 1] = right;
      strings[3 * i + 2] = joined[i];
    }
    tokens.find_all(std::span(strings).first(3 * count), std::span(ids).first(3 * count));
    for (size_t i = 0; i < count; ++i) {
      const TokenId left = ids[3 * i], right = ids[3 * i + 1], both = ids[3 * i + 2];
      if (left < 0 || right < 0 || both < 0)
        throw user_error("{}: merge {} ('{}' with '{}') names a token that is not in the vocabulary", where, first + i,
                         p.merges[first + i].first, p.merges[first + i].second);
      table.insert(left, right, {static_cast<int32_t>(first + i), both});
    }
  }
  return table;
}

std::unique_ptr<const WordModel> byte_pairs(const TokenizerParts& p, const std::string& where, bool whole_first) {
  std::array<TokenId, 256> bytes;
  for (int b = 0; b < 256; ++b) {
    const auto found = p.ids.find(to_alphabet(std::string(1, static_cast<char>(b))));
    // An added token that reads like a letter of the byte-level alphabet is not the token of that byte.
    bytes[b] = found == p.ids.end() || p.verbatim[found->second] ? -1 : found->second;
  }
  return std::make_unique<BytePairModel>(bytes, pair_table(p, p.ids, where), whole_first ? &p.ids : nullptr,
                                         &p.verbatim, p.unknown);
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
  PairTable merges = pair_table(p, tokens, where);
  return std::make_unique<CharacterPairModel>(std::move(tokens), std::vector<std::pair<char32_t, TokenId>>(),
                                              std::move(merges), character_options(p));
}

std::unique_ptr<const WordModel> scored_pairs(TokenizerParts& p) {
  TokenMap tokens = model_tokens(p), symbols = tokens;
  // Characters that occur in pieces but are no pieces themselves still take part in merges.
  std::vector<std::pair<char32_t, TokenId>> more;
  TokenId next = p.tokens.size();
  for (size_t id = 0; id < p.tokens.size(); ++id) {
    if (!in_model(p, id)) continue;
    const std::string_view text = p.tokens[id];
    for (size_t at = 0; at < text.size();) {
      char32_t c;
      const size_t n = utf8_char(text, at, &c);
      if (n == 0) break;
      if (symbols.emplace(text.substr(at, n), next)) more.emplace_back(c, next++);
      at += n;
    }
  }
  std::vector<TokenId> order;
  for (size_t id = 0; id < p.tokens.size(); ++id) {
    if (in_model(p, id)) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return p.scores[a] > p.scores[b]; });
  PairTable merges(order.size() * 2);
  p.merges.clear();
  // Every split of a piece into two symbols. Looked up in batches: first the left parts, then the right parts of those
  // found.
  struct Cut {
    TokenId id;
    int32_t rank;
    size_t at;
  };
  constexpr size_t kTogether = 4096;
  std::vector<Cut> cuts;
  std::vector<std::string_view> strings;
  std::vector<TokenId> lefts, rights;
  const TokenId count = p.tokens.size();
  const auto settle = [&] {
    lefts.resize(cuts.size());
    symbols.find_all(strings, lefts);
    strings.clear();
    size_t kept = 0;
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (lefts[i] < 0) continue;
      strings.push_back(std::string_view(p.tokens[cuts[i].id]).substr(cuts[i].at));
      lefts[kept] = lefts[i];
      cuts[kept++] = cuts[i];
    }
    rights.resize(kept);
    symbols.find_all(strings, rights);
    for (size_t i = 0; i < kept; ++i) {
      if (rights[i] < 0) continue;
      merges.insert(lefts[i], rights[i], {cuts[i].rank, cuts[i].id});
      if (lefts[i] >= count || rights[i] >= count) continue;
      const std::string& text = p.tokens[cuts[i].id];
      p.merges.emplace_back(text.substr(0, cuts[i].at), text.substr(cuts[i].at));
    }
    cuts.clear();
    strings.clear();
  };
  int32_t rank = -1;
  for (size_t i = 0; i < order.size(); ++i) {
    const TokenId id = order[i];
    if (i == 0 || p.scores[order[i - 1]] != p.scores[id]) ++rank;  // equal scores: leftmost first
    const std::string_view text = p.tokens[id];
    for (size_t at = 1; at < text.size(); ++at) {
      if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
      cuts.push_back({id, rank, at});
      strings.push_back(text.substr(0, at));
    }
    if (cuts.size() >= kTogether) settle();
  }
  settle();
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

bool merges_say_all(const TokenizerParts& p) {
  const auto merging = byte_pairs(p, "tokenizer", false);
  std::vector<TokenId> ids;
  for (const auto& [text, id] : p.ids) {
    const auto bytes = from_alphabet(text);
    if (p.verbatim[id] || !bytes) continue;
    ids.clear();
    try {
      merging->encode(*bytes, ids);
    } catch (const Error&) {  // a byte without a token
      return false;
    }
    if (ids.size() != 1 || ids[0] != id) return false;
  }
  return true;
}

void build_word_model(TokenizerParts& p, const std::string& where) {
  const bool scored = p.kind == VocabularyKind::scored_pairs || p.kind == VocabularyKind::unigram;
  if (scored && p.scores.size() != p.tokens.size())
    throw user_error("{}: {} scores for {} tokens", where, p.scores.size(), p.tokens.size());
  switch (p.kind) {
    case VocabularyKind::byte_pair:
      p.model = byte_pairs(p, where, p.ignore_merges);
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
      if (!p.unknown) throw user_error("{}: the vocabulary has no unknown token", where);
      p.model =
          std::make_unique<WordPieceModel>(model_strings(p), std::string(), p.continuing, *p.unknown, p.longest_word);
      break;
    case VocabularyKind::whole_word:
      p.model = std::make_unique<WholeWordModel>(model_strings(p), p.unknown);
      break;
  }
  p.cut_words = p.kind == VocabularyKind::character_pair || p.kind == VocabularyKind::scored_pairs;
}

}  // namespace lumen::model::text
