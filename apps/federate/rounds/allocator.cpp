// Choice of clients' strategies during the rounds.
#include <algorithm>
#include <cmath>

#include "apps/federate/rounds/rounds.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "base/structured/json.h"
#include "base/structured/json_numbers.h"

namespace lumen::federate {
namespace {

constexpr uint64_t kMethodDraws = 0x6d657468;
constexpr double kDrift = 0.3;

}  // namespace

Allocator::Allocator(FederateMethod method, AllocationSettings settings, uint64_t seed,
                     std::vector<ClientFacts> clients)
    : method_(method), settings_(settings), clients_(std::move(clients)), is_known_(clients_.size()) {
  const Stopwatch watch;
  const size_t n = clients_.size();
  const Allocation coarse = coarse_allocation(clients_, settings_);
  const auto all = [&](ClientStrategy s) { return Allocation(n, s); };
  switch (method_) {
    case FederateMethod::whole:
      current_ = all(ClientStrategy::whole);
      break;
    case FederateMethod::after:
      current_ = all(ClientStrategy::after);
      break;
    case FederateMethod::aware:
      current_ = all(ClientStrategy::aware);
      break;
    case FederateMethod::drawn:
      current_ = drawn_allocation(n, aware_count(coarse), seed ^ kMethodDraws);
      break;
    case FederateMethod::speed:
      current_ = speed_allocation(clients_, settings_);
      break;
    case FederateMethod::data:
      current_ = data_allocation(clients_, aware_count(coarse), settings_);
      break;
    case FederateMethod::coarse:
      current_ = coarse;
      break;
    case FederateMethod::full:
      current_ = coarse;
      break;
  }
  if (method_ == FederateMethod::full) adjuster_.emplace(settings_, coarse, seed ^ kMethodDraws);
  overhead_ += watch.seconds();
}

void Allocator::saw(size_t client, ClientStrategy strategy, double off, double seconds) {
  const Stopwatch watch;
  ClientFacts& c = clients_.at(client);
  if (strategy != ClientStrategy::whole) {
    c.off[size_t(strategy)] = off;
    is_known_[client][size_t(strategy)] = true;
  }
  const double expected = c.seconds(strategy, settings_.epochs);
  if (expected > 0 && seconds > 0 && std::fabs(seconds / expected - 1) > kDrift) {
    for (double& rate : c.rate) rate *= expected / seconds;
    again_for(client);
  }
  overhead_ += watch.seconds();
}

void Allocator::saw_changes(const std::map<int64_t, ClientAnswer>& answers, const std::vector<bool>& hides_labels) {
  const auto hides = [&](const auto& answer) { return hides_labels.at(answer.first); };
  if (std::ranges::none_of(answers, hides) || examples_in(answers) <= 0) return;
  const Stopwatch watch;
  Weights mean = answers.begin()->second.change;
  for (auto& [name, numbers] : mean) {
    const std::vector<double> exact = mean_change(answers, name, numbers.size());
    std::copy(exact.begin(), exact.end(), numbers.begin());
  }
  for (const auto& [client, answer] : answers) {
    if (!hides_labels[client]) continue;
    clients_.at(client).distance = change_distance(answer.change, mean);
    again_for(client);
  }
  overhead_ += watch.seconds();
}

// Decides again for a single client.
void Allocator::again_for(size_t client) {
  if (method_ == FederateMethod::coarse)
    current_[client] = is_worth_aware(clients_, client, settings_) ? ClientStrategy::aware : ClientStrategy::after;
}

void Allocator::finish_round(double loss, double seconds, int64_t round, int64_t rounds) {
  const Stopwatch watch;
  // Missing measurements of a client in a strategy are replaced by the mean of the other clients.
  for (const ClientStrategy s : {ClientStrategy::after, ClientStrategy::aware}) {
    double sum = 0;
    int64_t known = 0;
    for (size_t i = 0; i < clients_.size(); ++i)
      if (is_known_[i][size_t(s)]) {
        sum += clients_[i].off[size_t(s)];
        ++known;
      }
    for (size_t i = 0; known > 0 && i < clients_.size(); ++i)
      if (!is_known_[i][size_t(s)]) clients_[i].off[size_t(s)] = sum / known;
  }
  loss_sum_ += loss;
  seconds_sum_ += seconds;
  ++in_window_;
  if (!has_before_) {
    loss_before_ = loss;
    has_before_ = true;
  }
  if (adjuster_ && in_window_ >= settings_.every) {
    const double mean = loss_sum_ / in_window_;
    adjuster_->finish({loss_before_, mean, seconds_sum_ / in_window_, double(round + 1 - in_window_) / rounds},
                      clients_);
    current_ = adjuster_->current();
    loss_before_ = mean;
    loss_sum_ = seconds_sum_ = 0;
    in_window_ = 0;
  }
  overhead_ += watch.seconds();
}

nlohmann::json Allocator::state() const {
  nlohmann::json clients = nlohmann::json::array();
  std::string words;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const ClientFacts& c = clients_[i];
    clients.push_back({{"rate", c.rate},
                       {"off", c.off},
                       {"link", c.link},
                       {"distance", c.distance},
                       {"known", int(is_known_[i][1]) + 2 * int(is_known_[i][2])}});
    words += char('0' + int(current_[i]));
  }
  return {{"clients", clients},
          {"current", words},
          {"adjuster", adjuster_ ? adjuster_->state() : nlohmann::json()},
          {"loss_sum", loss_sum_},
          {"seconds_sum", seconds_sum_},
          {"loss_before", loss_before_},
          {"in_window", in_window_},
          {"has_before", has_before_}};
}

void Allocator::set_state(const nlohmann::json& state, const std::string& where) {
  const nlohmann::json& clients = json_member(state, "clients", where);
  const std::string words = json_text(state, "current", where);
  if (!clients.is_array() || clients.size() != clients_.size() || words.size() != clients_.size())
    throw user_error("{}: it is of {} clients", where, clients.size());
  for (size_t i = 0; i < clients_.size(); ++i) {
    for (const auto& [key, to] : {std::pair("rate", &clients_[i].rate), {"off", &clients_[i].off}}) {
      const std::vector<double> values = json_reals(clients[i], key, where);
      if (values.size() != to->size()) throw user_error("{}: \"{}\" has {} numbers", where, key, values.size());
      std::copy(values.begin(), values.end(), to->begin());
    }
    clients_[i].link = json_real(clients[i], "link", where);
    clients_[i].distance = json_real(clients[i], "distance", where);
    const int64_t known = json_within(clients[i], "known", 0, 3, where);
    is_known_[i] = {false, (known & 1) != 0, (known & 2) != 0};
    if (words[i] < '0' || words[i] >= '0' + kStrategies) throw user_error("{}: no strategy", where);
    current_[i] = ClientStrategy(words[i] - '0');
  }
  if (adjuster_) adjuster_->set_state(json_member(state, "adjuster", where), where);
  loss_sum_ = json_real(state, "loss_sum", where);
  seconds_sum_ = json_real(state, "seconds_sum", where);
  loss_before_ = json_real(state, "loss_before", where);
  in_window_ = json_within(state, "in_window", 0, 1'000'000'000, where);
  has_before_ = json_boolean(state, "has_before", false, where);
}

}  // namespace lumen::federate
