#include "model/infer/generate/many_draft.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "model/infer/generate/answer.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kSoon = 8;  // most tokens to compute before a proposal; more are computed in chunks, like a prompt
constexpr int64_t kLongestMatch = 16;  // tokens compared at the end of the output and in the prediction
constexpr int64_t kShortestMatch = 2;
constexpr int64_t kLookAround = 8192;  // tokens searched before and after the last match

}  // namespace

std::vector<std::vector<text::TokenId>> ManyLookUpDraft::propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<text::TokenId>> out;
  LookUpDraft one;
  for (const DraftRequest& request : requests) out.push_back(one.propose(request.tokens, request.most));
  return out;
}

ManyLimits ManyModelDraft::own_limits(const LoadedModel& small, const SessionOptions& options, ManyLimits limits) {
  limits.kept = 0;
  limits.drafted += kSoon;  // it rolls back computed and proposed tokens
  limits.rows = limits.sequences;
  const int64_t own = many_limits(small, session_options(small.model(), options), {}).longest;
  limits.longest = limits.longest > 0 ? std::min(limits.longest, own) : own;
  return limits;
}

ManyModelDraft::ManyModelDraft(const LoadedModel& small, SessionOptions options, ManyLimits limits,
                               std::vector<text::TokenId> forbidden)
    : limits_(own_limits(small, options, limits)),
      chunk_(options.chunk),
      session_(small, std::move(options), limits_),
      forbidden_(std::move(forbidden)) {
  std::sort(forbidden_.begin(), forbidden_.end());
}

void ManyModelDraft::forget(uint64_t sequence) {
  const auto at = sequences_.find(sequence);
  if (at == sequences_.end()) return;
  session_.close(at->second);
  sequences_.erase(at);
}

// The session's sequence for the request; a new one shares the longest prefix with another one. -1 if too many are
// open.
int ManyModelDraft::sequence_of(const DraftRequest& request) {
  if (const auto at = sequences_.find(request.sequence); at != sequences_.end()) return at->second;
  if (std::ssize(sequences_) >= limits_.sequences) return -1;
  std::pair<int64_t, int> best{0, -1};
  for (const auto& [name, other] : sequences_) {
    const std::vector<text::TokenId>& theirs = session_.tokens(other);
    const auto same = std::mismatch(request.tokens.begin(), request.tokens.end() - 1, theirs.begin(), theirs.end());
    const int64_t count = same.first - request.tokens.begin();
    if (count > best.first) best = {count, other};
  }
  const int own = session_.open();
  sequences_[request.sequence] = own;
  if (best.second >= 0) (void)session_.share(best.second, own, best.first);
  return own;
}

// The state at which a request's proposal starts; nullopt if nothing is proposed this time.
std::optional<ManyModelDraft::At> ManyModelDraft::begin(size_t number, const DraftRequest& request, bool* may_read) {
  const auto size = std::ssize(request.tokens);
  const int64_t most = std::min(request.most, limits_.longest - size);
  if (most < 1) return std::nullopt;
  const int sequence = sequence_of(request);
  if (sequence < 0) return std::nullopt;
  const std::vector<text::TokenId>& had = session_.tokens(sequence);
  const auto same = std::mismatch(request.tokens.begin(), request.tokens.end() - 1, had.begin(), had.end());
  const int64_t kept = session_.rewind(sequence, same.first - request.tokens.begin());
  session_.settle(sequence, kept);
  const std::span<const text::TokenId> left = request.tokens.subspan(kept);
  if (session_.missing_pages(sequence, std::ssize(left) + most) > session_.free_pages()) {
    forget(request.sequence);
    return std::nullopt;
  }
  if (std::ssize(left) <= kSoon) return At{number, sequence, {left.begin(), left.end()}, most};
  if (!*may_read) return std::nullopt;
  *may_read = false;
  const ManySession::Part some{sequence, left.first(std::min<int64_t>(chunk_, std::ssize(left) - 1))};
  (void)session_.feed_rows({&some, 1}, {});
  return std::nullopt;
}

text::TokenId ManyModelDraft::likeliest(const LogitRow& row) const {
  const std::span<const float> logits = row.whole();
  text::TokenId best = -1;
  float most = -std::numeric_limits<float>::infinity();
  auto barred = forbidden_.begin();
  for (text::TokenId id = 0; id < std::ssize(logits); ++id) {
    for (; barred != forbidden_.end() && *barred < id; ++barred) {
    }
    if (logits[id] <= most || (barred != forbidden_.end() && *barred == id)) continue;
    best = id;
    most = logits[id];
  }
  return best;
}

