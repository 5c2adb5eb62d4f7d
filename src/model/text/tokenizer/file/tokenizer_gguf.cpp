// Tokenizers from GGUF metadata: the tokenizer.* keys.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"
#include "model/text/tokenizer/tokenizer_parts.h"

namespace lumen::model::text {
namespace {

std::pair<std::string, std::string> read_merge(const std::string& text, const std::string& where) {
  // The first character belongs to the left token even when it is a space.
  const size_t space = text.find(' ', 1);
  if (text.empty() || space == std::string::npos || space + 1 == text.size())
    throw user_error("{}: '{}' in tokenizer.ggml.merges is not a pair", where, text);
  return {text.substr(0, space), text.substr(space + 1)};
}

bool has_token(const TokenizerParts& p, int64_t id) {
  return id >= 0 && id < std::ssize(p.tokens) && !p.tokens[id].empty();
}

// The id that a key names; nullopt where the key is missing, or names padding. `count`: of tokens, padding included.
std::optional<TokenId> read_id(const file::GgufMetadata& m, const char* key, const TokenizerParts& p, int64_t count) {
  if (!m.has(key)) return std::nullopt;
  const int64_t id = m.integer(key);
  if (id < 0 || id >= count)
    throw user_error("{}: {}: {} is outside the vocabulary of {} tokens", m.source, key, id, count);
  return has_token(p, id) ? std::optional(static_cast<TokenId>(id)) : std::nullopt;
}

// Special token ids. Missing keys get the defaults of the vocabulary's kind, if those ids exist.
void read_special(const file::GgufMetadata& m, const VocabularyRow& row, int64_t count, TokenizerParts& p) {
  const auto id = [&](std::initializer_list<const char*> keys, int64_t usual) -> std::optional<TokenId> {
    for (const char* key : keys) {
      if (m.has(key)) return read_id(m, key, p, count);
    }
    return has_token(p, usual) ? std::optional(static_cast<TokenId>(usual)) : std::nullopt;
  };
  const bool pieces = row.kind == VocabularyKind::word_piece;
  const char *bos = "tokenizer.ggml.bos_token_id", *eos = "tokenizer.ggml.eos_token_id";
  if (pieces) {
    p.bos = id({"tokenizer.ggml.cls_token_id", bos}, row.bos);
    p.eos = id({"tokenizer.ggml.seperator_token_id", eos}, row.eos);
  } else {
    p.bos = id({bos}, row.bos);
    p.eos = id({eos}, row.eos);
  }
  p.unknown = id({"tokenizer.ggml.unknown_token_id"}, row.unknown);
  p.end_of_generation = ends_of_gguf(m, count);
}

std::vector<TokenKind> read_kinds(const file::GgufMetadata& m, size_t count) {
  std::vector<TokenKind> kinds(count, TokenKind::normal);
  if (!m.has("tokenizer.ggml.token_type")) return kinds;
  const std::vector<int64_t> types = m.integers("tokenizer.ggml.token_type");
  if (types.size() != count) throw user_error("{}: {} token types for {} tokens", m.source, types.size(), count);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] < 0 || types[i] > 6) throw user_error("{}: token {} has the unknown type {}", m.source, i, types[i]);
    kinds[i] = types[i] == 0 ? TokenKind::normal : static_cast<TokenKind>(types[i]);
  }
  return kinds;
}

// Removes padding from the vocabulary: between other tokens it becomes unused ids, at the end it is dropped.
void drop_padding(TokenizerParts& p) {
  size_t used = 0;
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (is_padding(p.tokens[i], p.kinds[i]))
      p.tokens[i].clear();
    else
      used = i + 1;
  }
  p.tokens.resize(used);
  p.kinds.resize(used);
}

// GGUF files mark word starts where tokenizer.json marks continuations.
std::string from_marked(const std::string& token) {
  if (token.starts_with(kWordMark)) return token.substr(kWordMark.size());
  return std::string(kInsideMark) + token;
}

// Bytes from an integer array in the metadata.
std::string read_bytes(const file::GgufMetadata& m, const char* key) {
  std::string out;
  if (!m.has(key)) return out;
  for (const int64_t b : m.integers(key)) out += static_cast<char>(b & 0xff);
  return out;
}

// Byte-level BPE, with the split patterns of a row of the table.
void read_byte_pairs(const file::GgufMetadata& m, const Pretokenizer& row, TokenizerParts& p) {
  for (const std::string& merge : m.texts("tokenizer.ggml.merges")) p.merges.push_back(read_merge(merge, m.source));
  if (row.nfc) p.normalizer = Normalizer({{.kind = NormalStep::Kind::nfc}});
  p.ignore_merges = row.ignore_merges;
  p.splitter = Splitter(row.steps, m.source);
}

void read_pieces(const file::GgufMetadata& m, size_t count, TokenizerParts& p) {
  p.scores = m.numbers("tokenizer.ggml.scores");
  if (p.scores.size() != count) throw user_error("{}: {} scores for {} tokens", m.source, p.scores.size(), count);
  p.scores.resize(p.tokens.size());
  p.fuse_unknown = p.byte_fallback = true;
  if (m.boolean("tokenizer.ggml.treat_whitespace_as_suffix", false))
    throw user_error("{}: white space as a suffix is not supported", m.source);
  SpaceOptions spaces{.dummy_prefix = m.boolean("tokenizer.ggml.add_space_prefix", true)};
  if (p.kind == VocabularyKind::unigram) {
    spaces.remove_extra = m.boolean("tokenizer.ggml.remove_extra_whitespaces", false);
    spaces.character_map = read_bytes(m, "tokenizer.ggml.precompiled_charsmap");
    p.single_precision = true;
  }
  space_stages(spaces, p, m.source);
}

}  // namespace

