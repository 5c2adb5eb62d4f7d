// What turns one word into tokens. A tokenizer owns one; other kinds of vocabulary are other implementations of this.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lumen::model {

using TokenId = int32_t;

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the tokens of a word. Error when the vocabulary cannot express it.
  virtual void encode(std::string_view word, std::vector<TokenId>& out) const = 0;
};

}  // namespace lumen::model
