// Grammars of requests, parsed once for all requests with the same text, with the states that their outputs have got to
// and the tokens that these allow. For several threads. Proved by
// tests/model/infer/generate/constraint_cache_test.cpp.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "model/infer/generate/answer.h"

namespace lumen::model::infer {

class ConstraintCache {
 public:
  static constexpr int64_t kMostBytes = int64_t{256} << 20;
  // `most`: bytes of the grammars and their states; those that were used least recently are dropped.
  explicit ConstraintCache(int64_t most = kMostBytes) : most_(most) {}

  // Error if `text` is not a valid grammar.
  std::shared_ptr<const Constraint> get(const text::Tokenizer& tokenizer, const std::string& text,
                                        const std::shared_ptr<const TokenStrings>& tokens);
  int64_t bytes() const;
  int64_t size() const;  // number of grammars

 private:
  struct Entry {
    std::string text;
    std::shared_ptr<const Constraint> constraint;
  };
  std::shared_ptr<const Constraint> find(const std::string& text, const TokenStrings* tokens);
  static int64_t bytes_of(const Entry& entry);

  int64_t most_;
  mutable std::mutex mutex_;  // of what follows
  std::list<Entry> entries_;  // the latest first
};

}  // namespace lumen::model::infer
