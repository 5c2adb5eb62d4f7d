// Grammar-constrained decoding, in GBNF: rules of strings, classes of characters, groups, alternatives and repetitions.
// A grammar works on bytes (characters are compiled to their UTF-8), so tokens with parts of characters need no special
// case. Left recursion is rejected. Proved by tests/model/infer/grammar/grammar_test.cpp.
//
// root  ::= "{" pair ("," pair)* "}" pair  ::= [a-z]+ ":" [0-9]{1,3}      # comment
//
// May include: base, model/infer/sample, model/text/tokenizer, model/text/unicode, model/text/vocabulary.
// Offers: grammar_states.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/tokenizer.h"
#include "model/text/vocabulary/token_trie.h"

namespace lumen::model::infer {

class Grammar {
 public:
  // Error with the position if the text is not a valid grammar; `name` is used in messages.
  static Grammar parse(const std::string& text, const std::string& name = "grammar");

  struct Element {
    enum class Kind : uint8_t { bytes, rule, end } kind = Kind::end;
    uint8_t first = 0, last = 0;  // range of bytes
    uint32_t rule = 0;
  };
  // Alternatives of a rule are indices into elements(); each is a sequence up to an element of kind end.
  const std::vector<std::vector<uint32_t>>& rules() const { return rules_; }
  const std::vector<Element>& elements() const { return elements_; }
  uint32_t root() const { return root_; }

 private:
  class Layout;
  std::vector<bool> empty_rules() const;
  void refuse_left_recursion(const std::string& name) const;

  std::vector<std::vector<uint32_t>> rules_;
  std::vector<Element> elements_;
  uint32_t root_ = 0;
};

// The tokens of a tokenizer by their bytes. Empty tokens, end tokens and control tokens are left out; with `controls`,
// control tokens are included by their names.
text::TokenTrie generation_trie(const text::Tokenizer& tokenizer, std::vector<std::string>* strings,
                                bool controls = false);

}  // namespace lumen::model::infer
