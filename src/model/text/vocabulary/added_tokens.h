// Tokens that are cut out of a text before it is split into words: control tokens, and words the user added. The
// longest one that matches at the leftmost place wins. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/text/vocabulary/word_model.h"

namespace lumen::model {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  std::string match = {};                        // what is looked for; empty: the content
  bool control = false;                          // matched only where control tokens are to be parsed
  bool normalized = false;                       // matched in normalised text, not in the raw text
  bool strip_left = false, strip_right = false;  // swallow white space beside the match
  bool single_word = false;                      // match only where no word character touches it

  bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
 public:
  void add(AddedToken token);  // an empty content is ignored
  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& all() const { return tokens_; }

  struct Match {
    size_t begin = 0, end = 0;  // in the text, swallowed white space included
    TokenId id = -1;
  };
  // The first match at or behind `from`; false when there is none. `floor` is where the previous match ended: stripping
  // does not reach past it.
  bool find(std::string_view text, size_t from, bool control, Match* out) const;

 private:
  int longest(std::string_view text, size_t at, bool control) const;  // index into tokens_, or -1

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};                             // bytes that some token begins with
  std::vector<bool> two_ = std::vector<bool>(1 << 16, false);  // pairs of bytes that some token may begin with
  std::unordered_map<uint64_t, uint32_t> edges_;               // (node, byte) -> node
  std::vector<int> token_at_{-1};                              // node -> index into tokens_, or -1
};

}  // namespace lumen::model
