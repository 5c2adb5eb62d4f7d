// Cutting a text into words before the vocabulary sees it: a chain of steps, each refining the pieces of the one
// before, as the pre-tokenizers of tokenizer.json do. Every piece of a step is matched alone, so look-ahead ends at its
// border. Bytes that are no UTF-8 are pieces of their own. A pattern that runs away ends in an Error. Proved by
// tests/model/text/tokenizer_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model {

// What becomes of a match; gaps between matches are always pieces (unless removed by `invert`).
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  enum class Kind {
    pattern,       // cut by matches of a regular expression
    literal,       // cut by occurrences of a text
    prefix_space,  // put ' ' before every piece without
    metaspace,     // spaces become `pattern`, which is also put before pieces without; then cut before each
    alphabet,      // bytes become characters of the byte-level alphabet
    fixed_length,  // cut into `length` characters
  } kind = Kind::pattern;
  std::string pattern = {};
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;                                                    // gaps count as matches and matches as gaps
  enum class Prepend { always, first, never } prepend = Prepend::always;  // metaspace; first: where the text begins
  bool cut = true;                                                        // metaspace
  size_t length = 0;                                                      // fixed_length
  friend bool operator==(const SplitStep&, const SplitStep&) = default;
};

// Whether two chains of steps cut every text at the same places, however their patterns are written; false where that
// cannot be told.
bool same_cuts(const std::vector<SplitStep>& a, const std::vector<SplitStep>& b);

class Splitter {
 public:
  // Something callable with a piece; refers to it only, for the time of a call.
  class Emit {
   public:
    template <typename F, typename = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, Emit>>>
    Emit(const F& f)  // NOLINT: made from any callable
        : object_(&f), call_([](const void* o, std::string_view piece, bool first) {
            if constexpr (std::is_invocable_v<const F&, std::string_view, bool>) {
              (*static_cast<const F*>(o))(piece, first);
            } else {
              (*static_cast<const F*>(o))(piece);
            }
          }) {}
    void operator()(std::string_view piece, bool first) const { call_(object_, piece, first); }

   private:
    const void* object_;
    void (*call_)(const void*, std::string_view, bool);
  };

  Splitter() = default;
  // Error when a pattern does not compile; `where` names its origin.
  Splitter(std::vector<SplitStep> steps, const std::string& where);

  // Calls `emit` for every non-empty piece, in order. `first`: the text is the beginning of what was asked for.
  void split(std::string_view text, const Emit& emit, bool first = true) const;
  const std::vector<SplitStep>& steps() const { return steps_; }

 private:
  // `joined`: the piece continues a word behind bytes that are no UTF-8; nothing is put in front of it.
  void run(size_t step, std::string_view piece, bool first, bool joined, const Emit& emit) const;

  std::vector<SplitStep> steps_;
  std::vector<std::shared_ptr<const Pattern>> patterns_;  // null where a step has none
};

}  // namespace lumen::model
