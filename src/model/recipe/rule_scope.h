// Conditions on the model for a [[quantize]] rule, as mixtures need them. Written as `model = { layers = 80, tied =
// true }`; every given key must hold. Proved by tests/model/compress/mixture_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "model/arch/model.h"

namespace lumen::model::recipe {

struct RuleScope {
  std::vector<std::string> architectures;  // of GGUF files
  std::optional<bool> tied;                // tied embeddings: the embedding is the output matrix, too
  int64_t queries_per_key = 0;             // minimum ratio of query heads to key/value heads
  std::map<std::string, int64_t> values;   // any other key: a value of the model's config; a missing one is 0
  std::map<std::string, int64_t> least;    // written KEY_at_least: minimum values

  bool holds(const arch::Model& model) const;
  bool everywhere() const;
  std::string text() const;  // "{ tied = true, layers = 80 }", which read() parses back
  static RuleScope read(const Toml& table);
};

}  // namespace lumen::model::recipe