Tokenizer Tokenizer::from_gguf(const file::GgufMetadata& m) {
  const std::string& where = m.source;
  const PretokenizerTable& table = pretokenizers();
  const std::string& kind = m.text("tokenizer.ggml.model");
  const auto vocabulary = table.vocabularies.find(kind);
  if (vocabulary == table.vocabularies.end()) {
    throw Error(Exit::user, fmt::format("{}: tokenizers of kind '{}' are not supported", where, kind),
                "models/pretokenizers.toml lists the known kinds");
  }
  const VocabularyRow& usual = vocabulary->second;
  const bool byte_pairs = usual.kind == VocabularyKind::byte_pair;
  const std::string pre = m.text("tokenizer.ggml.pre", "default");
  const Pretokenizer* row = byte_pairs ? table.find(pre) : nullptr;
  if (m.has(kWholeJson) && (!row || m.boolean(kWholeCounts, false))) {
    // The complete tokenizer; the other keys still set its special tokens.
    auto whole = read_json_parts(m.text(kWholeJson), where + ": " + kWholeJson, {});
    const int64_t count =
        std::max(whole->tokens.size(), m.has("tokenizer.ggml.tokens") ? m.texts("tokenizer.ggml.tokens").size() : 0);
    if (m.has("tokenizer.ggml.bos_token_id")) whole->bos = read_id(m, "tokenizer.ggml.bos_token_id", *whole, count);
    if (m.has("tokenizer.ggml.eos_token_id")) whole->eos = read_id(m, "tokenizer.ggml.eos_token_id", *whole, count);
    whole->end_of_generation = ends_of_gguf(m, count);
    whole->chat_template = m.text("tokenizer.chat_template", "");
    finish_tokenizer(*whole, where);
    return Tokenizer(std::move(whole));
  }
  if (byte_pairs && !m.has("tokenizer.ggml.pre"))
    warn(fmt::format("{}: tokenizer.ggml.pre is missing; words are split as by '{}'", where, pre));
  if (byte_pairs && !row) {
    throw Error(Exit::user, fmt::format("{}: unknown pre-tokenizer '{}'", where, pre),
                "add a row for it to models/pretokenizers.toml");
  }

  auto parts = std::make_shared<TokenizerParts>();
  TokenizerParts& p = *parts;
  p.kind = usual.kind;
  p.tokens = m.texts("tokenizer.ggml.tokens");
  if (std::ssize(p.tokens) > kMaxVocabulary) throw user_error("{}: {} tokens are too many", where, p.tokens.size());
  const size_t count = p.tokens.size();
  p.kinds = read_kinds(m, count);
  drop_padding(p);
  p.verbatim.assign(p.tokens.size(), false);
  read_special(m, usual, count, p);
  if (p.kind == VocabularyKind::word_piece) {
    p.continuing = kInsideMark;
    for (size_t i = 0; i < p.tokens.size(); ++i) {
      // Tokens in brackets are special.
      const std::string& t = p.tokens[i];
      if (p.kinds[i] == TokenKind::normal && !(t.starts_with('[') && t.ends_with(']'))) p.tokens[i] = from_marked(t);
    }
    const bool lowercase = m.boolean("tokenizer.ggml.normalizer.lowercase", true);
    word_piece_stages({lowercase, m.boolean("tokenizer.ggml.normalizer.strip_accents", lowercase)}, p, where);
  } else if (byte_pairs) {
    read_byte_pairs(m, *row, p);
  } else {
    read_pieces(m, count, p);
  }
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    const TokenKind k = p.kinds[i];
    if (k != TokenKind::control && k != TokenKind::unknown && k != TokenKind::user_defined) continue;
    p.verbatim[i] = true;
    p.added_raw.add({.id = static_cast<TokenId>(i), .content = p.tokens[i], .control = k != TokenKind::user_defined});
  }
  if (p.bos && m.boolean("tokenizer.ggml.add_bos_token", byte_pairs ? row->add_bos : usual.add_bos))
    p.prefix = {*p.bos};
  const bool add_eos =
      m.boolean("tokenizer.ggml.add_eos_token", usual.add_eos) || (p.kind == VocabularyKind::word_piece);
  if (p.eos && add_eos) p.suffix = {*p.eos};
  // Encoders end both texts of a pair; those of pieces begin the second one with a further end.
  if (p.suffix.size() == 1 && !p.prefix.empty() && (p.kind == VocabularyKind::word_piece || !byte_pairs)) {
    p.between = std::vector<TokenId>(p.kind == VocabularyKind::word_piece ? 1 : 2, p.suffix[0]);
    p.between_first = std::ssize(*p.between);
  }
  p.chat_template = m.text("tokenizer.chat_template", "");
  finish_tokenizer(p, where);
  return Tokenizer(std::move(parts));
}

}  // namespace lumen::model::text
