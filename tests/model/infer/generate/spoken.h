// A tiny model with a tokenizer of eleven characters, for sequences that are generated together.
#pragma once

#include "tests/model/tiny.h"

namespace lumen::model::infer {

inline arch::Model spoken(uint32_t seed = 1) {
  arch::Model m = tiny_model(seed);
  m.config["context"] = 64;
  m.tokenizer = text::Tokenizer::characters("abcdefghij ");
  return m;
}

}  // namespace lumen::model::infer
