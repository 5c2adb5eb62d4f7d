// The interface of vocabulary kinds: encodes one word. A tokenizer owns one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lumen::model::text {

using TokenId = int32_t;

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the tokens of a word. Error when the vocabulary cannot express it.
  virtual void encode(std::string_view word, std::vector<TokenId>& out) const = 0;
  // Length of a prefix of `text` that can be encoded separately: its tokens and those of the rest do not affect each
  // other. Used to split a long text without words.
  virtual size_t independent(std::string_view text) const { return text.size(); }
};

}  // namespace lumen::model::text
