#include "model/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads/threads.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

// This thread's cache of recent words and their tokens. Encoding is a pure function of the word, so a cache never
// changes a result. Direct-mapped: a word evicts the previous one in its slot.
class WordCache {
 public:
  static constexpr size_t kLongest = 26, kTokens = 9;  // a slot is one cache line

  struct alignas(64) Slot {
    uint8_t size = 0, count = 0;
    char word[kLongest] = {};
    TokenId tokens[kTokens] = {};
  };

  explicit WordCache(uint64_t serial) : serial_(serial), slots_(kSlots) {}
  uint64_t serial() const { return serial_; }

  // The slot of a word of at most kLongest bytes; the caller checks whether it holds that word.
  Slot& slot(std::string_view word) {
    uint64_t a = 0, b = 0, c = 0;
    const size_t n = word.size();
    const char* p = word.data();
    if (n >= 8) {
      std::memcpy(&a, p, 8);
      std::memcpy(&b, p + n - 8, 8);
      if (n > 16) std::memcpy(&c, p + n / 2 - 4, 8);
    } else {
      std::memcpy(&a, p, n);
    }
    uint64_t h = (a ^ n) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32) ^ b) * 0xd6e8feb86659fd93u;
    h = (h ^ (h >> 32) ^ c) * 0xa0761d6478bd642fu;
    return slots_[(h >> 40) & (kSlots - 1)];
  }

 private:
  static constexpr size_t kSlots = 1 << 15;
  uint64_t serial_;
  std::vector<Slot> slots_;
};

// This thread's caches of the most recently used tokenizers.
WordCache& word_cache(uint64_t serial) {
  static thread_local std::array<std::unique_ptr<WordCache>, 3> caches;
  for (size_t i = 0; i < caches.size(); ++i) {
    if (caches[i] && caches[i]->serial() == serial) {
      std::rotate(caches.begin(), caches.begin() + i, caches.begin() + i + 1);
      return *caches[0];
    }
  }
  std::rotate(caches.begin(), caches.end() - 1, caches.end());
  caches[0] = std::make_unique<WordCache>(serial);
  return *caches[0];
}

void encode_word(const TokenizerParts& p, WordCache& cache, std::string_view word, std::vector<TokenId>& out) {
  if (word.size() > WordCache::kLongest) return p.model->encode(word, out);
  WordCache::Slot& slot = cache.slot(word);
  if (slot.size == word.size() && std::memcmp(slot.word, word.data(), word.size()) == 0) {
    out.insert(out.end(), slot.tokens, slot.tokens + slot.count);
    return;
  }
  const size_t before = out.size();
  p.model->encode(word, out);
  const size_t count = out.size() - before;
  if (count > WordCache::kTokens) return;
  slot.size = word.size();
  slot.count = count;
  std::memcpy(slot.word, word.data(), word.size());
  std::copy(out.begin() + before, out.end(), slot.tokens);
}

// Splits `text` at added tokens and calls `plain` with each part between them, and whether it is the start of the text.
template <typename Plain>
void partition(const AddedTokens& added, std::string_view text, bool control, std::vector<TokenId>& out,
               const Plain& plain) {
  size_t at = 0;
  AddedTokens::Match match;
  while (!added.empty() && at < text.size() && added.find(text, at, control, &match)) {
    if (match.begin > at) plain(text.substr(at, match.begin - at), at == 0);
    out.push_back(match.id);
    at = match.end;
  }
  if (at < text.size()) plain(text.substr(at), at == 0);
}

}  // namespace

