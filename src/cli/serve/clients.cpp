#include "cli/serve/clients.h"

#include <algorithm>

namespace lumen::cli {
namespace {

constexpr size_t kMostClients = 10'000;  // clients tracked at once

}  // namespace

bool ClientCounts::enter(const std::string& client) {
  if (most_ == 0) return true;
  const std::lock_guard lock(mutex_);
  int64_t& count = counts_[client];
  if (count >= most_) return false;
  ++count;
  return true;
}

void ClientCounts::leave(const std::string& client) {
  if (most_ == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = counts_.find(client);
  if (at != counts_.end() && --at->second == 0) counts_.erase(at);
}

// A client whose budget is full again is equivalent to a new one, so its entry is dropped.
void ClientRates::forget_idle(double now) {
  std::erase_if(budgets_, [&](const auto& entry) {
    return entry.second.left + (now - entry.second.at) * rate_ >= std::max(1.0, 2 * rate_);
  });
}

double ClientRates::ask(const std::string& client, double now) {
  if (rate_ == 0) return 0;
  const double full = std::max(1.0, 2 * rate_);
  const std::lock_guard lock(mutex_);
  if (budgets_.size() >= kMostClients && !budgets_.contains(client)) {
    forget_idle(now);
    if (budgets_.size() >= kMostClients) return 1 / rate_;
  }
  const auto [at, is_new] = budgets_.try_emplace(client, Budget{full, now});
  Budget& budget = at->second;
  budget.left = std::min(full, budget.left + (now - budget.at) * rate_);
  budget.at = now;
  if (budget.left < 1) return (1 - budget.left) / rate_;
  budget.left -= 1;
  return 0;
}

}  // namespace lumen::cli
