// Tables of names in tokenizer files: the split patterns and flags of a pre-tokenizer name in a GGUF file, the kind of
// vocabulary of a model name, the tokens that end a turn. Data (models/pretokenizers.toml), so that a new model family
// is a new row. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/stages/split.h"

namespace lumen::model::text {

struct Pretokenizer {
  std::vector<std::string> names;  // all are accepted in files, the first is written
  std::vector<SplitStep> steps;
  bool nfc = false;            // NFC normalization (GGUF files do not record it)
  bool ignore_merges = false;  // a word in the vocabulary becomes one token
  bool add_bos = false;        // when the file does not specify it
  bool ours = false;           // other programs do not know the names
};

enum class VocabularyKind {
  byte_pair,       // BPE on bytes, ranked merges
  character_pair,  // BPE on characters, ranked merges
  scored_pairs,    // BPE on characters, SentencePiece: any two pieces that form a piece merge, best score first
  unigram,         // the segmentation with the highest sum of scores
  word_piece,      // greedy longest match from the left
  whole_word,      // only whole words
};

// Defaults of a vocabulary kind, for missing keys; ids below 0: none.
struct VocabularyRow {
  VocabularyKind kind = VocabularyKind::byte_pair;
  int64_t bos = -1, eos = -1, unknown = -1;
  bool add_bos = false, add_eos = false;
};

// What a tiktoken file lacks (ranks.h).
struct RanksRow {
  std::string split;  // name of a pre-tokenizer
  std::vector<std::string> files, model_types;
  std::vector<std::string> specials;  // control tokens after the last rank
  std::string bos;                    // one of `specials`, or empty
};

// A control token that ends only a part of a turn, in vocabularies that also have all tokens of `beside`.
struct EndOfPart {
  std::string token;
  std::vector<std::string> beside;
};

struct PretokenizerTable {
  std::string byte_level;                             // the pattern of tokenizer.json's ByteLevel with use_regex
  std::string train;                                  // row for tokenizers trained here
  std::string characters;                             // row for character-level tokenizers
  std::string plain;                                  // row for single-byte vocabularies: splits have no effect
  std::map<std::string, VocabularyRow> vocabularies;  // tokenizer.ggml.model
  std::vector<std::string> end_of_generation;         // end-of-generation tokens that every program knows
  std::vector<std::string> end_of_generation_here;    // and those that files must list for other programs
  std::vector<EndOfPart> ends_of_parts;
  std::vector<RanksRow> ranks;
  std::vector<Pretokenizer> rows;

  const Pretokenizer* find(std::string_view name) const;  // null when unknown
  // The row with equivalent split steps and these flags, or null.
  const Pretokenizer* match(const std::vector<SplitStep>& steps, bool nfc, bool ignore_merges) const;
  // The name of a kind in tokenizer.ggml.model, or nullopt.
  std::optional<std::string> kind_name(VocabularyKind kind) const;
};

// `checks`: compiles every pattern, so that an invalid one is an Error here. The embedded table is checked by tests;
// its patterns are compiled on use, since compiling all would cost as much time as loading a vocabulary.
PretokenizerTable read_pretokenizers(std::string text, std::string name, bool checks = true);
// The embedded table plus the user's rows.
const PretokenizerTable& pretokenizers();
// Adds a user's rows (TOML) in front of the embedded ones, for new model families. Call before the first tokenizer is
// created.
void add_pretokenizers(std::string text, std::string name);

}  // namespace lumen::model::text
