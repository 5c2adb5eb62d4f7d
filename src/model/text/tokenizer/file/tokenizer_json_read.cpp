// Tokenizers from a tokenizer.json. Unsupported settings are an Error.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/vocabulary/vocabulary_scan.h"

namespace lumen::model::text {
namespace {

using nlohmann::json;

bool absent(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null();
}

std::string optional_text(const json& object, const char* key, const std::string& where) {
  return absent(object, key) ? std::string() : json_text(object, key, where);
}

// Ids may have gaps, but a short file must not allocate a large table.
uint64_t most_ids(size_t tokens) {
  return std::min<uint64_t>(kMaxVocabulary, (1u << 18) + 64 * tokens);
}

void put_token(std::string token, uint64_t id, const std::string& where, TokenizerParts& p) {
  const size_t n = id;
  if (n >= p.tokens.size()) p.tokens.resize(n + 1);
  if (!p.tokens[n].empty() || p.no_text == static_cast<TokenId>(n))
    throw user_error("{}: '{}' and '{}' have the same id {}", where, p.tokens[n], token, n);
  if (token.empty()) p.no_text = static_cast<TokenId>(n);
  p.tokens[n] = std::move(token);
}

Error bad_id(const std::string& token, uint64_t limit, const std::string& where) {
  return user_error("{}: the id of '{}' is not a whole number below {}", where, token, limit);
}

void read_vocabulary(const json& vocabulary, ScannedVocabulary* scanned, const std::string& where, TokenizerParts& p) {
  if (!vocabulary.is_object()) throw user_error("{}: \"vocab\" is no object", where);
  if (scanned && scanned->tokens) {
    const uint64_t limit = most_ids(scanned->tokens->size());
    p.tokens.reserve(scanned->tokens->size());
    for (auto& [token, id] : *scanned->tokens) {
      if (id >= limit) throw bad_id(token, limit, where);
      if (token.empty() && p.no_text) throw user_error("{}: a JSON object has the same key twice", where);
      put_token(std::move(token), id, where, p);
    }
    return;
  }
  const uint64_t limit = most_ids(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= limit) throw bad_id(token, limit, where);
    put_token(token, id.get<uint64_t>(), where, p);
  }
}

// [["piece", score], ...]
void read_pieces(const json& pieces, ScannedVocabulary* scanned, const std::string& where, TokenizerParts& p) {
  if (!pieces.is_array()) throw user_error("{}: \"vocab\" is no list", where);
  const bool is_scanned = scanned && scanned->pieces;
  if ((is_scanned ? scanned->pieces->size() : pieces.size()) > static_cast<size_t>(kMaxVocabulary))
    throw user_error("{}: too many pieces", where);
  if (is_scanned) {
    p.tokens.reserve(scanned->pieces->size());
    for (auto& [piece, score] : *scanned->pieces) {
      p.tokens.push_back(std::move(piece));
      p.scores.push_back(score);
    }
    return;
  }
  for (const json& piece : pieces) {
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number())
      throw user_error("{}: piece {} is not a pair of a string and a score", where, p.tokens.size());
    p.tokens.push_back(piece[0].get<std::string>());
    p.scores.push_back(piece[1].get<double>());
  }
}

