// Pre-tokenization: splits a text into words by a chain of steps, each of which refines the pieces of the previous one,
// as the pre-tokenizers of tokenizer.json do. Every piece is matched alone, so look-ahead ends at its end. Runs of
// invalid UTF-8 are separate pieces. A pattern that takes too long ends in an Error. Proved by
// tests/model/text/tokenizer_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model::text {

// How a match is treated; gaps between matches are always pieces (unless removed by `invert`).
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  enum class Kind {
    pattern,       // split by matches of a regular expression
    literal,       // split by occurrences of a string
    prefix_space,  // adds a leading ' ' to pieces without one
    metaspace,     // spaces become `pattern`, which is also prepended to pieces without it; then splits before each
    alphabet,      // bytes become characters of the byte-level alphabet
    fixed_length,  // pieces of `length` characters
  } kind = Kind::pattern;
  std::string pattern = {};
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;                                                    // swaps the roles of gaps and matches
  enum class Prepend { always, first, never } prepend = Prepend::always;  // metaspace; first: at the start of the text
  bool cut = true;                                                        // metaspace
  size_t length = 0;                                                      // fixed_length
  friend bool operator==(const SplitStep&, const SplitStep&) = default;
};

// Whether two chains split every text at the same places, however their patterns are written; false when undecided.
bool same_cuts(const std::vector<SplitStep>& a, const std::vector<SplitStep>& b);

class Splitter {
 public:
  // A non-owning reference to a callable, valid for the time of a call.
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

  // Calls `emit` for every non-empty piece, in order. `first`: `text` is the start of the encoded input.
  void split(std::string_view text, const Emit& emit, bool first = true) const;
  const std::vector<SplitStep>& steps() const { return steps_; }

 private:
  // `joined`: the piece continues a word after invalid UTF-8; nothing is prepended to it.
  void run(size_t step, std::string_view piece, bool first, bool joined, const Emit& emit) const;

  std::vector<SplitStep> steps_;
  std::vector<std::shared_ptr<const Pattern>> patterns_;  // null where a step has none
};

}  // namespace lumen::model::text
