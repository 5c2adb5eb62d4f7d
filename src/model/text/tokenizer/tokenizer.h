// Tokenizers: text to token ids and back. A Tokenizer is an immutable value created from GGUF metadata, from a
// tokenizer.json, from a SentencePiece file, by training on a text, or from the characters of a text; copies share all
// data.
//
// Encoding: text -> split at added tokens -> normalized (normalizer.h) -> split into words (split.h) -> each word is
// encoded by the model (byte_pair.h, unigram.h, word_piece.h). Each thread caches words. Any bytes may be encoded;
// decoding restores them unless the tokenizer normalizes or has no tokens for bytes. Vocabularies, regexes and family
// names are data (models/pretokenizers.toml), never code. Proved by tests/model/text/tokenizer_test.cpp with real
// vocabularies and the ids of their reference implementations.
//
// May include: base, base/structured, base/threads, model/text/stages, model/text/unicode, model/text/vocabulary.
// Offers: characters.h, text_stats.h, tokenizer_parts.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model::file {
class GgufMetadata;
}  // namespace lumen::model::file

namespace lumen::model::text {

struct TokenizerParts;

using TokenId = int32_t;  // as in word_model.h

// Values as in GGUF's token_type.
enum class TokenKind : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct EncodeOptions {
  bool add_special = false;    // add BOS / EOS as the tokenizer specifies
  bool parse_special = false;  // parse control tokens in the text (for chat templates); off for user input
};

struct BpeTraining {
  int64_t vocabulary = 512;                // size including specials; at least 256 + specials
  int64_t min_frequency = 2;               // less frequent pairs are not merged
  std::vector<std::string> specials = {};  // control tokens, with the first ids
  std::string end_of_text = {};            // one of specials: EOS (and BOS); empty: none
  std::string split = {};                  // a row of the pre-tokenizer table; empty: the table's default
};

class Tokenizer {
 public:
  // From the tokenizer.* keys of a GGUF file.
  static Tokenizer from_gguf(const file::GgufMetadata& metadata);
  // From the contents of a tokenizer.json. `config`: the contents of tokenizer_config.json, or empty; it defines BOS,
  // EOS and the chat template.
  static Tokenizer from_json(std::string_view text, const std::string& name, std::string_view config = {});
  // From the bytes of a SentencePiece model (BPE or unigram).
  static Tokenizer from_sentencepiece(std::string_view bytes, const std::string& name, std::string_view config = {});
  // From a .gguf, .json, .model or .tiktoken file, or a folder with tokenizer.json, tokenizer.model, a tiktoken file,
  // vocab.json and merges.txt, or vocab.txt; a chat_template.jinja in the folder is read, too.
  static Tokenizer load(const std::filesystem::path& path);
  // Byte-level BPE trained on a text. Deterministic: ties go to the lower pair of ids.
  static Tokenizer train(std::string_view text, const BpeTraining& options);
  // One token per distinct character (code point) of the text, in code point order. Encoding a character outside the
  // vocabulary is an Error.
  static Tokenizer characters(std::string_view text);

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  // Two texts in one sequence, as the tokenizer joins them for models that compare texts. Error if it does not say how.
  struct Pair {
    std::vector<TokenId> ids;
    int64_t second = 0;  // the number of ids before the second text's, which begin with it or with a token of its kind
  };
  Pair encode_pair(std::string_view first, std::string_view second) const;
  // Encodes many inputs with `threads` threads (0: all cores). The ids equal those of encode().
  std::vector<std::vector<TokenId>> encode_batch(std::span<const std::string_view> inputs, EncodeOptions options = {},
                                                 int threads = 0) const;
  // Decodes tokens; control tokens are omitted when `skip_special`. Error for ids outside the vocabulary.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  int64_t size() const;                      // number of ids
  bool has(TokenId id) const;                // false for unused ids, and for a model's ids beyond the vocabulary
  std::string_view token(TokenId id) const;  // as in the vocabulary (byte-level alphabet)
  std::string bytes(TokenId id) const;       // decoded bytes inside a text; control tokens: their name
  TokenKind kind(TokenId id) const;
  std::optional<TokenId> find(std::string_view token) const;  // by vocabulary string
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  // EOS, end of turn, end of message, and the ids of with_ends(): sampling stops at them; ascending.
  std::vector<TokenId> end_of_generation() const;
  // Adds end-of-generation ids from a model's config. They may have no tokens.
  Tokenizer with_ends(std::span<const TokenId> more) const;
  bool adds_bos() const;
  bool adds_eos() const;
  const std::string& chat_template() const;  // Jinja text, or empty
  Tokenizer with_chat_template(std::string text) const;

  void to_gguf(file::GgufMetadata& metadata) const;  // sets the tokenizer.* keys
  std::string to_json() const;
  std::string to_config_json() const;  // tokenizer_config.json: BOS, EOS, chat template

  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

 private:
  std::shared_ptr<const TokenizerParts> parts_;
  std::shared_ptr<const std::string> chat_template_;       // overrides the original one
  std::shared_ptr<const std::vector<TokenId>> more_ends_;  // in addition to the original ones
};

// Incremental decoding: push() returns only complete UTF-8, an incomplete character waits for the next token.
class TokenStream {
 public:
  explicit TokenStream(Tokenizer tokenizer, bool skip_special = true)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}
  std::string push(TokenId id);
  std::string finish();  // the pending rest, invalid bytes as U+FFFD

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;
  bool first_ = true;
};

}  // namespace lumen::model::text
