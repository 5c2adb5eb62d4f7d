#include "model/text/stages/split.h"

#include <algorithm>

#include "base/error.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

// Turns alternating gaps and matches into pieces.
class Joiner {
 public:
  template <typename Put>
  static void segment(Joiner& j, SplitBehavior behavior, size_t begin, size_t end, bool match, const Put& put) {
    if (begin == end) return;
    switch (behavior) {
      case SplitBehavior::isolated:
        put(begin, end);
        break;
      case SplitBehavior::removed:
        if (!match) put(begin, end);
        break;
      case SplitBehavior::contiguous:
        if (j.open_ && match == j.open_match_) {
          j.held_.end = end;
        } else {
          flush(j, put);
          j.hold(begin, end, match);
        }
        break;
      case SplitBehavior::merged_with_previous:
        if (match && j.open_ && !j.open_match_) {
          j.held_.end = end;
          flush(j, put);
        } else {
          flush(j, put);
          j.hold(begin, end, match);
        }
        break;
      case SplitBehavior::merged_with_next:
        if (!match && j.open_ && j.open_match_) {
          j.held_.end = end;
          flush(j, put);
        } else {
          flush(j, put);
          j.hold(begin, end, match);
        }
        break;
    }
  }

  template <typename Put>
  static void flush(Joiner& j, const Put& put) {
    if (j.open_) put(j.held_.begin, j.held_.end);
    j.open_ = false;
  }

 private:
  void hold(size_t begin, size_t end, bool match) {
    held_ = {begin, end};
    open_ = true;
    open_match_ = match;
  }

  Match held_;
  bool open_ = false, open_match_ = false;
};

std::string replace_spaces(std::string_view text, std::string_view by) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      out += by;
    } else {
      out += c;
    }
  }
  return out;
}

// The pattern of a step that splits at both ends of each match and drops nothing; else null.
const std::string* isolated_pattern(const SplitStep& s) {
  if (s.kind != SplitStep::Kind::pattern) return nullptr;
  const bool all_kept = s.behavior == SplitBehavior::isolated || (s.behavior == SplitBehavior::removed && s.invert &&
                                                                  leaves_no_gaps(s.pattern));  // only gaps are dropped
  return all_kept ? &s.pattern : nullptr;
}

}  // namespace

bool same_cuts(const std::vector<SplitStep>& a, const std::vector<SplitStep>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const SplitStep& x, const SplitStep& y) {
    if (x == y) return true;
    const std::string *p = isolated_pattern(x), *q = isolated_pattern(y);
    return p && q && same_matches(*p, *q);
  });
}

Splitter::Splitter(std::vector<SplitStep> steps, const std::string& where) : steps_(std::move(steps)) {
  for (const SplitStep& step : steps_) {
    std::shared_ptr<const Pattern> pattern;
    if (step.kind == SplitStep::Kind::pattern) pattern = std::make_shared<Pattern>(step.pattern, where);
    if (step.kind == SplitStep::Kind::literal || step.kind == SplitStep::Kind::metaspace)
      pattern = std::make_shared<Pattern>(Pattern::literal(step.pattern));
    if (step.kind == SplitStep::Kind::fixed_length && step.length == 0)
      throw user_error("{}: pieces of a fixed length need a length above 0", where);
    patterns_.push_back(std::move(pattern));
  }
}

void Splitter::split(std::string_view text, const Emit& emit, bool first) const {
  const bool alphabet =
      std::any_of(steps_.begin(), steps_.end(), [](const SplitStep& s) { return s.kind == SplitStep::Kind::alphabet; });
  for (size_t at = 0; at < text.size();) {
    const size_t valid = utf8_valid_run(text, at);
    if (valid != 0) run(0, text.substr(at, valid), first && at == 0, at != 0, emit);
    at += valid;
    if (at == text.size()) break;
    const size_t invalid = utf8_invalid_run(text, at);
    const std::string_view bytes = text.substr(at, invalid);
    if (alphabet) {
      emit(to_alphabet(bytes), false);
    } else {
      emit(bytes, false);
    }
    at += invalid;
  }
}

void Splitter::run(size_t step, std::string_view piece, bool first, bool joined, const Emit& emit) const {
  if (step == steps_.size()) {
    emit(piece, first);
    return;
  }
  const SplitStep& s = steps_[step];
  SplitBehavior behavior = s.behavior;
  bool invert = s.invert;
  std::string changed;
  switch (s.kind) {
    case SplitStep::Kind::pattern:
    case SplitStep::Kind::literal:
      break;
    case SplitStep::Kind::prefix_space:
      if (joined || piece.starts_with(' ')) return run(step + 1, piece, first, joined, emit);
      return run(step + 1, " " + std::string(piece), first, false, emit);
    case SplitStep::Kind::alphabet:
      return run(step + 1, to_alphabet(piece), first, joined, emit);
    case SplitStep::Kind::fixed_length:
      for (size_t at = 0; at < piece.size();) {
        const size_t begin = at;
        char32_t c;
        for (size_t n = 0; n < s.length && at < piece.size(); ++n) at += utf8_char(piece, at, &c);
        run(step + 1, piece.substr(begin, at - begin), first && begin == 0, joined && begin == 0, emit);
      }
      return;
    case SplitStep::Kind::metaspace: {
      changed = replace_spaces(piece, s.pattern);
      const bool wanted = s.prepend == SplitStep::Prepend::always || (s.prepend == SplitStep::Prepend::first && first);
      if (wanted && !joined && !changed.starts_with(s.pattern)) changed.insert(0, s.pattern);
      piece = changed;
      if (!s.cut) return run(step + 1, piece, first, joined, emit);
      behavior = SplitBehavior::merged_with_next;
      invert = false;
      break;
    }
  }
  const bool last = step + 1 == steps_.size();
  const auto put = [&](size_t begin, size_t end) {
    const std::string_view part = piece.substr(begin, end - begin);
    if (last) {
      emit(part, first && begin == 0);
    } else {
      run(step + 1, part, first && begin == 0, joined && begin == 0, emit);
    }
  };
  const Pattern& pattern = *patterns_[step];
  Joiner joiner;
  Match match;
  uint64_t work = 0;
  size_t end = 0;
  while (pattern.find(piece, end, &match, &work)) {
    Joiner::segment(joiner, behavior, end, match.begin, invert, put);
    Joiner::segment(joiner, behavior, match.begin, match.end, !invert, put);
    end = match.end;
  }
  Joiner::segment(joiner, behavior, end, piece.size(), invert, put);
  Joiner::flush(joiner, put);
}

}  // namespace lumen::model::text
