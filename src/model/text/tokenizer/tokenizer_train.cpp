// Tokenizers created from a text: BPE training and character-level vocabularies.
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "model/text/tokenizer/characters.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
TokenId left_of(uint64_t key) {
  return key >> 32;
}
TokenId right_of(uint64_t key) {
  return key & 0xffffffffu;
}

struct Word {
  std::vector<TokenId> symbols;
  int64_t count = 0;
};

struct Candidate {
  int64_t count;
  uint64_t pair;
  bool operator<(const Candidate& other) const {  // top of the heap: most frequent, then the lower pair of ids
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// Counts of adjacent pairs over all words, and the words that may contain each pair.
class PairCounts {
 public:
  explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t w = 0; w < words_.size(); ++w) {
      const std::vector<TokenId>& s = words_[w].symbols;
      for (size_t i = 0; i + 1 < s.size(); ++i) change(pair_key(s[i], s[i + 1]), words_[w].count, w);
    }
    for (const auto& [pair, count] : counts_) heap_.push({count, pair});
    touched_.clear();
  }

  // The most frequent pair and its count; false when none is left.
  bool best(Candidate* out) {
    while (!heap_.empty()) {
      Candidate top = heap_.top();
      heap_.pop();
      const int64_t now = counts_[top.pair];
      if (now != top.count) {
        if (now > 0) heap_.push({now, top.pair});
        continue;
      }
      if (now <= 0) continue;
      *out = top;
      return true;
    }
    return false;
  }

  void merge(uint64_t pair, TokenId id) {
    const TokenId left = left_of(pair), right = right_of(pair);
    const std::unordered_set<size_t> places = std::move(where_[pair]);
    where_.erase(pair);
    for (const size_t w : places) {
      std::vector<TokenId>& s = words_[w].symbols;
      const int64_t n = words_[w].count;
      size_t kept = 0;
      for (size_t i = 0; i < s.size(); ++i) {
        if (i + 1 >= s.size() || s[i] != left || s[i + 1] != right) {
          s[kept++] = s[i];
          continue;
        }
        if (kept > 0) {
          change(pair_key(s[kept - 1], left), -n, w);
          change(pair_key(s[kept - 1], id), n, w);
        }
        if (i + 2 < s.size()) {
          change(pair_key(right, s[i + 2]), -n, w);
          change(pair_key(id, s[i + 2]), n, w);
        }
        s[kept++] = id;
        ++i;
      }
      s.resize(kept);
    }
    counts_[pair] = 0;
    for (const uint64_t changed : touched_) {
      if (const int64_t count = counts_[changed]; count > 0) heap_.push({count, changed});
    }
    touched_.clear();
  }

 private:
  void change(uint64_t pair, int64_t by, size_t word) {
    counts_[pair] += by;
    if (by <= 0) return;
    where_[pair].insert(word);
    touched_.insert(pair);
  }

  std::vector<Word> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::unordered_set<size_t>> where_;
  std::unordered_set<uint64_t> touched_;  // pairs whose count rose above that in the heap
  std::priority_queue<Candidate> heap_;
};

// Calls `see` for each part between names of control tokens.
template <typename See>
void between_specials(std::string_view text, const AddedTokens& specials, const See& see) {
  size_t at = 0;
  for (AddedTokens::Match match; specials.find(text, at, true, &match); at = match.end)
    see(text.substr(at, match.begin - at));
  see(text.substr(at));
}

std::vector<Word> count_words(std::string_view text, const AddedTokens& specials, const Splitter& splitter,
                              const std::array<TokenId, 256>& bytes) {
  std::unordered_map<std::string, size_t> index;
  std::vector<Word> words;
  const auto count = [&](std::string_view piece) {
    const auto [at, fresh] = index.emplace(piece, words.size());
    if (fresh) {
      Word word;
      for (const char c : piece) word.symbols.push_back(bytes[static_cast<unsigned char>(c)]);
      words.push_back(std::move(word));
    }
    ++words[at->second].count;
  };
  between_specials(text, specials, [&](std::string_view part) { splitter.split(part, count); });
  return words;
}

const Pretokenizer& row_named(const std::string& name) {
  const Pretokenizer* row = pretokenizers().find(name);
  if (!row) throw usage_error("there is no pre-tokenizer '{}'", name);
  return *row;
}

