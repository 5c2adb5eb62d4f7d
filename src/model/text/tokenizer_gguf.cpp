// Tokenizers in GGUF metadata: the tokenizer.* keys.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer_parts.h"
#include "model/text/unicode.h"

namespace lumen::model {
namespace {

constexpr const char* kCustom = "custom";  // a `pre` nobody knows: the whole truth stands in tokenizer.huggingface.json
constexpr const char* kWholeJson = "tokenizer.huggingface.json";

std::pair<std::string, std::string> read_merge(const std::string& text, const std::string& where) {
  // The first character belongs to the left token even when it is a space.
  const size_t space = text.find(' ', 1);
  if (text.empty() || space == std::string::npos || space + 1 == text.size())
    throw user_error("{}: '{}' in tokenizer.ggml.merges is no pair", where, text);
  return {text.substr(0, space), text.substr(space + 1)};
}

std::optional<TokenId> read_id(const GgufMetadata& m, const char* key, const TokenizerParts& p) {
  if (!m.has(key)) return std::nullopt;
  return checked_id(p, m.integer(key), m.source + ": " + key);
}

// Ids with a meaning. Where the file names none, those usual for its kind of vocabulary count, if there are so many.
void read_special(const GgufMetadata& m, const VocabularyRow& row, TokenizerParts& p) {
  const auto id = [&](std::initializer_list<const char*> keys, int64_t usual) -> std::optional<TokenId> {
    for (const char* key : keys) {
      if (const auto found = read_id(m, key, p)) return found;
    }
    if (usual < 0 || usual >= static_cast<int64_t>(p.tokens.size())) return std::nullopt;
    return static_cast<TokenId>(usual);
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
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto end = read_id(m, key, p)) p.end_of_generation.push_back(*end);
  }
}

std::vector<TokenKind> read_kinds(const GgufMetadata& m, size_t count) {
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

// Files mark the beginnings of words where tokenizer.json marks the insides.
constexpr std::string_view kWordMark = "\xe2\x96\x81", kInsideMark = "##";

std::string from_marked(const std::string& token) {
  if (token.starts_with(kWordMark)) return token.substr(kWordMark.size());
  return std::string(kInsideMark) + token;
}

std::string to_marked(const std::string& token) {
  if (token.starts_with(kInsideMark)) return token.substr(kInsideMark.size());
  return std::string(kWordMark) + token;
}

// Text that a table of bytes in the metadata holds.
std::string read_bytes(const GgufMetadata& m, const char* key) {
  std::string out;
  if (!m.has(key)) return out;
  for (const int64_t b : m.integers(key)) out += static_cast<char>(b & 0xff);
  return out;
}

// Merges of bytes, with the words of a row of the table.
void read_byte_pairs(const GgufMetadata& m, const Pretokenizer& row, TokenizerParts& p) {
  for (const std::string& merge : m.texts("tokenizer.ggml.merges")) p.merges.push_back(read_merge(merge, m.source));
  if (row.nfc) p.normalizer = Normalizer({{.kind = NormalStep::Kind::nfc}});
  p.ignore_merges = row.ignore_merges;
  p.splitter = Splitter(row.steps, m.source);
}

void read_pieces(const GgufMetadata& m, TokenizerParts& p) {
  p.scores = m.numbers("tokenizer.ggml.scores");
  p.fuse_unknown = p.byte_fallback = true;
  if (m.boolean("tokenizer.ggml.treat_whitespace_as_suffix", false))
    throw user_error("{}: white space behind words is not supported", m.source);
  SpaceOptions spaces{.dummy_prefix = m.boolean("tokenizer.ggml.add_space_prefix", true)};
  if (p.kind == VocabularyKind::unigram) {
    spaces.remove_extra = m.boolean("tokenizer.ggml.remove_extra_whitespaces", false);
    spaces.character_map = read_bytes(m, "tokenizer.ggml.precompiled_charsmap");
    p.single_precision = true;
  }
  space_stages(spaces, p, m.source);
}

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufMetadata& m) {
  const std::string& where = m.source;
  const PretokenizerTable& table = pretokenizers();
  const std::string& kind = m.text("tokenizer.ggml.model");
  const auto vocabulary = table.vocabularies.find(kind);
  if (vocabulary == table.vocabularies.end()) {
    throw Error(Exit::user, fmt::format("{}: tokenizers of kind '{}' are not supported", where, kind),
                "the kinds known stand in models/pretokenizers.toml");
  }
  const VocabularyRow& usual = vocabulary->second;
  const bool byte_pairs = usual.kind == VocabularyKind::byte_pair;
  const std::string pre = m.text("tokenizer.ggml.pre", "default");
  const Pretokenizer* row = byte_pairs ? table.find(pre) : nullptr;
  if (!row && m.has(kWholeJson)) {
    // The whole truth; what the other keys say counts all the same.
    auto whole = read_json_parts(m.text(kWholeJson), where + ": " + kWholeJson, {});
    if (m.has("tokenizer.ggml.bos_token_id")) whole->bos = read_id(m, "tokenizer.ggml.bos_token_id", *whole);
    if (m.has("tokenizer.ggml.eos_token_id")) whole->eos = read_id(m, "tokenizer.ggml.eos_token_id", *whole);
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
  if (static_cast<int64_t>(p.tokens.size()) > kMaxVocabulary)
    throw user_error("{}: {} tokens are too many", where, p.tokens.size());
  p.kinds = read_kinds(m, p.tokens.size());
  p.verbatim.assign(p.tokens.size(), false);
  read_special(m, usual, p);
  if (p.kind == VocabularyKind::word_piece) {
    p.continuing = kInsideMark;
    for (size_t i = 0; i < p.tokens.size(); ++i) {
      // What stands in brackets has a meaning of its own.
      const std::string& t = p.tokens[i];
      if (p.kinds[i] == TokenKind::normal && !(t.starts_with('[') && t.ends_with(']'))) p.tokens[i] = from_marked(t);
    }
    word_piece_stages(p, where);
  } else if (byte_pairs) {
    read_byte_pairs(m, *row, p);
  } else {
    read_pieces(m, p);
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
  p.chat_template = m.text("tokenizer.chat_template", "");
  finish_tokenizer(p, where);
  return Tokenizer(std::move(parts));
}

namespace {

// Scores that give the merges of a list of them: earlier ones better.
std::vector<float> merge_scores(const TokenizerParts& p) {
  std::vector<float> scores(p.tokens.size(), 0);
  std::vector<bool> known(p.tokens.size(), false);
  for (size_t rank = 0; rank < p.merges.size(); ++rank) {
    const auto found = p.ids.find(p.merges[rank].first + p.merges[rank].second);
    if (found == p.ids.end() || known[found->second]) continue;
    known[found->second] = true;
    scores[found->second] = -static_cast<float>(rank) - 1;
  }
  return scores;
}

struct Written {
  std::string model, pre;
  bool whole = false;  // the description as a whole goes along
};

// How other programs read such a vocabulary best.
Written written_form(const TokenizerParts& p, const PretokenizerTable& table) {
  const auto named = [&](VocabularyKind kind) { return table.kind_name(kind); };
  const auto& steps = p.normalizer.steps();
  switch (p.kind) {
    case VocabularyKind::byte_pair: {
      const bool plain_normal = steps.empty() || p.normalizer.is_nfc();
      const Pretokenizer* row =
          plain_normal ? table.match(p.splitter.steps(), p.normalizer.is_nfc(), p.ignore_merges) : nullptr;
      // Single characters that are all single bytes: a name that every program knows gives the same tokens as our own.
      const bool only_bytes = std::all_of(p.ids.begin(), p.ids.end(), [&](const auto& entry) {
        const auto bytes = from_alphabet(entry.first);
        return p.verbatim[entry.second] || (bytes && bytes->size() == 1);
      });
      if (row && row == table.find(table.characters) && p.merges.empty() && only_bytes) row = table.find(table.plain);
      return {named(VocabularyKind::byte_pair).value_or(kCustom), row ? row->names.front() : kCustom, row == nullptr};
    }
    case VocabularyKind::character_pair:
    case VocabularyKind::scored_pairs: {
      // Spaces become marks, and nothing else happens: then scores say it all.
      const bool spaces = p.byte_fallback && p.splitter.steps().empty() && p.continuing.empty() && p.word_end.empty() &&
                          std::all_of(steps.begin(), steps.end(), [](const NormalStep& s) {
                            return s.kind == NormalStep::Kind::prepend || s.kind == NormalStep::Kind::replace;
                          });
      if (spaces && named(VocabularyKind::scored_pairs))
        return {*named(VocabularyKind::scored_pairs), "default", p.kind != VocabularyKind::scored_pairs};
      break;
    }
    case VocabularyKind::unigram:
      if (named(VocabularyKind::unigram)) return {*named(VocabularyKind::unigram), "default", true};
      break;
    case VocabularyKind::word_piece:
      if (named(VocabularyKind::word_piece) && p.continuing == kInsideMark)
        return {*named(VocabularyKind::word_piece), "default", true};
      break;
    case VocabularyKind::whole_word:
      break;
  }
  return {named(VocabularyKind::byte_pair).value_or(kCustom), kCustom, true};
}

}  // namespace

void Tokenizer::to_gguf(GgufMetadata& m) const {
  const TokenizerParts& p = *parts_;
  const Written form = written_form(p, pretokenizers());
  const bool marked = p.kind == VocabularyKind::word_piece && form.pre != kCustom;
  m.set("tokenizer.ggml.model", form.model);
  m.set("tokenizer.ggml.pre", form.pre);
  std::vector<std::string> tokens = p.tokens;
  std::vector<int32_t> types;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (marked && p.kinds[i] == TokenKind::normal && !(tokens[i].starts_with('[') && tokens[i].ends_with(']')))
      tokens[i] = to_marked(tokens[i]);
    if (tokens[i].empty()) tokens[i] = fmt::format("[PAD{}]", i);
    types.push_back(static_cast<int32_t>(p.kinds[i]));
  }
  std::vector<std::string> merges;
  for (const auto& [left, right] : p.merges) merges.push_back(left + " " + right);
  m.set("tokenizer.ggml.tokens", GgufArray(std::move(tokens)));
  m.set("tokenizer.ggml.token_type", GgufArray(std::move(types)));
  m.erase("tokenizer.ggml.merges");
  m.erase("tokenizer.ggml.scores");
  if (p.kind == VocabularyKind::byte_pair || form.pre == kCustom) {
    m.set("tokenizer.ggml.merges", GgufArray(std::move(merges)));
  } else if (p.kind != VocabularyKind::word_piece) {
    std::vector<float> scores(p.scores.begin(), p.scores.end());
    m.set("tokenizer.ggml.scores", GgufArray(scores.empty() ? merge_scores(p) : std::move(scores)));
    const auto& steps = p.normalizer.steps();
    m.set("tokenizer.ggml.add_space_prefix", std::any_of(steps.begin(), steps.end(), [](const NormalStep& s) {
            return s.kind == NormalStep::Kind::prepend;
          }));
  }
  const auto id = [&](const char* key, std::optional<TokenId> token) {
    m.erase(key);
    if (token) m.set(key, static_cast<uint32_t>(*token));
  };
  id("tokenizer.ggml.bos_token_id", p.bos);
  id("tokenizer.ggml.eos_token_id", p.eos);
  id("tokenizer.ggml.unknown_token_id", p.unknown);
  m.set("tokenizer.ggml.add_bos_token", adds_bos());
  m.set("tokenizer.ggml.add_eos_token", adds_eos());
  m.erase("tokenizer.chat_template");
  if (!chat_template().empty()) m.set("tokenizer.chat_template", chat_template());
  m.erase(kWholeJson);
  if (form.whole) m.set(kWholeJson, to_json());
}

}  // namespace lumen::model
