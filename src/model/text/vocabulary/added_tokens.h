// Added tokens: control tokens and user-defined words, at which a text is split before pre-tokenization. The leftmost
// match wins, and there the longest. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/text/vocabulary/word_model.h"

namespace lumen::model::text {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  std::string match = {};                        // the string to match; empty: the content
  bool control = false;                          // matched only where control tokens are parsed
  bool normalized = false;                       // matched in normalized text, not in the raw text
  bool strip_left = false, strip_right = false;  // include white space next to the match
  bool single_word = false;                      // match only without word characters next to it

  bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
 public:
  void add(AddedToken token);  // an empty content is ignored
  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& all() const { return tokens_; }

  struct Match {
    size_t begin = 0, end = 0;  // including stripped white space
    TokenId id = -1;
  };
  // The first match at or after `from`; false when there is none. Stripping does not go back beyond `from`, the end of
  // the previous match.
  bool find(std::string_view text, size_t from, bool control, Match* out) const;

 private:
  int longest(std::string_view text, size_t at, bool control) const;  // index into tokens_, or -1

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};                             // first bytes of tokens
  std::vector<bool> two_ = std::vector<bool>(1 << 16, false);  // possible first two bytes of tokens
  std::unordered_map<uint64_t, uint32_t> edges_;               // (node, byte) -> node
  std::vector<int> token_at_{-1};                              // node -> index into tokens_, or -1
};

}  // namespace lumen::model::text
