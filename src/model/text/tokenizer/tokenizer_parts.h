// What a Tokenizer consists of; shared by the files that make, use and write one. Nobody else includes this.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/structured/json.h"
#include "model/text/stages/decoder.h"
#include "model/text/stages/normalizer.h"
#include "model/text/stages/pretokenizers.h"
#include "model/text/stages/split.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/text/vocabulary/added_tokens.h"
#include "model/text/vocabulary/byte_pair.h"

namespace lumen::model {

constexpr int64_t kMaxVocabulary = int64_t{1} << 22;
// GGUF: a tokenizer.json as a whole, and whether it counts although other keys describe the tokenizer as well.
constexpr const char *kWholeJson = "tokenizer.huggingface.json", *kWholeCounts = "lumen.tokenizer.whole";
// Marks of words' beginnings in GGUF files and of their insides in tokenizer.json (word pieces).
constexpr std::string_view kWordMark = "\xe2\x96\x81", kInsideMark = "##";

struct TokenizerParts {
  VocabularyKind kind = VocabularyKind::byte_pair;
  std::vector<std::string> tokens;  // by id, as in the vocabulary; "" where an id has no token
  std::vector<TokenKind> kinds;
  TokenMap ids;
  std::vector<bool> verbatim;  // by id: the token's text is itself, not in the byte-level alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<double> scores;                               // by id; scored_pairs and unigram
  std::optional<TokenId> no_text;  // the id of the entry "" of a file's vocabulary, which no text becomes
  std::vector<bool> in_model;      // by id: words may become this token; empty: those that are no specials may
  bool ignore_merges = false, fuse_unknown = false, byte_fallback = false;
  bool single_precision = false;     // unigram: sums of scores are f32
  std::string continuing, word_end;  // what tokens have in front inside a word, and behind at its end
  size_t longest_word = 100;         // word_piece: characters
  std::optional<TokenId> unknown;

  // The four stages as tokenizer.json describes them; null: derived from the rest (byte-level vocabularies), or none.
  nlohmann::json normalizer_json, split_json, post_json, decoder_json;

  Normalizer normalizer;
  Splitter splitter;
  std::unique_ptr<const WordModel> model;
  bool cut_words = false;  // pieces may be cut further where the model says so
  Decoder decoder{{{.kind = DecodeStep::Kind::alphabet}}};
  std::optional<TokenId> anchor;  // a token of letters: what others stand for behind it is what they stand for
  AddedTokens added_raw, added_normalized;  // matched before and after normalisation

  std::optional<TokenId> bos, eos;
  std::vector<TokenId> end_of_generation;
  std::vector<TokenId> prefix, suffix;  // put around a text that asks for special tokens
  std::string chat_template;

  uint64_t serial = 0;  // names this tokenizer in the threads' caches of words
};

// Fills `ids`, builds the model from `tokens`, `merges`, `scores` and the flags, and gathers the ends of generation.
// Errors name `where`.
void finish_tokenizer(TokenizerParts& parts, const std::string& where);
// The models of finish_tokenizer() (tokenizer_models.cpp).
void build_word_model(TokenizerParts& parts, const std::string& where);
// Byte-level vocabularies: whether merging the bytes of each token gives that token, so that taking words that are
// tokens whole changes nothing.
bool merges_say_all(const TokenizerParts& parts);
// An id as a number from a file; Error when outside the vocabulary.
TokenId checked_id(const TokenizerParts& parts, int64_t id, const std::string& where);
// The parts of a tokenizer.json, not finished.
std::shared_ptr<TokenizerParts> read_json_parts(std::string_view text, const std::string& name,
                                                std::string_view config);
TokenId named_token(const TokenizerParts& parts, const std::string& name, const std::string& where);

// Stages from their description (tokenizer_stages.cpp). What we do not have is refused.
void read_normalizer_stage(const nlohmann::json& node, const std::string& where, TokenizerParts& parts);
// `*byte_level`: the stage ends in the byte-level alphabet (and that step is not part of the splitter).
void read_split_stage(const nlohmann::json& node, const std::string& where, bool bytes_allowed, TokenizerParts& parts,
                      bool* byte_level);
void read_decoder_stage(const nlohmann::json& node, const std::string& where, TokenizerParts& parts);
void read_post_stage(const nlohmann::json& node, const std::string& where, TokenizerParts& parts);
// BOS, EOS, what is added, and the chat template, from tokenizer_config.json.
void read_tokenizer_config(std::string_view text, const std::string& where, TokenizerParts& parts);

// Descriptions of the stages of vocabularies that files name only by their kind. `spaces`: what SentencePiece files
// say.
struct SpaceOptions {
  std::string character_map = {};  // compiled, or empty
  bool dummy_prefix = true, remove_extra = false, escape = true;
};
void space_stages(const SpaceOptions& spaces, TokenizerParts& parts, const std::string& where);
struct WordPieceOptions {
  bool lowercase = true, strip_accents = true;
};
void word_piece_stages(const WordPieceOptions& options, TokenizerParts& parts, const std::string& where);

}  // namespace lumen::model
