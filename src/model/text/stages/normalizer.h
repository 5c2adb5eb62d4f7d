// Normalization of text before it is split: the chain of normalizers that tokenizer.json and SentencePiece files name.
// Invalid UTF-8 passes through. Proved by tests/model/text/tokenizer_test.cpp and tokenizer_reference.py.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model::text {

// The compiled replacement table (precompiled_charsmap) of SentencePiece files: a double-array trie over bytes and a
// blob of strings.
class CharacterMap {
 public:
  // Error when the blob is malformed.
  CharacterMap(std::string_view blob, const std::string& where);
  // The length of the longest / shortest key that `text` begins with; 0: none. `*out`: its replacement.
  size_t longest(std::string_view text, std::string_view* out) const;
  size_t shortest(std::string_view text, std::string_view* out) const;

 private:
  size_t find(std::string_view text, bool longest, std::string_view* out) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

struct NormalStep {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lowercase,
    strip_accents,     // removes marks
    strip_nonspacing,  // removes non-spacing marks
    strip,             // removes white space at the ends: `left`, `right`
    replace,           // matches of a pattern become `text`
    prepend,           // `text` before a non-empty text
    map_graphemes,     // the character map, as the tokenizers library applies it
    map_prefixes,      // the character map, as SentencePiece applies it
    clean,             // removes control characters, white space becomes a space
    nmt,               // the same with another list of characters
    pad_ideographs,    // adds a space on both sides of CJK ideographs
    alphabet,          // bytes become characters of the byte-level alphabet
  } kind = Kind::nfc;
  bool left = true, right = true;
  std::string text = {};
  std::shared_ptr<const Pattern> pattern = {};
  std::shared_ptr<const CharacterMap> map = {};
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalStep> steps) : steps_(std::move(steps)) {}

  // Whether there is nothing to do at all or for this text (a fast check with false negatives).
  bool leaves(std::string_view text) const;
  std::string apply(std::string_view text) const;
  const std::vector<NormalStep>& steps() const { return steps_; }
  bool is_nfc() const { return steps_.size() == 1 && steps_[0].kind == NormalStep::Kind::nfc; }

 private:
  std::vector<NormalStep> steps_;
};

// Whether each character of the text is unchanged by NFC in any context; false when undecided.
bool surely_nfc(std::string_view text);

}  // namespace lumen::model::text
