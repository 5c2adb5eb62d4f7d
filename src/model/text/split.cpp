#include "model/text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "base/error.h"
#include "model/text/unicode.h"

namespace lumen::model {

struct Splitter::Pattern {
  pcre2_code* code = nullptr;
  std::string text;

  Pattern(const SplitStep& step, const std::string& where) : text(step.pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    // Multi-line as in the dialect the patterns were written for: $ also matches before a newline.
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    if (step.kind == SplitStep::Kind::literal) options = PCRE2_UTF | PCRE2_LITERAL;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &error, &offset, nullptr);
    if (!code) {
      PCRE2_UCHAR message[160];
      pcre2_get_error_message(error, message, sizeof message);
      throw user_error("{}: pattern '{}', character {}: {}", where, text.substr(0, 200), offset,
                       reinterpret_cast<const char*>(message));
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where JIT is missing, matching interprets
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() { pcre2_code_free(code); }
};

namespace {

// Limits and stack of matching; one per thread.
struct MatchContext {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 4 * 1024 * 1024, nullptr);

  MatchContext() {
    LUMEN_CHECK(context != nullptr);
    pcre2_set_match_limit(context, 50'000'000);
    pcre2_set_heap_limit(context, 256 * 1024);  // KiB
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchContext(const MatchContext&) = delete;
  MatchContext& operator=(const MatchContext&) = delete;
  ~MatchContext() {
    if (stack) pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
  }
};

struct Range {
  size_t begin = 0, end = 0;
};

// Matches of one pattern in one text, one after another. The text is valid UTF-8 and known to be, so it is not checked
// again at every match (which would take quadratic time).
class Matches {
 public:
  Matches(const pcre2_code* code, std::string_view text, const std::string& pattern)
      : code_(code), text_(text), pattern_(pattern), data_(pcre2_match_data_create(1, nullptr)) {
    LUMEN_CHECK(data_ != nullptr);
  }
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;
  ~Matches() { pcre2_match_data_free(data_); }

  // The next non-empty match.
  bool next(Range* out) {
    static thread_local MatchContext limits;
    while (at_ <= text_.size()) {
      int found = match(PCRE2_NO_UTF_CHECK, limits.context);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, limits.context);
      if (found == PCRE2_ERROR_NOMATCH) return false;
      if (found < 0)
        throw user_error(
            "splitting the text with the tokenizer's pattern '{}' takes too long or too much memory at byte {}",
            pattern_.substr(0, 200), at_);
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_);
      if (ends[1] > ends[0] && ends[0] >= at_) {  // \K could move the start back
        *out = {ends[0], ends[1]};
        at_ = ends[1];
        return true;
      }
      char32_t c;
      const size_t from = std::max<size_t>(at_, ends[1]);
      at_ = from + std::max<size_t>(1, from < text_.size() ? utf8_char(text_, from, &c) : 1);
    }
    return false;
  }

 private:
  int match(uint32_t options, pcre2_match_context* context) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at_, options, data_, context);
  }

  const pcre2_code* code_;
  std::string_view text_;
  const std::string& pattern_;
  pcre2_match_data* data_;
  size_t at_ = 0;
};

// Turns the alternation of gaps and matches into pieces.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, std::string_view text, const Splitter::Emit& emit)
      : behavior_(behavior), text_(text), emit_(emit) {}

  void segment(size_t begin, size_t end, bool match) {
    if (begin == end) return;
    switch (behavior_) {
      case SplitBehavior::isolated:
        put(begin, end);
        break;
      case SplitBehavior::removed:
        if (!match) put(begin, end);
        break;
      case SplitBehavior::contiguous:
        if (open_ && match == open_match_) {
          held_.end = end;
        } else {
          flush();
          hold(begin, end, match);
        }
        break;
      case SplitBehavior::merged_with_previous:
        if (match && open_ && !open_match_) {
          held_.end = end;
          flush();
        } else {
          flush();
          hold(begin, end, match);
        }
        break;
      case SplitBehavior::merged_with_next:
        if (!match && open_ && open_match_) {
          held_.end = end;
          flush();
        } else {
          flush();
          hold(begin, end, match);
        }
        break;
    }
  }

  void flush() {
    if (open_) put(held_.begin, held_.end);
    open_ = false;
  }

 private:
  void hold(size_t begin, size_t end, bool match) {
    held_ = {begin, end};
    open_ = true;
    open_match_ = match;
  }
  void put(size_t begin, size_t end) { emit_(text_.substr(begin, end - begin)); }

  SplitBehavior behavior_;
  std::string_view text_;
  const Splitter::Emit& emit_;
  Range held_;
  bool open_ = false, open_match_ = false;
};

}  // namespace

Splitter::Splitter(std::vector<SplitStep> steps, const std::string& where) : steps_(std::move(steps)) {
  for (const SplitStep& step : steps_) {
    patterns_.push_back(step.kind == SplitStep::Kind::prefix_space ? nullptr : std::make_shared<Pattern>(step, where));
  }
}

void Splitter::split(std::string_view text, const Emit& emit) const {
  for (size_t at = 0; at < text.size();) {
    const size_t valid = utf8_valid_run(text, at);
    if (valid != 0) run(0, text.substr(at, valid), emit);
    at += valid;
    const size_t invalid = utf8_invalid_run(text, at);
    if (invalid != 0) emit(text.substr(at, invalid));
    at += invalid;
  }
}

void Splitter::run(size_t step, std::string_view piece, const Emit& emit) const {
  if (step == steps_.size()) {
    emit(piece);
    return;
  }
  const SplitStep& s = steps_[step];
  if (s.kind == SplitStep::Kind::prefix_space) {
    if (piece.starts_with(' ')) return run(step + 1, piece, emit);
    return run(step + 1, " " + std::string(piece), emit);
  }
  const Emit down = [&](std::string_view part) { run(step + 1, part, emit); };
  Joiner joiner(s.behavior, piece, down);
  Matches matches(patterns_[step]->code, piece, patterns_[step]->text);
  Range match;
  size_t end = 0;
  while (matches.next(&match)) {
    joiner.segment(end, match.begin, s.invert);
    joiner.segment(match.begin, match.end, !s.invert);
    end = match.end;
  }
  joiner.segment(end, piece.size(), s.invert);
  joiner.flush();
}

}  // namespace lumen::model
