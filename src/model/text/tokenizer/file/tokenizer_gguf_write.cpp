// Tokenizers written to GGUF metadata: the tokenizer.* keys.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/ordinal.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

std::string to_marked(const std::string& token) {
  if (token.starts_with(kInsideMark)) return token.substr(kInsideMark.size());
  return std::string(kWordMark) + token;
}

// Scores equivalent to a list of merges: earlier merges score higher.
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
  bool whole = false;        // also writes the whole tokenizer.json
  bool counts = false;       // which takes precedence over the pre-tokenizer's row here
  bool takes_whole = false;  // the name implies another ignore_merges, which changes some tokens
};

// The form in which other programs read such a vocabulary best.
Written written_form(const TokenizerParts& p, const PretokenizerTable& table) {
  const auto named = [&](VocabularyKind kind) { return table.kind_name(kind); };
  const auto& steps = p.normalizer.steps();
  switch (p.kind) {
    case VocabularyKind::byte_pair: {
      const bool nfc = p.normalizer.is_nfc();
      const auto match = [&](bool normalized, bool whole_first) {
        return steps.empty() || nfc ? table.match(p.splitter.steps(), normalized, whole_first) : nullptr;
      };
      const Pretokenizer* row = match(nfc, p.ignore_merges);
      // Other programs read only names, and do not normalize: a row that differs in flags is the best match for them.
      const bool exact = row != nullptr;
      if (!row) row = match(!nfc, p.ignore_merges);
      bool takes_whole = false;
      if (!row) {
        row = match(nfc, !p.ignore_merges);
        if (!row) row = match(!nfc, !p.ignore_merges);
        takes_whole = row && !merges_say_all(p);
      }
      // Only single bytes: a name that every program knows gives the same tokens as our own.
      const bool only_bytes = std::all_of(p.ids.begin(), p.ids.end(), [&](const auto& entry) {
        const auto bytes = from_alphabet(entry.first);
        return p.verbatim[entry.second] || (bytes && bytes->size() == 1);
      });
      if (row && row == table.find(table.characters) && p.merges.empty() && only_bytes) row = table.find(table.plain);
      const bool counts = row && !exact;
      return {named(VocabularyKind::byte_pair).value_or(kUnnamedSplit), row ? row->names.front() : kUnnamedSplit,
              row == nullptr || counts, counts, takes_whole};
    }
    case VocabularyKind::character_pair:
    case VocabularyKind::scored_pairs: {
      // If spaces are only replaced by marks, scores describe the tokenizer completely.
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
  return {named(VocabularyKind::byte_pair).value_or(kUnnamedSplit), kUnnamedSplit, true};
}

}  // namespace

void Tokenizer::to_gguf(file::GgufMetadata& m) const {
  const TokenizerParts& p = *parts_;
  const Written form = written_form(p, pretokenizers());
  const bool marked = p.kind == VocabularyKind::word_piece && form.pre != kUnnamedSplit;
  m.set("tokenizer.ggml.model", form.model);
  m.set("tokenizer.ggml.pre", form.pre);
  std::vector<std::string> tokens = p.tokens;
  std::vector<int32_t> types;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (marked && p.kinds[i] == TokenKind::normal && !(tokens[i].starts_with('[') && tokens[i].ends_with(']')))
      tokens[i] = to_marked(tokens[i]);
    types.push_back(ordinal(tokens[i].empty() ? TokenKind::unused : p.kinds[i]));
  }
  name_padding(tokens, types);
  std::vector<std::string> merges;
  for (const auto& [left, right] : p.merges) merges.push_back(left + " " + right);
  m.set("tokenizer.ggml.tokens", file::GgufArray(std::move(tokens)));
  m.set("tokenizer.ggml.token_type", file::GgufArray(std::move(types)));
  m.erase("tokenizer.ggml.merges");
  m.erase("tokenizer.ggml.scores");
  if (p.kind == VocabularyKind::byte_pair || form.pre == kUnnamedSplit) {
    m.set("tokenizer.ggml.merges", file::GgufArray(std::move(merges)));
  } else if (p.kind != VocabularyKind::word_piece) {
    std::vector<float> scores(p.scores.begin(), p.scores.end());
    m.set("tokenizer.ggml.scores", file::GgufArray(scores.empty() ? merge_scores(p) : std::move(scores)));
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
  if (marked) {  // other programs add these around a text, whatever BOS and EOS are
    const auto one = [](const std::vector<TokenId>& ids) {
      return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
    };
    id("tokenizer.ggml.cls_token_id", one(p.prefix));
    id("tokenizer.ggml.seperator_token_id", one(p.suffix));
    if (!p.bos) id("tokenizer.ggml.bos_token_id", one(p.prefix));
  }
  id("tokenizer.ggml.unknown_token_id", p.unknown);
  m.set("tokenizer.ggml.add_bos_token", adds_bos());
  m.set("tokenizer.ggml.add_eos_token", adds_eos());
  m.erase("tokenizer.chat_template");
  if (!chat_template().empty()) m.set("tokenizer.chat_template", chat_template());
  m.erase(kWholeJson);
  m.erase(kWholeCounts);
  if (form.whole) m.set(kWholeJson, to_json());
  if (form.counts) m.set(kWholeCounts, true);
  if (form.takes_whole)
    warn(
        fmt::format("the tokenizer looks up whole words {}, unlike other programs with the pre-tokenizer '{}': they "
                    "will split some words differently",
                    p.ignore_merges ? "before merging" : "only through merges", form.pre));
}

}  // namespace lumen::model::text
