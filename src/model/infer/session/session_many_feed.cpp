// Feeds tokens to sequences and returns rows of logits.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "model/infer/narrowing/step_rows.h"
#include "model/infer/session/finite.h"
#include "model/infer/session/session_many.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kMostScored = 64;  // tokens whose logits are returned by one step

}  // namespace

// Logits of a range of a step's rows.
std::vector<float> ManySession::rows_of(const Program& p, int64_t first, int64_t count) {
  const int64_t vocab = loaded_.model().integer("vocab");
  const run::DeviceTensorRef all = p.program->result(arch::kResult);
  const graph::Type type{{graph::Dim(count), graph::Dim(vocab)}, all->type().element};
  const run::DeviceTensor some(loaded_.engine().device(), type, all, static_cast<float*>(all->data()) + first * vocab);
  std::vector<float> rows(count * vocab);
  some.download(rows.data(), some.bytes());
  require_finite(loaded_, rows, "logits");
  return rows;
}

std::vector<LogitRow> ManySession::narrowed_rows(const Program& p, std::span<const Asked> asked) {
  const size_t width = plan_.narrowing->width();
  std::vector<float> values(p.shape.rows() * width);
  p.program->result(Narrowing::kNarrowed)->download(values.data(), values.size() * sizeof(float));
  std::vector<std::optional<Narrowed>> read(asked.size());
  parallel_for(0, std::ssize(asked), {.grain = 1, .is_worth = asked.size() > 1}, [&](int64_t i) {
    read[i] = plan_.narrowing->read(std::span<const float>(values).subspan(i * width, width), asked[i]);
  });
  const auto source = std::make_shared<StepRows>(p.program->result(arch::kResult), *further_,
                                                 [this, &p](int64_t row) { return rows_of(p, row, 1); });
  std::vector<LogitRow> rows;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (std::optional<Narrowed>& narrowed = read[i]) {
      rows.emplace_back(std::move(*narrowed), source, int64_t(i));
    } else {
      rows.emplace_back(rows_of(p, i, 1));
    }
  }
  return rows;
}

std::vector<LogitRow> ManySession::rows_behind(const Program& p, int64_t count, std::span<const Asked> asked) {
  if (plan_.narrowing && !asked.empty()) return narrowed_rows(p, asked);
  const auto all = std::make_shared<const std::vector<float>>(rows_of(p, 0, count));
  const size_t vocab = all->size() / count;
  std::vector<LogitRow> rows;
  for (int64_t i = 0; i < count; ++i) rows.emplace_back(all, i * vocab, vocab);
  return rows;
}

// Error if there are too few free pages.
void ManySession::check(std::span<const Part> parts) const {
  int64_t missing = 0, tokens = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    LUMEN_CHECK(sequences_.at(parts[p].sequence).is_open, "no sequence {}", parts[p].sequence);
    LUMEN_CHECK(!parts[p].tokens.empty());
    check_tokens(loaded_, parts[p].tokens);
    for (size_t before = 0; before < p; ++before)
      LUMEN_CHECK(parts[before].sequence != parts[p].sequence, "sequence {} is given twice", parts[p].sequence);
    const auto count = std::ssize(parts[p].tokens);
    if (length(parts[p].sequence) + count > limits_.longest)
      throw Error(Exit::user,
                  fmt::format("a sequence would have {} tokens, but the context holds {}",
                              length(parts[p].sequence) + count, limits_.longest),
                  "shorten it, or raise --ctx-size");
    missing += missing_pages(parts[p].sequence, count);
    tokens += count;
  }
  if (missing > free_pages()) {
    throw Error(Exit::user,
                fmt::format("{} tokens need {} pages of {} tokens, and {} are free", tokens, missing, page_size(),
                            free_pages()),
                "close sequences, or raise --ctx-size");
  }
}

std::vector<std::vector<float>> ManySession::feed(std::span<const Part> parts) {
  std::vector<std::vector<float>> out;
  for (const LogitRow& row : feed_rows(parts, {})) out.emplace_back(row.whole().begin(), row.whole().end());
  return out;
}

