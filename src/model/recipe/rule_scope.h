// Models a line of [[quantize]] is for, where it is not for all: what mixtures ask about a model before they choose.
// Written as `model = { layers = 80, tied = true }`; every key that is there must hold. Proved by
// tests/model/compress/mixture_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "model/arch/model.h"

namespace lumen::model {

struct RuleScope {
  std::vector<std::string> architectures;  // of GGUF files
  std::optional<bool> tied;                // the embedding is the output matrix, too
  int64_t queries_per_key = 0;             // heads, at least
  std::map<std::string, int64_t> values;   // any other key: a number of the model's config; one that it lacks is 0
  std::map<std::string, int64_t> least;    // written KEY_at_least: that number, or more

  bool holds(const Model& model) const;
  bool everywhere() const;
  std::string text() const;  // "{ tied = true, layers = 80 }", which reads as the same
  static RuleScope read(const Toml& table);
};

}  // namespace lumen::model
