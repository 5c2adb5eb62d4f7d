#include "model/text/tokenizer/file/gguf_vocabulary.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/ordinal.h"
#include "model/text/stages/pretokenizers.h"

namespace lumen::model::text {
namespace {

constexpr std::string_view kPadding = "[PAD";
constexpr const char *kTokens = "tokenizer.ggml.tokens", *kKinds = "tokenizer.ggml.token_type",
                     *kScores = "tokenizer.ggml.scores", *kEnd = "tokenizer.ggml.eos_token_id";
constexpr const char* kMoreEnds[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
// Tokens between and after files of code (fill-in-the-middle): they also end the generation of a single file.
constexpr const char* kFileEnds[] = {"tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
                                     "tokenizer.ggml.fim_sep_token_id"};
constexpr const char* kAllEnds = "lumen.end_token_ids";  // the complete list, where the standard keys are not enough
constexpr float kUnusedScore = -10000;

bool contains(std::span<const TokenId> ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

bool is_known_split(const file::GgufMetadata& m) {
  const std::string name = m.text("tokenizer.ggml.pre", "");
  const Pretokenizer* row = pretokenizers().find(name);
  return name != kUnnamedSplit && !(row && row->ours);
}

bool is_padding(std::string_view token, TokenKind kind) {
  if (kind != TokenKind::unused || !token.starts_with(kPadding) || !token.ends_with(']')) return false;
  token = token.substr(kPadding.size(), token.size() - kPadding.size() - 1);
  while (token.ends_with('_')) token.remove_suffix(1);
  return !token.empty() && std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void name_padding(std::vector<std::string>& tokens, const std::vector<int32_t>& kinds) {
  std::unordered_set<std::string> taken;
  for (const std::string& t : tokens)
    if (t.starts_with(kPadding)) taken.insert(t);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty() || kinds[i] != ordinal(TokenKind::unused)) continue;
    std::string number = std::to_string(i);
    while (taken.contains(fmt::format("{}{}]", kPadding, number))) number += '_';
    tokens[i] = fmt::format("{}{}]", kPadding, number);
  }
}

void pad_vocabulary(file::GgufMetadata& m, int64_t size) {
  if (!m.has(kTokens)) return;
  std::vector<std::string> tokens = m.texts(kTokens);
  const size_t before = tokens.size(), wanted = size;
  if (before >= wanted) return;
  std::vector<int32_t> kinds(before, ordinal(TokenKind::normal));
  if (m.has(kKinds)) {
    const std::vector<int64_t> given = m.integers(kKinds);
    if (given.size() != before) throw user_error("{}: {} token types for {} tokens", m.source, given.size(), before);
    kinds.assign(given.begin(), given.end());
  }
  kinds.resize(wanted, ordinal(TokenKind::unused));
  tokens.resize(wanted);
  name_padding(tokens, kinds);
  m.set(kTokens, file::GgufArray(std::move(tokens)));
  m.set(kKinds, file::GgufArray(std::move(kinds)));
  if (!m.has(kScores)) return;
  const std::vector<double> given = m.numbers(kScores);
  std::vector<float> scores(given.begin(), given.end());
  scores.resize(wanted, kUnusedScore);
  m.set(kScores, file::GgufArray(std::move(scores)));
}

void ends_to_gguf(const Tokenizer& tokenizer, std::span<const TokenId> named, file::GgufMetadata& m) {
  const auto set = [&](const char* key, TokenId id) { m.set(key, static_cast<uint32_t>(id)); };
  if (!m.has(kEnd) && !named.empty()) set(kEnd, named.front());
  std::vector<TokenId> list;  // all ids that the file must list
  const auto add = [&](TokenId id) {
    if (!contains(list, id)) list.push_back(id);
  };
  for (const TokenId id : named) add(id);
  const auto& known = pretokenizers().end_of_generation;
  const auto is_known = [&](TokenId id) {
    return tokenizer.has(id) && tokenizer.kind(id) == TokenKind::control &&
           std::find(known.begin(), known.end(), tokenizer.token(id)) != known.end();
  };
  for (const TokenId id : tokenizer.end_of_generation())
    if (!is_known(id)) add(id);
  std::vector<TokenId> left = list;
  const auto done = [&](const char* key) {
    if (m.has(key)) std::erase(left, static_cast<TokenId>(m.integer(key)));
    return m.has(key);
  };
  done(kEnd);
  for (const char* key : kMoreEnds) done(key);
  // The standard keys have room for two more.
  for (const char* key : kMoreEnds) {
    const auto next = std::find_if_not(left.begin(), left.end(), is_known);
    if (m.has(key) || next == left.end()) continue;
    set(key, *next);
    left.erase(next);
  }
  if (named.size() < 2 && left.empty()) return;
  m.set(kAllEnds, file::GgufArray(std::vector<uint32_t>(list.begin(), list.end())));
}

std::vector<TokenId> ends_of_gguf(const file::GgufMetadata& m, int64_t count) {
  std::vector<TokenId> out;
  std::set<TokenId> known;
  const auto take = [&](const char* key, int64_t id) {
    if (id < 0 || id >= count)
      throw user_error("{}: {}: {} is outside the vocabulary of {} tokens", m.source, key, id, count);
    if (known.insert(id).second) out.push_back(id);
  };
  if (m.has(kAllEnds))
    for (const int64_t id : m.integers(kAllEnds)) take(kAllEnds, id);
  for (const char* key : {kEnd, kMoreEnds[0], kMoreEnds[1]})
    if (m.has(key)) take(key, m.integer(key));
  for (const char* key : kFileEnds)
    if (m.has(key)) take(key, m.integer(key));
  return out;
}

}  // namespace lumen::model::text
