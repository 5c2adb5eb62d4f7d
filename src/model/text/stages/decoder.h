// Decoding of token strings to text: the chain of decoders that tokenizer.json names. Bytes are kept even where they
// are invalid UTF-8. Proved by tests/model/text/tokenizer_test.cpp and tokenizer_reference.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model::text {

struct DecodeStep {
  enum class Kind {
    alphabet,       // ByteLevel: characters of the byte-level alphabet become bytes; joins all parts
    byte_fallback,  // <0xAB> becomes a byte
    fuse,           // joins all parts
    strip,          // removes up to `start` / `stop` characters `text` from the ends of each part
    replace,        // matches of a pattern become `text`
    metaspace,      // `text` becomes a space, or is removed in the first part where `drop_first`
    word_piece,     // parts that begin with `text` are appended to the previous one; others get a space before them;
                    // `cleanup`: spaces before punctuation are removed
    word_end,       // BPEDecoder: `text` becomes a space, or is removed in the last part
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
    bool verbatim = false;  // literal text, not in the byte-level alphabet
  };

  Decoder() = default;  // joins with spaces
  explicit Decoder(std::vector<DecodeStep> steps) : steps_(std::move(steps)), spaces_(false) {}

  std::string decode(std::vector<Part> parts) const;
  // Whether each token decodes to the same bytes anywhere, so that decode() concatenates.
  bool is_plain() const;

 private:
  std::vector<DecodeStep> steps_;
  bool spaces_ = true;
};

}  // namespace lumen::model::text
