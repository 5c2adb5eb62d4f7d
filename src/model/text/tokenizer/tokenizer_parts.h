// The contents of a Tokenizer; shared by the files that create, use and write one. No other file includes this.
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

namespace lumen::model::text {

constexpr int64_t kMaxVocabulary = int64_t{1} << 22;
// GGUF: a whole tokenizer.json, and whether it takes precedence over the tokenizer.ggml.* keys.
constexpr const char *kWholeJson = "tokenizer.huggingface.json", *kWholeCounts = "lumen.tokenizer.whole";
// Word pieces: the mark of a word's start in GGUF files, and of continuation in tokenizer.json.
constexpr std::string_view kWordMark = "\xe2\x96\x81", kInsideMark = "##";

struct TokenizerParts {
  VocabularyKind kind = VocabularyKind::byte_pair;
  std::vector<std::string> tokens;  // by id, as in the vocabulary; "" for an unused id
  std::vector<TokenKind> kinds;
  TokenMap ids;
  std::vector<bool> verbatim;  // by id: the token is literal text, not in the byte-level alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<double> scores;                               // by id; scored_pairs and unigram
  std::optional<TokenId> no_text;  // the id of an empty string in a file's vocabulary, which no text encodes to
  std::vector<bool> in_model;      // by id: words may encode to this token; empty: all except special tokens
  bool ignore_merges = false, fuse_unknown = false, byte_fallback = false;
  bool single_precision = false;     // unigram: sums of scores are f32
  std::string continuing, word_end;  // tokens' prefix inside a word, and suffix at its end
  size_t longest_word = 100;         // word_piece: characters
  std::optional<TokenId> unknown;

  // The four stages as tokenizer.json describes them; null: none, or derived from the other fields (byte-level
  // vocabularies).
  nlohmann::json normalizer_json, split_json, post_json, decoder_json;

  Normalizer normalizer;
  Splitter splitter;
  std::unique_ptr<const WordModel> model;
  bool cut_words = false;  // the model says where words can be split without changing tokens
  Decoder decoder{{{.kind = DecodeStep::Kind::alphabet}}};
  std::optional<TokenId> anchor;            // a token of letters: other tokens are decoded after it to get their bytes
  AddedTokens added_raw, added_normalized;  // matched before and after normalization

  std::optional<TokenId> bos, eos;
  std::vector<TokenId> end_of_generation;
  std::vector<TokenId> prefix, suffix;  // added with add_special
  // Between the two texts of a pair, whose other tokens are the same; the first of them belong to the first text. None:
  // it is not known how pairs are joined.
  std::optional<std::vector<TokenId>> between;
  int64_t between_first = 0;
  std::string chat_template;

  uint64_t serial = 0;  // identifies this tokenizer in the threads' word caches
};

// Fills `ids`, builds the model from `tokens`, `merges`, `scores` and the flags, and collects the end-of-generation
// ids. Errors name `where`.
void finish_tokenizer(TokenizerParts& parts, const std::string& where);
// The models of finish_tokenizer() (tokenizer_models.cpp).
void build_word_model(TokenizerParts& parts, const std::string& where);
// Byte-level vocabularies: whether the merges produce every token from its bytes, so that `ignore_merges` has no
// effect.
bool merges_say_all(const TokenizerParts& parts);
// Checks an id from a file; Error when outside the vocabulary.
TokenId checked_id(const TokenizerParts& parts, int64_t id, const std::string& where);
// The parts of a tokenizer.json, before finish_tokenizer().
std::shared_ptr<TokenizerParts> read_json_parts(std::string_view text, const std::string& name,
                                                std::string_view config);
TokenId named_token(const TokenizerParts& parts, const std::string& name, const std::string& where);

// Stages from their JSON (tokenizer_stages.cpp). Unsupported ones are an Error.
void read_normalizer_stage(const nlohmann::json& node, const std::string& where, TokenizerParts& parts);
// `*byte_level`: the stage ends in the byte-level alphabet (that step is then omitted from the splitter).
void read_split_stage(const nlohmann::json& node, const std::string& where, bool bytes_allowed, TokenizerParts& parts,
                      bool* byte_level);
void read_decoder_stage(const nlohmann::json& node, const std::string& where, TokenizerParts& parts);
void read_post_stage(const nlohmann::json& node, const std::string& where, TokenizerParts& parts);
// Reads BOS, EOS, add_bos_token, add_eos_token and the chat template from tokenizer_config.json.
void read_tokenizer_config(std::string_view text, const std::string& where, TokenizerParts& parts);

// Standard stages for vocabularies that files identify only by their kind. `spaces`: settings of SentencePiece files.
struct SpaceOptions {
  std::string character_map = {};  // compiled, or empty
  bool dummy_prefix = true, remove_extra = false, escape = true;
};
void space_stages(const SpaceOptions& spaces, TokenizerParts& parts, const std::string& where);
struct WordPieceOptions {
  bool lowercase = true, strip_accents = true;
};
void word_piece_stages(const WordPieceOptions& options, TokenizerParts& parts, const std::string& where);

}  // namespace lumen::model::text