// Proposes the next token of each sequence, in as many steps as their rows need.
void ManyModelDraft::step(std::vector<At>& at, std::vector<std::vector<text::TokenId>>& out) {
  for (size_t first = 0; first < at.size();) {
    std::vector<ManySession::Part> parts;
    int64_t rows = 0;
    size_t end = first;
    for (; end < at.size(); ++end) {
      const std::vector<text::TokenId>& fed = at[end].fed;
      if (end > first && rows + std::ssize(fed) > session_.rows()) break;
      const auto count = std::min<int64_t>(std::ssize(fed), session_.rows());  // a single sequence may have more
      parts.push_back({at[end].sequence, std::span(fed).first(count)});
      rows += count;
    }
    const std::vector<LogitRow> logits = session_.feed_apart(parts);
    int64_t row = -1;
    for (size_t p = 0; p < parts.size(); ++p) {
      At& one = at[first + p];
      const auto count = std::ssize(parts[p].tokens);
      row += count;
      one.fed.erase(one.fed.begin(), one.fed.begin() + count);
      if (!one.fed.empty()) continue;
      if (!one.is_marked) session_.mark(one.sequence);  // proposals may be rejected
      one.is_marked = true;
      const text::TokenId id = likeliest(logits[row]);
      if (id >= 0) {
        out[one.request].push_back(id);
        one.fed = {id};
      }
      --one.left;
    }
    first = end;
  }
  std::erase_if(at, [](const At& one) { return one.left < 1 || one.fed.empty(); });
}

std::vector<std::vector<text::TokenId>> ManyModelDraft::propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<text::TokenId>> out(requests.size());
  std::vector<At> at;
  int64_t pages = 0;  // pages that earlier requests will take
  bool may_read = true;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::optional<At> one = begin(i, requests[i], &may_read);
    if (!one) continue;
    const int64_t more = session_.missing_pages(one->sequence, std::ssize(one->fed) + one->left);
    if (pages + more > session_.free_pages()) continue;
    pages += more;
    at.push_back(std::move(*one));
  }
  while (!at.empty()) step(at, out);
  return out;
}

std::vector<text::TokenId> ExpectedDraft::propose(std::span<const text::TokenId> tokens, int64_t most) {
  const std::vector<text::TokenId>& expected = *expected_;
  const std::span<const text::TokenId> output = tokens.subspan(std::min<int64_t>(prompt_, std::ssize(tokens)));
  const auto size = std::ssize(output);
  // The match is the start of the prediction, or the place of the longest suffix of the output in it; of several, the
  // first one after the last match.
  std::pair<int64_t, int64_t> best{0, -1};  // number of matching tokens, and the index after them
  const auto is_prefix = [&] {
    return size <= std::ssize(expected) && std::equal(output.begin(), output.end(), expected.begin());
  };
  if (size > 0 && size <= kLongestMatch && is_prefix()) {
    best = {kLongestMatch, size};
  } else {
    const int64_t last = std::min<int64_t>(std::ssize(expected), at_ + kLookAround);
    for (int64_t end = std::max<int64_t>(1, at_ - kLookAround); end <= last; ++end) {
      int64_t same = 0;
      while (same < std::min({end, size, kLongestMatch}) && expected[end - 1 - same] == output[size - 1 - same]) ++same;
      if (same < kShortestMatch || same < best.first) continue;
      if (same > best.first || (best.second <= at_ && end > at_)) best = {same, end};
    }
  }
  if (best.second < 0) return {};
  at_ = best.second;
  const auto count = std::min<int64_t>(most, std::ssize(expected) - at_);
  return {expected.begin() + at_, expected.begin() + at_ + count};
}

int64_t DraftPace::next(int64_t most) {
  if (left_ > 0) {
    --left_;
    return 0;
  }
  return std::min(count_, most);
}

void DraftPace::learn(int64_t drafted, int64_t accepted) {
  if (drafted == 0) return;
  if (accepted == 0) {
    count_ = 1;
    left_ = rest_;
    rest_ = std::min(2 * rest_ + 1, kLongestRest);
    return;
  }
  rest_ = 0;
  count_ = accepted == drafted ? std::min<int64_t>(std::max(count_, 2 * drafted), kMostSequencesAtOnce) : accepted + 1;
}

ManyLimits with_drafts(const DraftOptions& options, ManyLimits limits) {
  limits.drafted = options.most;
  if (options.is_on()) limits.rows = std::min<int64_t>(kMostSequencesAtOnce, limits.sequences * (1 + options.most));
  return limits;
}

SessionOptions draft_session(const DraftOptions& options, SessionOptions session) {
  if (session.context == 0) session.context = options.model->model().integer("context");
  session.narrow = Narrow::never;  // proposals do not use a sampler
  return session;
}

std::unique_ptr<ManyDraft> make_draft(const DraftOptions& options, const SessionOptions& session, ManyLimits limits) {
  if (options.look_up) return std::make_unique<ManyLookUpDraft>();
  if (!options.model) return nullptr;
  const arch::Model& small = options.model->model();
  return std::make_unique<ManyModelDraft>(*options.model, draft_session(options, session), limits,
                                          never_drawn(*small.tokenizer, small.integer("vocab"), false));
}

}  // namespace lumen::model::infer
