// What becomes of a text before it is split: a chain of the steps that tokenizer.json and SentencePiece files name.
// Bytes that are no UTF-8 pass through. Proved by tests/model/text/tokenizer_test.cpp and tokenizer_reference.py.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model {

// The compiled table of replacements of SentencePiece files: a double array over bytes and a blob of strings.
class CharacterMap {
 public:
  // Error when the blob cannot be one.
  CharacterMap(std::string_view blob, const std::string& where);
  // The length of the longest / shortest key that `text` begins with; 0: there is none. `*out`: what it becomes.
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
    strip_accents,     // marks go
    strip_nonspacing,  // non-spacing marks go
    strip,             // white space at the ends goes: `left`, `right`
    replace,           // matches of a pattern become `text`
    prepend,           // `text` before a text that is not empty
    map_graphemes,     // the character map, as the library tokenizers applies it
    map_prefixes,      // the character map, as SentencePiece applies it
    clean,             // control characters go, white space becomes a space
    nmt,               // the same with another list of characters
    pad_ideographs,    // a space on both sides
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

  // Nothing to do, or nothing to do for this text (quick, not always found).
  bool leaves(std::string_view text) const;
  std::string apply(std::string_view text) const;
  const std::vector<NormalStep>& steps() const { return steps_; }
  bool is_nfc() const { return steps_.size() == 1 && steps_[0].kind == NormalStep::Kind::nfc; }

 private:
  std::vector<NormalStep> steps_;
};

// True when each character of the text is one that normal form C leaves alone wherever it stands; false when unsure.
bool surely_nfc(std::string_view text);

}  // namespace lumen::model