// Control tokens get the first ids.
void put_specials(const std::vector<std::string>& specials, const std::string& end_of_text, TokenizerParts& p) {
  for (const std::string& special : specials) {
    const TokenId id = p.tokens.size();
    if (special.empty() || std::find(p.tokens.begin(), p.tokens.end(), special) != p.tokens.end())
      throw usage_error("'{}' cannot be a special token: empty or named twice", special);
    p.tokens.push_back(special);
    p.added_raw.add({.id = id, .content = special, .control = true});
    if (special == end_of_text) p.bos = p.eos = id;
  }
  if (!end_of_text.empty() && !p.eos) throw usage_error("'{}' is not among the special tokens", end_of_text);
}

}  // namespace

Tokenizer Tokenizer::train(std::string_view text, const BpeTraining& options) {
  const int64_t least = 256 + options.specials.size();
  if (options.vocabulary < least || options.vocabulary > kMaxVocabulary)
    throw usage_error("a vocabulary of {} tokens: between {} and {} are possible here", options.vocabulary, least,
                      kMaxVocabulary);
  const Pretokenizer& row = row_named(options.split.empty() ? pretokenizers().train : options.split);
  auto parts = std::make_shared<TokenizerParts>();
  TokenizerParts& p = *parts;
  if (row.nfc) p.normalizer = Normalizer({{.kind = NormalStep::Kind::nfc}});
  p.ignore_merges = row.ignore_merges;
  p.splitter = Splitter(row.steps, "pre-tokenizer");

  put_specials(options.specials, options.end_of_text, p);

  // Bytes in the order of their characters in the byte-level alphabet.
  std::map<char32_t, int> alphabet;
  for (int b = 0; b < 256; ++b) alphabet[byte_to_alphabet(static_cast<unsigned char>(b))] = b;
  std::array<TokenId, 256> bytes{};
  std::unordered_map<std::string, TokenId> ids;
  const size_t first_byte = p.tokens.size();
  for (const auto& [c, byte] : alphabet) {
    bytes[byte] = p.tokens.size();
    std::string name;
    utf8_append(name, c);
    ids.emplace(name, static_cast<TokenId>(p.tokens.size()));
    p.tokens.push_back(std::move(name));
  }

  const std::string normalized = row.nfc ? normalize_nfc(text) : std::string();
  PairCounts pairs(count_words(row.nfc ? std::string_view(normalized) : text, p.added_raw, p.splitter, bytes));
  Candidate best;
  while (std::ssize(p.tokens) < options.vocabulary && pairs.best(&best)) {
    if (best.count < options.min_frequency) break;
    const std::string &left = p.tokens[left_of(best.pair)], &right = p.tokens[right_of(best.pair)];
    p.merges.emplace_back(left, right);
    // Two different pairs may form the same token.
    const auto [at, fresh] = ids.emplace(left + right, static_cast<TokenId>(p.tokens.size()));
    if (fresh) p.tokens.push_back(at->first);
    pairs.merge(best.pair, at->second);
  }
  p.kinds.assign(p.tokens.size(), TokenKind::normal);
  p.verbatim.assign(p.tokens.size(), false);
  for (size_t i = 0; i < first_byte; ++i) {
    p.kinds[i] = TokenKind::control;
    p.verbatim[i] = true;
    if (ids.contains(p.tokens[i]))
      throw usage_error("the special token '{}' is also a piece of the text's vocabulary", p.tokens[i]);
  }
  finish_tokenizer(p, "training");
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::characters(std::string_view text) {
  return character_tokenizer(text, {}, {});
}

Tokenizer character_tokenizer(std::string_view text, const std::vector<std::string>& specials,
                              const std::string& end_of_text) {
  const Pretokenizer& row = row_named(pretokenizers().characters);
  auto parts = std::make_shared<TokenizerParts>();
  TokenizerParts& p = *parts;
  p.ignore_merges = row.ignore_merges;
  p.splitter = Splitter(row.steps, "pre-tokenizer");
  put_specials(specials, end_of_text, p);
  std::set<char32_t> found;
  between_specials(text, p.added_raw, [&](std::string_view part) {
    for (size_t at = 0; at < part.size();) {
      char32_t c;
      const size_t n = utf8_char(part, at, &c);
      if (n == 0)
        throw user_error("byte {} of the text is not valid UTF-8, so it has no character there",
                         part.data() - text.data() + at);
      found.insert(c);
      at += n;
    }
  });
  for (const char32_t c : found) {
    std::string character;
    utf8_append(character, c);
    p.tokens.push_back(to_alphabet(character));
  }
  p.kinds.assign(p.tokens.size(), TokenKind::normal);
  p.verbatim.assign(p.tokens.size(), false);
  for (size_t i = 0; i < specials.size(); ++i) {
    p.kinds[i] = TokenKind::control;
    p.verbatim[i] = true;
  }
  finish_tokenizer(p, "the text");
  return Tokenizer(std::move(parts));
}

}  // namespace lumen::model::text
