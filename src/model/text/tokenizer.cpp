#include "model/text/tokenizer.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer_parts.h"
#include "model/text/unicode.h"

namespace lumen::model {
namespace {

constexpr size_t kCachedWords = 1 << 16;
constexpr size_t kCachedWordBytes = 128;

void encode_word(const TokenizerParts& p, std::string_view word, std::vector<TokenId>& out) {
  if (word.size() > kCachedWordBytes) return p.model->encode(word, out);
  std::string key(word);
  {
    const std::lock_guard lock(p.cache_mutex);
    if (const auto found = p.cache_index.find(key); found != p.cache_index.end()) {
      const std::vector<TokenId>& tokens = p.cache_tokens[found->second];
      out.insert(out.end(), tokens.begin(), tokens.end());
      return;
    }
  }
  const size_t before = out.size();
  p.model->encode(word, out);
  const std::lock_guard lock(p.cache_mutex);
  if (p.cache_tokens.size() >= kCachedWords) {
    p.cache_index.clear();
    p.cache_tokens.clear();
  }
  if (p.cache_index.emplace(std::move(key), static_cast<TokenId>(p.cache_tokens.size())).second)
    p.cache_tokens.emplace_back(out.begin() + static_cast<ptrdiff_t>(before), out.end());
}

// Cuts added tokens out of `text` and hands what lies between to `plain`.
template <typename Plain>
void partition(const AddedTokens& added, std::string_view text, bool control, std::vector<TokenId>& out,
               const Plain& plain) {
  size_t at = 0;
  AddedTokens::Match match;
  while (!added.empty() && at < text.size() && added.find(text, at, control, &match)) {
    if (match.begin > at) plain(text.substr(at, match.begin - at));
    out.push_back(match.id);
    at = match.end;
  }
  if (at < text.size()) plain(text.substr(at));
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TokenizerParts& p = *parts_;
  std::vector<TokenId> out;
  if (options.add_special) out = p.prefix;
  const Splitter::Emit word = [&](std::string_view w) { encode_word(p, w, out); };
  const auto normalized = [&](std::string_view piece) {
    partition(p.added_normalized, piece, options.parse_special, out,
              [&](std::string_view rest) { p.splitter.split(rest, word); });
  };
  partition(p.added_raw, text, options.parse_special, out, [&](std::string_view piece) {
    if (p.nfc) {
      normalized(normalize_nfc(piece));
    } else {
      normalized(piece);
    }
  });
  if (options.add_special) out.insert(out.end(), p.suffix.begin(), p.suffix.end());
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string out;
  for (const TokenId id : ids) {
    if (skip_special && kind(id) == TokenKind::control) continue;
    out += bytes(id);
  }
  return out;
}

int64_t Tokenizer::size() const {
  return static_cast<int64_t>(parts_->tokens.size());
}

std::string_view Tokenizer::token(TokenId id) const {
  return parts_->tokens[checked_id(*parts_, id, "token id")];
}

TokenKind Tokenizer::kind(TokenId id) const {
  return parts_->kinds[checked_id(*parts_, id, "token id")];
}

std::string Tokenizer::bytes(TokenId id) const {
  const std::string text(token(id));
  if (parts_->verbatim[id]) return text;
  // A text with a character outside the alphabet stands for itself.
  return from_alphabet(text).value_or(text);
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const auto found = parts_->ids.find(std::string(token));
  return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Tokenizer::bos() const {
  return parts_->bos;
}
std::optional<TokenId> Tokenizer::eos() const {
  return parts_->eos;
}
std::vector<TokenId> Tokenizer::end_of_generation() const {
  return parts_->end_of_generation;
}
bool Tokenizer::adds_bos() const {
  return !parts_->prefix.empty();
}
bool Tokenizer::adds_eos() const {
  return !parts_->suffix.empty();
}
const std::string& Tokenizer::chat_template() const {
  return parts_->chat_template;
}

TokenId checked_id(const TokenizerParts& parts, int64_t id, const std::string& where) {
  if (id < 0 || id >= static_cast<int64_t>(parts.tokens.size()))
    throw user_error("{}: {} is outside the vocabulary of {} tokens", where, id, parts.tokens.size());
  return static_cast<TokenId>(id);
}

void finish_tokenizer(TokenizerParts& p, const std::string& where) {
  LUMEN_CHECK(p.kinds.size() == p.tokens.size() && p.verbatim.size() == p.tokens.size());
  if (p.tokens.empty()) throw user_error("{}: the vocabulary is empty", where);
  p.ids.reserve(p.tokens.size());
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (!p.tokens[i].empty()) p.ids.emplace(p.tokens[i], static_cast<TokenId>(i));
  }
  std::array<TokenId, 256> bytes;
  for (int b = 0; b < 256; ++b) {
    const auto found = p.ids.find(to_alphabet(std::string(1, static_cast<char>(b))));
    // An added token that reads like a letter of the byte alphabet stands for that letter, not for the byte.
    bytes[b] = found == p.ids.end() || p.verbatim[found->second] ? -1 : found->second;
  }
  PairTable merges(p.merges.size());
  for (size_t rank = 0; rank < p.merges.size(); ++rank) {
    const auto& [left, right] = p.merges[rank];
    const auto a = p.ids.find(left), b = p.ids.find(right), both = p.ids.find(left + right);
    if (a == p.ids.end() || b == p.ids.end() || both == p.ids.end())
      throw user_error("{}: merge {} ('{}' with '{}') names a token that is not in the vocabulary", where, rank, left,
                       right);
    merges.insert(a->second, b->second, {static_cast<int32_t>(rank), both->second});
  }
  p.model = std::make_unique<BytePairModel>(bytes, std::move(merges), p.ignore_merges ? &p.ids : nullptr, &p.verbatim,
                                            p.unknown);

  std::set<TokenId> ends(p.end_of_generation.begin(), p.end_of_generation.end());
  if (p.eos) ends.insert(*p.eos);
  for (const std::string& text : pretokenizers().end_of_generation) {
    const auto found = p.ids.find(text);
    if (found != p.ids.end() && p.kinds[found->second] == TokenKind::control) ends.insert(found->second);
  }
  p.end_of_generation.assign(ends.begin(), ends.end());
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  constexpr uint64_t kLimit = uint64_t{1} << 30;
  if (std::filesystem::is_directory(path)) {
    const auto config = path / "tokenizer_config.json";
    const std::string config_text = std::filesystem::exists(config) ? read_file(config, kLimit) : std::string();
    return from_json(read_file(path / "tokenizer.json", kLimit), (path / "tokenizer.json").string(), config_text);
  }
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) return from_gguf(read_gguf_metadata(bytes, path.string()));
  if (text.size() > kLimit) throw user_error("'{}' is too large for a tokenizer", path.string());
  return from_json(text, path.string());
}

std::string TokenStream::push(TokenId id) {
  if (!(skip_special_ && tokenizer_.kind(id) == TokenKind::control)) pending_ += tokenizer_.bytes(id);
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

}  // namespace lumen::model
