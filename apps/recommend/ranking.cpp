#include <algorithm>
#include <cmath>

#include "apps/recommend/recommend.h"
#include "base/check.h"
#include "base/error.h"

namespace lumen::recommend {
namespace {

constexpr int kDrawnCandidates = 100;
constexpr size_t kUsersAtOnce = 128;
constexpr uint64_t kUserDraws = 0x75736572, kCandidateDraws = 0x63616e64;

std::vector<ItemId> sorted(std::vector<ItemId> items) {
  std::sort(items.begin(), items.end());
  return items;
}

// Counts the candidates with a higher score, and half of those with an equal one.
class Rank {
 public:
  explicit Rank(double answer) : answer_(answer) {}
  void add(double score) { higher_ += score > answer_ ? 1 : score == answer_ ? 0.5 : 0; }
  double value() const { return higher_; }

 private:
  double answer_, higher_ = 0;
};

void add_user(Evaluation& sums, const Split& split, int64_t user, const EvaluationOptions& options,
              std::span<const float> scores) {
  const ItemId answer = split.answer(user, options.test);
  if (!std::all_of(scores.begin() + 1, scores.end(), [](float s) { return std::isfinite(s); }))
    throw Error(Exit::numeric, fmt::format("a score of user {} is not finite", user + 1), "train with a lower rate");
  const std::vector<ItemId> had = sorted(split.seen(user, options.test)), trained = sorted(split.training(user));
  Rank full(scores[answer]), sampled(scores[answer]);
  auto next = had.begin();
  for (ItemId item = 1; item < std::ssize(scores); ++item) {
    while (next != had.end() && *next < item) ++next;
    if (item != answer && (next == had.end() || *next != item)) full.add(scores[item]);
  }
  Draws draws(options.seed, kCandidateDraws, user);
  for (int i = 0; i < kDrawnCandidates; ++i) {
    ItemId item = draw_other(draws, trained, split.all.items());
    for (int tries = 0; item == answer && tries < kDrawnCandidates; ++tries)
      item = draw_other(draws, trained, split.all.items());
    if (item != answer && item != 0) sampled.add(scores[item]);
  }
  add_rank(sums.full, full.value());
  add_rank(sums.sampled, sampled.value());
}

void divide(Quality& q) {
  const double n = std::max<int64_t>(1, q.users);
  for (double* sum : {&q.hit5, &q.hit10, &q.ndcg5, &q.ndcg10}) *sum /= n;
}

Evaluation means(Evaluation sums) {
  divide(sums.full);
  divide(sums.sampled);
  return sums;
}

}  // namespace

void add_rank(Quality& q, double rank) {
  ++q.users;
  const double gain = 1 / std::log2(rank + 2);
  if (rank < 5) {
    q.hit5 += 1;
    q.ndcg5 += gain;
  }
  if (rank < 10) {
    q.hit10 += 1;
    q.ndcg10 += gain;
  }
}

std::vector<int64_t> tested_users(const Split& split, const EvaluationOptions& options) {
  std::vector<int64_t> users = split.tested;
  if (users.empty()) throw user_error("no user has three interactions, as the test needs");
  if (options.users <= 0 || options.users >= std::ssize(users)) return users;
  Draws draws(options.seed, kUserDraws);
  for (int64_t i = 0; i < options.users; ++i) std::swap(users[i], users[i + draws.below(std::ssize(users) - i)]);
  users.resize(options.users);
  std::sort(users.begin(), users.end());
  return users;
}

Evaluation evaluate(Recommender& model, const Split& split, const EvaluationOptions& options) {
  const std::vector<int64_t> users = tested_users(split, options);
  LUMEN_CHECK(options.plans.size() <= 1 || options.plans.size() == users.size());
  Evaluation sums;
  const int64_t width = model.items() + 1;
  for (size_t first = 0; first < users.size(); first += kUsersAtOnce) {
    if (options.stop && *options.stop) break;
    std::vector<std::vector<ItemId>> histories;
    std::vector<const Plan*> plans;
    for (size_t i = first; i < std::min(first + kUsersAtOnce, users.size()); ++i) {
      histories.push_back(split.seen(users[i], options.test));
      if (!options.plans.empty()) plans.push_back(&options.plans[options.plans.size() == 1 ? 0 : i]);
    }
    const std::vector<float> scores = model.scores(histories, plans);
    for (size_t i = 0; i < histories.size(); ++i)
      add_user(sums, split, users[first + i], options, std::span(scores).subspan(i * width, width));
  }
  return means(sums);
}

Evaluation evaluate_popularity(const Split& split, const EvaluationOptions& options) {
  std::vector<float> counts(split.all.items() + 1);
  for (size_t user = 0; user < split.all.users.size(); ++user)
    for (const ItemId item : split.training(user)) ++counts[item];
  Evaluation sums;
  for (const int64_t user : tested_users(split, options)) add_user(sums, split, user, options, counts);
  return means(sums);
}

}  // namespace lumen::recommend
