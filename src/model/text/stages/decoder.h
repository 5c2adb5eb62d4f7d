// Strings of tokens back to a text: the chain of steps that tokenizer.json names. Bytes come back as bytes, also where
// they make no valid UTF-8. Proved by tests/model/text/tokenizer_test.cpp and tokenizer_reference.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model {

struct DecodeStep {
  enum class Kind {
    alphabet,       // characters of the byte-level alphabet become bytes; joins all
    byte_fallback,  // <0xAB> becomes a byte
    fuse,           // joins all
    strip,          // up to `start` / `stop` characters `text` go at the ends of each part
    replace,        // matches of a pattern become `text`
    metaspace,      // `text` becomes a space, and nothing in the first part where `drop_first`
    word_piece,     // parts that begin with `text` join the one before; others come behind a space; `cleanup`: and
                    // spaces before punctuation go
    word_end,       // `text` becomes a space, and nothing in the last part
  } kind = Kind::fuse;
  std::string text = {};
  size_t start = 0, stop = 0;
  bool drop_first = false, cleanup = false;
  std::shared_ptr<const Pattern> pattern = {};
};

class Decoder {
 public:
  struct Part {
    std::string text;
    bool verbatim = false;  // stands for itself, outside the byte-level alphabet
  };

  Decoder() = default;  // joins with spaces
  explicit Decoder(std::vector<DecodeStep> steps) : steps_(std::move(steps)), spaces_(false) {}

  std::string decode(std::vector<Part> parts) const;
  // Each part stands for the same bytes wherever it is; then decode() is their concatenation.
  bool is_plain() const;

 private:
  std::vector<DecodeStep> steps_;
  bool spaces_ = true;
};

}  // namespace lumen::model