// The same in steps of one width, each filled with tokens of one part after another.
std::vector<LogitRow> ManySession::feed_fixed(std::span<const Part> parts, std::span<const Asked> asked) {
  std::vector<LogitRow> out(parts.size());
  std::vector<size_t> read(parts.size(), 0);
  for (size_t first = 0; first < parts.size();) {
    std::vector<Part> some;
    std::vector<Asked> of_some;
    std::vector<size_t> numbers;  // of the parts that end in this step
    int64_t room = limits_.fixed;
    for (size_t p = first; p < parts.size() && room > 0 && std::ssize(numbers) < limits_.rows; ++p) {
      const std::span<const text::TokenId> left = parts[p].tokens.subspan(read[p]);
      const size_t count = std::min<size_t>(left.size(), room);
      some.push_back({parts[p].sequence, left.first(count), count == left.size()});
      read[p] += count;
      room -= int64_t(count);
      if (!some.back().is_asked) continue;
      numbers.push_back(p);
      if (!asked.empty()) of_some.push_back(asked[p]);
    }
    while (first < parts.size() && read[first] == parts[first].tokens.size()) ++first;
    const Program& step = run(shape_for(limits_.fixed, 1, true), some, of_some, true);
    for (const Part& p : some) settle(p.sequence, length(p.sequence));
    if (numbers.empty()) continue;
    // The next step overwrites rows that have not been copied yet.
    const bool is_last = first == parts.size();
    std::vector<LogitRow> rows = rows_behind(step, std::ssize(numbers), is_last ? of_some : std::span<const Asked>());
    for (size_t i = 0; i < numbers.size(); ++i) out[numbers[i]] = std::move(rows[i]);
  }
  return out;
}

std::vector<LogitRow> ManySession::feed_rows(std::span<const Part> parts, std::span<const Asked> asked) {
  LUMEN_CHECK(asked.empty() || asked.size() == parts.size());
  check(parts);
  catch_up(parts);
  if (limits_.fixed > 0) return feed_fixed(parts, asked);
  std::vector<LogitRow> rows(parts.size());
  std::vector<Part> singles;
  std::vector<Asked> of_singles;
  std::vector<size_t> wanted;
  const auto chunks = std::count_if(parts.begin(), parts.end(), [](const Part& p) { return p.tokens.size() > 1; });
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::span<const Asked> own = asked.empty() ? asked : asked.subspan(p, 1);
    if (parts[p].tokens.size() == 1) {
      singles.push_back(parts[p]);
      of_singles.insert(of_singles.end(), own.begin(), own.end());
      wanted.push_back(p);
      continue;
    }
    for (std::span<const text::TokenId> left = parts[p].tokens; !left.empty();) {
      const size_t count = std::min(left.size(), static_cast<size_t>(options_.chunk));
      const Part chunk{parts[p].sequence, left.first(count)};
      left = left.subspan(count);
      const Program& step = run(shape_for(1, chunk.tokens.size()), {&chunk, 1}, own);
      if (!left.empty()) continue;
      // The step of another prompt would overwrite a row that has not been copied yet.
      const bool can = plan_.narrowing && !own.empty() && chunks == 1;
      rows[p] = can ? narrowed_rows(step, own).at(0) : LogitRow(rows_of(step, 0, 1));
    }
  }
  if (singles.empty()) return rows;
  const Program& step = run(shape_for(singles.size(), 1), singles, of_singles);
  std::vector<LogitRow> some = rows_behind(step, std::ssize(singles), of_singles);
  for (size_t i = 0; i < wanted.size(); ++i) rows[wanted[i]] = std::move(some[i]);
  return rows;
}

std::vector<LogitRow> ManySession::feed_apart(std::span<const Part> parts, std::span<const Asked> asked) {
  LUMEN_CHECK(!parts.empty() && (asked.empty() || asked.size() == parts.size()));
  check(parts);
  catch_up(parts);
  if (is_recurrent() && std::ranges::any_of(parts, [](const Part& p) { return p.tokens.size() > 1; }))
    return feed_in_turn(parts);
  std::vector<Asked> of_rows;
  int64_t count = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    count += std::ssize(parts[p].tokens);
    if (asked.empty()) continue;
    // A sequence draws from its rows one after another.
    for (size_t n = 0; n < parts[p].tokens.size(); ++n) of_rows.emplace_back(asked[p]).number += n;
  }
  LUMEN_CHECK(count <= rows(), "{} rows, but a step has {}", count, rows());
  const Program& step = run(shape_for(count, 1, limits_.fixed > 0), parts, of_rows, true, true);
  return rows_behind(step, count, of_rows);
}

std::vector<LogitRow> ManySession::feed_mixed(std::span<const Part> parts, std::span<const Asked> asked) {
  const auto count = std::ranges::count_if(parts, [](const Part& p) { return p.is_asked; });
  LUMEN_CHECK(count == std::ssize(asked) && count <= limits_.sequences);
  check(parts);
  int64_t tokens = 0;
  for (const Part& p : parts) tokens += std::ssize(p.tokens);
  LUMEN_CHECK(tokens <= most_mixed(), "{} tokens, but a step has {}", tokens, most_mixed());
  const Program& step = run(shape_for(tokens, 1, true), parts, asked, true);
  for (const Part& p : parts) settle(p.sequence, length(p.sequence));
  return count == 0 ? std::vector<LogitRow>() : rows_behind(step, count, asked);
}

