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

void read_special(const GgufMetadata& m, TokenizerParts& p) {
  const auto id = [&](const char* key) -> std::optional<TokenId> {
    if (!m.has(key)) return std::nullopt;
    return checked_id(p, m.integer(key), m.source + ": " + key);
  };
  p.bos = id("tokenizer.ggml.bos_token_id");
  p.eos = id("tokenizer.ggml.eos_token_id");
  p.unknown = id("tokenizer.ggml.unknown_token_id");
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto end = id(key)) p.end_of_generation.push_back(*end);
  }
}

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufMetadata& m) {
  const std::string& where = m.source;
  const PretokenizerTable& table = pretokenizers();
  const std::string& kind = m.text("tokenizer.ggml.model");
  if (!table.kinds.contains(kind)) {
    throw Error(Exit::user, fmt::format("{}: tokenizers of kind '{}' are not supported", where, kind),
                "byte-level BPE is");
  }
  const std::string pre = m.text("tokenizer.ggml.pre", "default");
  if (!m.has("tokenizer.ggml.pre"))
    warn(fmt::format("{}: tokenizer.ggml.pre is missing; words are split as by '{}'", where, pre));
  const Pretokenizer* row = table.find(pre);
  if (!row && m.has(kWholeJson)) return from_json(m.text(kWholeJson), where + ": " + kWholeJson);
  if (!row) {
    throw Error(Exit::user, fmt::format("{}: unknown pre-tokenizer '{}'", where, pre),
                "add a row for it to models/pretokenizers.toml");
  }

  auto parts = std::make_shared<TokenizerParts>();
  TokenizerParts& p = *parts;
  p.tokens = m.texts("tokenizer.ggml.tokens");
  if (static_cast<int64_t>(p.tokens.size()) > kMaxVocabulary)
    throw user_error("{}: {} tokens are too many", where, p.tokens.size());
  p.kinds.assign(p.tokens.size(), TokenKind::normal);
  p.verbatim.assign(p.tokens.size(), false);
  if (m.has("tokenizer.ggml.token_type")) {
    const std::vector<int64_t> types = m.integers("tokenizer.ggml.token_type");
    if (types.size() != p.tokens.size())
      throw user_error("{}: {} token types for {} tokens", where, types.size(), p.tokens.size());
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] < 0 || types[i] > 6) throw user_error("{}: token {} has the unknown type {}", where, i, types[i]);
      p.kinds[i] = types[i] == 0 ? TokenKind::normal : static_cast<TokenKind>(types[i]);
    }
  }
  for (const std::string& merge : m.texts("tokenizer.ggml.merges")) p.merges.push_back(read_merge(merge, where));
  read_special(m, p);
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    const TokenKind k = p.kinds[i];
    if (k != TokenKind::control && k != TokenKind::unknown && k != TokenKind::user_defined) continue;
    p.verbatim[i] = true;
    p.added_raw.add({static_cast<TokenId>(i), p.tokens[i], k != TokenKind::user_defined});
  }
  p.nfc = row->nfc;
  p.ignore_merges = row->ignore_merges;
  p.splitter = Splitter(row->steps, where);
  if (p.bos && m.boolean("tokenizer.ggml.add_bos_token", row->add_bos)) p.prefix = {*p.bos};
  if (p.eos && m.boolean("tokenizer.ggml.add_eos_token", false)) p.suffix = {*p.eos};
  p.chat_template = m.text("tokenizer.chat_template", "");
  finish_tokenizer(p, where);
  return Tokenizer(std::move(parts));
}

void Tokenizer::to_gguf(GgufMetadata& m) const {
  const TokenizerParts& p = *parts_;
  const PretokenizerTable& table = pretokenizers();
  const Pretokenizer* row = table.match(p.splitter.steps(), p.nfc, p.ignore_merges);
  // Single characters that are all single bytes: a name that every program knows gives the same tokens as our own.
  const bool only_bytes = std::all_of(p.ids.begin(), p.ids.end(), [&](const auto& entry) {
    const auto bytes = from_alphabet(entry.first);
    return p.verbatim[entry.second] || (bytes && bytes->size() == 1);
  });
  if (row && row == table.find(table.characters) && p.merges.empty() && only_bytes) row = table.find(table.plain);

  m.set("tokenizer.ggml.model", table.kind_name(VocabularyKind::byte_pair));
  m.set("tokenizer.ggml.pre", row ? row->names.front() : std::string(kCustom));
  std::vector<std::string> tokens = p.tokens;
  std::vector<int32_t> types;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) tokens[i] = fmt::format("[PAD{}]", i);
    types.push_back(static_cast<int32_t>(p.kinds[i]));
  }
  std::vector<std::string> merges;
  for (const auto& [left, right] : p.merges) merges.push_back(left + " " + right);
  m.set("tokenizer.ggml.tokens", GgufArray(std::move(tokens)));
  m.set("tokenizer.ggml.token_type", GgufArray(std::move(types)));
  m.set("tokenizer.ggml.merges", GgufArray(std::move(merges)));
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
  if (!p.chat_template.empty()) m.set("tokenizer.chat_template", p.chat_template);
  m.erase(kWholeJson);
  if (!row) m.set(kWholeJson, to_json());
}

}  // namespace lumen::model
