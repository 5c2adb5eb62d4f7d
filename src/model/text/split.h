// Cutting text into words before the model sees it: a list of steps, each a pattern that splits every piece further.
// Patterns are data; PCRE2 with JIT runs them in UTF mode. Every piece of a step is matched alone, so look-ahead ends
// at its border. Bytes that are no UTF-8 are pieces of their own. A pattern that runs away ends in an Error. Proved by
// tests/model/tokenizer_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model {

// What becomes of a match; gaps between matches are always pieces (unless removed by `invert`).
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  enum class Kind {
    pattern,
    literal,
    prefix_space
  } kind = Kind::pattern;  // prefix_space: put ' ' before every piece without
  std::string pattern = {};
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // gaps count as matches and matches as gaps
  friend bool operator==(const SplitStep&, const SplitStep&) = default;
};

class Splitter {
 public:
  using Emit = std::function<void(std::string_view)>;

  Splitter() = default;
  // Error when a pattern does not compile; `where` names its origin.
  Splitter(std::vector<SplitStep> steps, const std::string& where);

  // Calls `emit` for every non-empty piece, in order.
  void split(std::string_view text, const Emit& emit) const;
  const std::vector<SplitStep>& steps() const { return steps_; }

 private:
  struct Pattern;
  void run(size_t step, std::string_view piece, const Emit& emit) const;

  std::vector<SplitStep> steps_;
  std::vector<std::shared_ptr<const Pattern>> patterns_;  // null where a step has none
};

}  // namespace lumen::model
