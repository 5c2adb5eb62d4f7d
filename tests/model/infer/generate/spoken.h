// A tiny model with a tokenizer of eleven characters, for sequences that are generated together.
#pragma once

#include "tests/model/tiny.h"

namespace lumen::model {

inline Model spoken(uint32_t seed = 1) {
  Model m = tiny_model(seed);
  m.config["context"] = 64;
  m.tokenizer = Tokenizer::characters("abcdefghij ");
  return m;
}

}  // namespace lumen::model