void ManySession::settle(int number, int64_t length) {
  Sequence& t = sequence(number);
  LUMEN_CHECK(length <= std::ssize(t.tokens));
  if (is_recurrent() && length < std::ssize(t.tokens)) {
    // The tokens between the mark and `length` are computed again before the next ones.
    const std::vector<text::TokenId> accepted(t.tokens.begin(), t.tokens.begin() + length);
    (void)rewind(number, length);
    t.tokens = accepted;
  } else {
    const int64_t kept = rewind(number, length);
    LUMEN_CHECK(kept == length, "sequence {} cannot be rolled back to {} tokens", number, length);
  }
  for (size_t c = 0; c < caches_.size(); ++c) t.tables[c].forget(caches_[c].pool, t.computed);
}

// Computes tokens of these sequences again that settle() has taken out of recurrent states.
void ManySession::catch_up(std::span<const Part> parts) {
  for (const Part& part : parts) {
    Sequence& t = sequence(part.sequence);
    if (t.computed == std::ssize(t.tokens)) continue;
    const std::vector<text::TokenId> missing(t.tokens.begin() + t.computed, t.tokens.end());
    t.tokens.resize(t.computed);
    for (size_t c = 0; c < caches_.size(); ++c) t.tables[c].shorten(caches_[c].pool, t.computed);
    for (std::span<const text::TokenId> left = missing; !left.empty();) {
      const Part chunk{part.sequence, left.first(std::min<size_t>(left.size(), options_.chunk))};
      left = left.subspan(chunk.tokens.size());
      (void)run(shape_for(1, std::ssize(chunk.tokens)), {&chunk, 1});
    }
  }
}

// feed_apart where a step's rows cannot be tokens of one sequence, because each changes the recurrent states that the
// next one reads: a step for each part of several tokens, and one for all other parts.
std::vector<LogitRow> ManySession::feed_in_turn(std::span<const Part> parts) {
  const size_t vocab = loaded_.model().integer("vocab");
  std::vector<std::vector<LogitRow>> rows(parts.size());
  const auto take = [&](size_t part, std::vector<float> values) {
    const auto all = std::make_shared<const std::vector<float>>(std::move(values));
    for (size_t at = 0; at < all->size(); at += vocab) rows[part].emplace_back(all, at, vocab);
  };
  std::vector<Part> singles;
  std::vector<size_t> of_singles;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].tokens.size() == 1) {
      singles.push_back(parts[p]);
      of_singles.push_back(p);
      continue;
    }
    mark(parts[p].sequence);
    for (std::span<const text::TokenId> left = parts[p].tokens; !left.empty();) {
      const int64_t wide = wide_widths(options_, std::min<int64_t>(std::ssize(left), kMostScored)).back();
      const Part some{parts[p].sequence, left.first(std::min<size_t>(left.size(), wide))};
      left = left.subspan(some.tokens.size());
      take(p, rows_of(run({1, wide, true}, {&some, 1}), 0, std::ssize(some.tokens)));
    }
  }
  if (!singles.empty()) {
    const std::vector<float> values = rows_of(run(shape_for(std::ssize(singles), 1), singles), 0, std::ssize(singles));
    for (size_t i = 0; i < singles.size(); ++i)
      take(of_singles[i], {values.begin() + int64_t(i * vocab), values.begin() + int64_t((i + 1) * vocab)});
  }
  std::vector<LogitRow> out;
  for (std::vector<LogitRow>& some : rows) std::ranges::move(some, std::back_inserter(out));
  return out;
}

void ManySession::feed_all(int number, std::span<const text::TokenId> tokens,
                           const std::function<void(std::span<const float>)>& see) {
  const Part whole{number, tokens};
  check({&whole, 1});
  catch_up({&whole, 1});
  const size_t vocab = loaded_.model().integer("vocab");
  const bool is_fixed = limits_.fixed > 0;
  while (!tokens.empty()) {
    const int64_t wide =
        is_fixed ? limits_.rows : wide_widths(options_, std::min<int64_t>(tokens.size(), kMostScored)).back();
    const Part some{number, tokens.first(std::min<size_t>(tokens.size(), wide))};
    tokens = tokens.subspan(some.tokens.size());
    const Shape shape = is_fixed ? shape_for(limits_.fixed, 1, true) : Shape{1, wide, true};
    const std::vector<float> rows = rows_of(run(shape, {&some, 1}, {}, is_fixed, is_fixed), 0, std::ssize(some.tokens));
    if (is_fixed) settle(number, length(number));
    for (size_t at = 0; at < rows.size(); at += vocab) see(std::span(rows).subspan(at, vocab));
  }
}

}  // namespace lumen::model::infer