namespace {

// Once for each tokenizer: prompts of one program usually begin alike.
void warn_of_two_beginnings(const TokenizerParts& p) {
  static std::mutex mutex;
  static std::set<uint64_t> told;
  const std::lock_guard lock(mutex);
  if (!told.insert(p.serial).second) return;
  warn(
      fmt::format("a prompt begins with '{}', which the tokenizer adds by itself: it is there twice "
                  "now, which models are not trained on; leave it out of the prompt",
                  p.tokens.at(p.prefix.front())));
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TokenizerParts& p = *parts_;
  std::vector<TokenId> out;
  if (options.add_special) out = p.prefix;
  WordCache& cache = word_cache(p.serial);
  const auto word = [&](std::string_view w) {
    while (p.cut_words && w.size() > WordCache::kLongest) {
      const size_t n = p.model->independent(w);
      if (n == w.size()) break;
      encode_word(p, cache, w.substr(0, n), out);
      w.remove_prefix(n);
    }
    encode_word(p, cache, w, out);
  };
  const auto normalized = [&](std::string_view piece, bool first) {
    partition(p.added_normalized, piece, options.parse_special, out,
              [&](std::string_view rest, bool begins) { p.splitter.split(rest, word, first && begins); });
  };
  partition(p.added_raw, text, options.parse_special, out, [&](std::string_view piece, bool first) {
    if (p.normalizer.leaves(piece)) {
      normalized(piece, first);
    } else {
      normalized(p.normalizer.apply(piece), first);
    }
  });
  if (!options.add_special) return out;
  const size_t own = p.prefix.size();
  if (own > 0 && out.size() > own && out[own] == p.prefix.front()) warn_of_two_beginnings(p);
  out.insert(out.end(), p.suffix.begin(), p.suffix.end());
  return out;
}

Tokenizer::Pair Tokenizer::encode_pair(std::string_view first, std::string_view second) const {
  const TokenizerParts& p = *parts_;
  if (!p.between) throw user_error("the tokenizer does not define how two inputs are joined");
  Pair out{p.prefix, 0};
  const auto add = [&](const std::vector<TokenId>& ids) { out.ids.insert(out.ids.end(), ids.begin(), ids.end()); };
  add(encode(first));
  out.second = std::ssize(out.ids) + p.between_first;
  add(*p.between);
  add(encode(second));
  add(p.suffix);
  return out;
}

std::vector<std::vector<TokenId>> Tokenizer::encode_batch(std::span<const std::string_view> inputs,
                                                          EncodeOptions options, int threads) const {
  std::vector<std::vector<TokenId>> out(inputs.size());
  const size_t count = std::min<size_t>(inputs.size(), threads > 0 ? threads : usable_cores());
  std::atomic<size_t> next = 0;
  work_together(count, [&](int) {
    try {
      for (size_t i; (i = next++) < inputs.size();) out[i] = encode(inputs[i], options);
    } catch (...) {
      next = inputs.size();
      throw;
    }
  });
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  const bool plain = parts_->decoder.is_plain();
  std::string out;
  std::vector<Decoder::Part> list;
  for (const TokenId id : ids) {
    if (skip_special && kind(id) == TokenKind::control) continue;
    if (plain) {
      out += bytes(id);
    } else {
      list.push_back({std::string(token(id)), parts_->verbatim[id]});
    }
  }
  return plain ? out : parts_->decoder.decode(std::move(list));
}

int64_t Tokenizer::size() const {
  return parts_->tokens.size();
}

bool Tokenizer::has(TokenId id) const {
  return id >= 0 && id < size() && (!parts_->tokens[id].empty() || parts_->no_text == id);
}

std::string_view Tokenizer::token(TokenId id) const {
  return parts_->tokens[checked_id(*parts_, id, "token id")];
}

TokenKind Tokenizer::kind(TokenId id) const {
  return parts_->kinds[checked_id(*parts_, id, "token id")];
}

std::string Tokenizer::bytes(TokenId id) const {
  const TokenizerParts& p = *parts_;
  std::string text(token(id));
  if (p.decoder.is_plain()) {
    if (p.verbatim[id]) return text;
    // A token with a character outside the alphabet is literal text.
    return from_alphabet(text).value_or(text);
  }
  Decoder::Part part{std::move(text), p.verbatim[id]};
  if (!p.anchor) return p.decoder.decode({part});
  // The bytes it appends after another token.
  const Decoder::Part anchor{p.tokens[*p.anchor], p.verbatim[*p.anchor]};
  const std::string before = p.decoder.decode({anchor});
  const std::string both = p.decoder.decode({anchor, std::move(part)});
  const auto ends = std::mismatch(before.begin(), before.end(), both.begin(), both.end());
  return std::string(ends.second, both.end());
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const auto found = parts_->ids.find(token);
  return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Tokenizer::bos() const {
  return parts_->bos;
}
std::optional<TokenId> Tokenizer::eos() const {
  return parts_->eos;
}
std::vector<TokenId> Tokenizer::end_of_generation() const {
  return more_ends_ ? *more_ends_ : parts_->end_of_generation;
}
Tokenizer Tokenizer::with_ends(std::span<const TokenId> more) const {
  const std::vector<TokenId> known = end_of_generation();
  std::set<TokenId> all(known.begin(), known.end());
  all.insert(more.begin(), more.end());
  Tokenizer out = *this;
  out.more_ends_ = std::make_shared<const std::vector<TokenId>>(all.begin(), all.end());
  return out;
}
bool Tokenizer::adds_bos() const {
  return !parts_->prefix.empty();
}
bool Tokenizer::adds_eos() const {
  return !parts_->suffix.empty();
}
const std::string& Tokenizer::chat_template() const {
  return chat_template_ ? *chat_template_ : parts_->chat_template;
}
Tokenizer Tokenizer::with_chat_template(std::string text) const {
  Tokenizer out = *this;
  out.chat_template_ = std::make_shared<const std::string>(std::move(text));
  return out;
}

TokenId checked_id(const TokenizerParts& parts, int64_t id, const std::string& where) {
  if (id < 0 || id >= std::ssize(parts.tokens))
    throw user_error("{}: {} is outside the vocabulary of {} tokens", where, id, parts.tokens.size());
  return id;
}

namespace {

// Whether an existing table still refers to these strings at their current addresses.
bool is_table_of(const TokenMap& ids, const std::vector<std::string>& tokens) {
  const auto count = std::count_if(tokens.begin(), tokens.end(), [](const std::string& t) { return !t.empty(); });
  return static_cast<size_t>(count) == ids.size() && std::all_of(ids.begin(), ids.end(), [&](const auto& entry) {
           const std::string& own = tokens[static_cast<size_t>(entry.second)];
           return entry.first.data() == own.data() && entry.first.size() == own.size();
         });
}

}  // namespace

void finish_tokenizer(TokenizerParts& p, const std::string& where) {
  LUMEN_CHECK(p.kinds.size() == p.tokens.size() && p.verbatim.size() == p.tokens.size());
  if (p.tokens.empty()) throw user_error("{}: the vocabulary is empty", where);
  if (!is_table_of(p.ids, p.tokens)) {
    p.ids = TokenMap();
    p.ids.emplace_all(p.tokens);
  }
  build_word_model(p, where);
  for (size_t i = 0; i < p.tokens.size() && !p.anchor; ++i) {
    const std::string& t = p.tokens[i];
    const bool letters = std::all_of(t.begin(), t.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (!t.empty() && letters && p.kinds[i] == TokenKind::normal) p.anchor = static_cast<TokenId>(i);
  }
  static std::atomic<uint64_t> serial = 0;
  p.serial = ++serial;

  std::set<TokenId> ends(p.end_of_generation.begin(), p.end_of_generation.end());
  if (p.eos) ends.insert(*p.eos);
  const PretokenizerTable& table = pretokenizers();
  const auto control = [&](const std::string& text) -> std::optional<TokenId> {
    const auto found = p.ids.find(text);
    if (found == p.ids.end() || p.kinds[found->second] != TokenKind::control) return std::nullopt;
    return found->second;
  };
  std::set<TokenId> by_text;
  for (const auto* strings : {&table.end_of_generation, &table.end_of_generation_here}) {
    for (const std::string& text : *strings)
      if (const auto id = control(text)) by_text.insert(*id);
  }
  // Tokens that end only a part of a turn, where the vocabulary has a separate end of turn.
  for (const EndOfPart& part : table.ends_of_parts) {
    const auto id = control(part.token);
    const bool all = std::all_of(part.beside.begin(), part.beside.end(),
                                 [&](const std::string& text) { return control(text).has_value(); });
    if (id && all) by_text.erase(*id);
  }
  ends.merge(by_text);
  p.end_of_generation.assign(ends.begin(), ends.end());
}

std::string TokenStream::push(TokenId id) {
  if (!(skip_special_ && tokenizer_.kind(id) == TokenKind::control)) {
    pending_ += first_ ? tokenizer_.decode({&id, 1}, false) : tokenizer_.bytes(id);
    first_ = false;
  }
  const size_t tail = utf8_unfinished_tail(pending_);
  std::string out = utf8_repair(std::string_view(pending_).substr(0, pending_.size() - tail));
  pending_.erase(0, pending_.size() - tail);
  return out;
}

std::string TokenStream::finish() {
  std::string out = utf8_repair(pending_);
  pending_.clear();
  return out;
}

}  // namespace lumen::model::text
