// The table of things that files call by name: which splits and flags a pre-tokenizer name in a GGUF file stands for,
// which kind of vocabulary a name stands for, which tokens end a turn. Data (models/pretokenizers.toml), so that a new
// family of models is a new row. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/stages/split.h"

namespace lumen::model {

struct Pretokenizer {
  std::vector<std::string> names;  // the first is written, all are read
  std::vector<SplitStep> steps;
  bool nfc = false;            // text is normalised (GGUF files do not say)
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool add_bos = false;        // when the file does not say
  bool ours = false;           // no other program knows the names
};

enum class VocabularyKind {
  byte_pair,       // words as bytes, merges with ranks
  character_pair,  // words as characters, merges with ranks
  scored_pairs,    // words as characters, any two pieces that make a piece, better scores first
  unigram,         // the pieces with the best sum of scores
  word_piece,      // the longest pieces from the left
  whole_word,      // words that are tokens
};

// What files of one kind of vocabulary leave unsaid; ids below 0: none.
struct VocabularyRow {
  VocabularyKind kind = VocabularyKind::byte_pair;
  int64_t bos = -1, eos = -1, unknown = -1;
  bool add_bos = false, add_eos = false;
};

// What files of ranks leave unsaid (ranks.h).
struct RanksRow {
  std::string split;  // a name of a pre-tokenizer
  std::vector<std::string> files, model_types;
  std::vector<std::string> specials;  // behind the last rank
  std::string bos;                    // one of them, or empty
};

// A control token that ends a part of a turn, not the turn, in vocabularies that have some others as well.
struct EndOfPart {
  std::string token;
  std::vector<std::string> beside;
};

struct PretokenizerTable {
  std::string byte_level;                             // the pattern that tokenizer.json calls ByteLevel with use_regex
  std::string train;                                  // row for tokenizers trained here
  std::string characters;                             // row for tokenizers of single characters
  std::string plain;                                  // row for vocabularies of single bytes, which no split can change
  std::map<std::string, VocabularyRow> vocabularies;  // tokenizer.ggml.model
  std::vector<std::string> end_of_generation;         // token strings that every program knows as ends
  std::vector<std::string> end_of_generation_here;    // and those that files must name for other programs
  std::vector<EndOfPart> ends_of_parts;
  std::vector<RanksRow> ranks;
  std::vector<Pretokenizer> rows;

  const Pretokenizer* find(std::string_view name) const;  // null when unknown
  // The row whose steps cut like these, with these flags, or null.
  const Pretokenizer* match(const std::vector<SplitStep>& steps, bool nfc, bool ignore_merges) const;
  // The name that files give a kind, or nothing.
  std::optional<std::string> kind_name(VocabularyKind kind) const;
};

// `checks`: every pattern is compiled, so that a wrong one is an Error here. The embedded ones are proved by tests, and
// compiled where a model uses them: all of them would cost each start of a program as much as its vocabulary.
PretokenizerTable read_pretokenizers(std::string text, std::string name, bool checks = true);
// The embedded table with the rows a user added.
const PretokenizerTable& pretokenizers();
// Adds the rows of a text in front of the embedded ones; for users' own families. Call before the first tokenizer is
// made.
void add_pretokenizers(std::string text, std::string name);

}  // namespace lumen::model
