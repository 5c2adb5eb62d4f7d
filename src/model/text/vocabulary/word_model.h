// What turns one word into tokens. A tokenizer owns one; each kind of vocabulary is an implementation of this.
#pragma once

#include <cstddef>
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
  // Length of the beginning of `text` whose tokens do not depend on what follows, and the other way round; a long text
  // without words is cut by this.
  virtual size_t independent(std::string_view text) const { return text.size(); }
};

}  // namespace lumen::model