void read_merges(const json& merges, ScannedVocabulary* scanned, const std::string& where, TokenizerParts& p) {
  if (!merges.is_array()) throw user_error("{}: \"merges\" is no list", where);
  if (scanned && scanned->merges) {
    p.merges = std::move(*scanned->merges);
    return;
  }
  for (const json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      p.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      throw user_error("{}: merge {} is not a pair", where, p.merges.size());
    p.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

std::string model_type(const json& model, const std::string& where) {
  if (!absent(model, "type")) return json_text(model, "type", where);
  if (!absent(model, "merges")) return "BPE";
  if (!absent(model, "vocab") && model["vocab"].is_array()) return "Unigram";
  return absent(model, "continuing_subword_prefix") ? "WordLevel" : "WordPiece";
}

void read_model(const json& model, ScannedVocabulary* scanned, const std::string& where, TokenizerParts& p) {
  const std::string type = model_type(model, where);
  p.continuing = optional_text(model, "continuing_subword_prefix", where);
  if (type == "BPE") {
    p.kind = VocabularyKind::character_pair;
    p.word_end = optional_text(model, "end_of_word_suffix", where);
    p.fuse_unknown = json_boolean(model, "fuse_unk", false, where);
    p.byte_fallback = json_boolean(model, "byte_fallback", false, where);
    p.ignore_merges = json_boolean(model, "ignore_merges", false, where);
    if (!absent(model, "dropout") && model["dropout"] != 0)
      throw Error(Exit::user, fmt::format("{}: dropout makes tokenization random", where),
                  "set \"dropout\" to null; it is for training only");
    read_vocabulary(json_member(model, "vocab", where), scanned, where, p);
    read_merges(json_member(model, "merges", where), scanned, where, p);
  } else if (type == "Unigram") {
    p.kind = VocabularyKind::unigram;
    p.byte_fallback = json_boolean(model, "byte_fallback", false, where);
    read_pieces(json_member(model, "vocab", where), scanned, where, p);
    if (!absent(model, "unk_id")) p.unknown = checked_id(p, json_integer(model, "unk_id", where), where + ": unk_id");
  } else if (type == "WordPiece" || type == "WordLevel") {
    const bool pieces = type == "WordPiece";
    p.kind = pieces ? VocabularyKind::word_piece : VocabularyKind::whole_word;
    if (pieces && absent(model, "continuing_subword_prefix")) p.continuing = "##";
    const int64_t longest =
        absent(model, "max_input_chars_per_word") ? 100 : json_integer(model, "max_input_chars_per_word", where);
    if (longest < 1) throw user_error("{}: max_input_chars_per_word is {}", where, longest);
    p.longest_word = longest;
    read_vocabulary(json_member(model, "vocab", where), scanned, where, p);
  } else {
    throw Error(Exit::user, fmt::format("{}: a model of type '{}' is not supported", where, type),
                "BPE, Unigram, WordPiece and WordLevel are supported");
  }
  p.in_model.assign(p.tokens.size(), true);
}

AddedToken read_added_token(const json& entry, const std::string& place) {
  AddedToken token;
  const int64_t id = json_integer(entry, "id", place);
  if (id < 0 || id >= kMaxVocabulary) throw user_error("{}: id {} is out of range", place, id);
  token.id = id;
  token.content = json_text(entry, "content", place);
  token.control = json_boolean(entry, "special", false, place);
  token.normalized = json_boolean(entry, "normalized", !token.control, place);
  token.strip_left = json_boolean(entry, "lstrip", false, place);
  token.strip_right = json_boolean(entry, "rstrip", false, place);
  token.single_word = json_boolean(entry, "single_word", false, place);
  return token;
}

// The added tokens of the file, sorted by id. Each string has one id and each id one string; empty strings are ignored.
std::vector<AddedToken> read_added_list(const json& list, const std::string& place) {
  if (!list.is_array()) throw user_error("{}: no list", place);
  std::vector<AddedToken> out;
  for (const json& entry : list) {
    AddedToken token = read_added_token(entry, place);
    if (!token.content.empty()) out.push_back(std::move(token));
  }
  std::stable_sort(out.begin(), out.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::map<std::string_view, const AddedToken*> by_text;
  for (const AddedToken& token : out) {
    const auto [at, fresh] = by_text.emplace(token.content, &token);
    if (!fresh && !(*at->second == token))
      throw user_error("{}: two different entries (ids {} and {}) for '{}'", place, at->second->id, token.id,
                       token.content);
  }
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Merges the strings of the vocabulary and of the added tokens into one table of ids. `unique`: no string of the
// vocabulary may occur twice.
void join_added(const std::vector<AddedToken>& list, bool unique, const std::string& where, TokenizerParts& p) {
  const std::string place = where + ": added_tokens";
  size_t size = p.tokens.size();
  for (const AddedToken& token : list) {
    const size_t id = token.id;
    // Ids may have gaps, but a short file must not allocate a large table.
    if (id >= size + (1 << 18)) throw user_error("{}: id {} is out of range", place, token.id);
    size = std::max(size, id + 1);
  }
  p.tokens.reserve(size);  // keeps the strings' addresses
  if (p.ids.emplace_all(p.tokens) > 0 && unique) throw user_error("{}: a JSON object has the same key twice", where);
  p.tokens.resize(size);
  for (const AddedToken& token : list) {
    std::string& own = p.tokens[token.id];
    if ((!own.empty() && own != token.content) || p.no_text == token.id)
      throw user_error("{}: '{}' and '{}' have the same id {}", place, own, token.content, token.id);
    if (!own.empty()) continue;
    if (const auto at = p.ids.find(token.content); at != p.ids.end())
      throw user_error("{}: '{}' has the id {} here and {} in the model", place, token.content, token.id, at->second);
    own = token.content;
    p.ids.emplace(own, token.id);
  }
}

void read_added(const json& root, bool unique, const std::string& where, TokenizerParts& p) {
  std::vector<AddedToken> list;
  if (!absent(root, "added_tokens")) list = read_added_list(root["added_tokens"], where + ": added_tokens");
  join_added(list, unique, where, p);
  p.kinds.assign(p.tokens.size(), TokenKind::normal);
  p.verbatim.assign(p.tokens.size(), false);
  for (AddedToken& token : list) {
    p.kinds[token.id] = token.control ? TokenKind::control : TokenKind::user_defined;
    p.verbatim[token.id] = true;
    if (token.normalized) {
      token.match = p.normalizer.apply(token.content);
      p.added_normalized.add(std::move(token));
    } else {
      p.added_raw.add(std::move(token));
    }
  }
  if (!p.scores.empty()) p.scores.resize(p.tokens.size(), 0);
}

}  // namespace

TokenId named_token(const TokenizerParts& p, const std::string& name, const std::string& where) {
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (!name.empty() && p.tokens[i] == name) return i;
  }
  throw user_error("{}: '{}' is not in the vocabulary", where, name);
}

std::shared_ptr<TokenizerParts> read_json_parts(std::string_view text, const std::string& name,
                                                std::string_view config) {
  std::optional<ScannedVocabulary> scanned = scan_vocabulary(text);
  json root;
  try {
    root = parse_json(scanned ? scanned->rest : text, name, 64);
  } catch (const Error&) {
    if (!scanned) throw;
    scanned.reset();
    root = parse_json(text, name, 64);  // reports the error with its position in the whole text
  }
  auto parts = std::make_shared<TokenizerParts>();
  TokenizerParts& p = *parts;
  const auto stage = [&](const char* key) { return absent(root, key) ? json() : root[key]; };
  const json& model = json_member(root, "model", name);
  read_model(model, scanned ? &*scanned : nullptr, name + ": model", p);
  read_normalizer_stage(stage("normalizer"), name + ": normalizer", p);
  read_added(root, scanned && scanned->tokens, name, p);
  if (p.kind != VocabularyKind::unigram && !absent(model, "unk_token"))
    p.unknown = named_token(p, json_text(model, "unk_token", name), name + ": unk_token");
  // With the ByteLevel pre-tokenizer words are passed to the model as bytes, where the model supports it.
  const auto& normal = p.normalizer.steps();
  const bool bytes_allowed = p.kind == VocabularyKind::character_pair && p.continuing.empty() && p.word_end.empty() &&
                             !p.byte_fallback && !(p.fuse_unknown && p.unknown) &&
                             std::none_of(normal.begin(), normal.end(),
                                          [](const NormalStep& s) { return s.kind == NormalStep::Kind::alphabet; });
  bool byte_level = false;
  read_split_stage(stage("pre_tokenizer"), name + ": pre_tokenizer", bytes_allowed, p, &byte_level);
  if (byte_level) p.kind = VocabularyKind::byte_pair;
  read_decoder_stage(stage("decoder"), name + ": decoder", p);
  read_post_stage(stage("post_processor"), name + ": post_processor", p);
  if (!config.empty()) read_tokenizer_config(config, "tokenizer_config.json next to " + name, p);
  if (!p.bos && p.prefix.size() == 1) p.bos = p.prefix[0];
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (p.tokens[i].empty()) p.kinds[i] = TokenKind::unused;
  }
  return parts;
}

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& name, std::string_view config) {
  auto parts = read_json_parts(text, name, config);
  finish_tokenizer(*parts, name);
  return Tokenizer(std::move(parts));
}

}  // namespace lumen::model::text
