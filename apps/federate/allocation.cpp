#include "apps/federate/allocation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/draws/draws.h"
#include "base/check.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "base/structured/json_numbers.h"

namespace lumen::federate {
namespace {

constexpr double kSmoothing = 1e-3, kLeastTime = 1e-9;
constexpr size_t kMostAlone = 100, kMostGroups = 8;
constexpr uint64_t kWindowDraws = 0x77696e64, kGroupDraws = 0x67726f75;

double weighed(const ClientFacts& c, const AllocationSettings& s) {
  return c.share * (1 + s.kappa * c.distance / std::log(2.0));
}

// The error that Q saves for this client.
double gain(const ClientFacts& c, const AllocationSettings& s) {
  return weighed(c, s) * (c.off[size_t(ClientStrategy::after)] - c.off[size_t(ClientStrategy::aware)]);
}

double error_of(const ClientFacts& c, ClientStrategy strategy, const AllocationSettings& s) {
  return c.share * weighed(c, s) * c.off[size_t(strategy)];
}

double error_in_after(std::span<const ClientFacts> clients, const AllocationSettings& s) {
  double sum = 0;
  for (const ClientFacts& c : clients) sum += error_of(c, ClientStrategy::after, s);
  return std::max(sum, 1e-300);
}

double percentile(std::vector<double> values, double share) {
  LUMEN_CHECK(!values.empty());
  const size_t at = std::min<size_t>(values.size() - 1, share * values.size());
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[at];
}

std::vector<double> smoothed_shares(std::span<const double> counts) {
  double sum = 0;
  for (const double n : counts) sum += n;
  std::vector<double> out;
  for (const double n : counts)
    out.push_back(((sum > 0 ? n / sum : 0) + kSmoothing) / (1 + kSmoothing * counts.size()));
  return out;
}

using ClientGroups = std::vector<std::vector<size_t>>;

// Groups clients by (speed, distance), each scaled to 0 .. 1: k-means with initial centres evenly spaced along the
// speeds.
ClientGroups groups_of(std::span<const ClientFacts> clients, const AllocationSettings& settings) {
  ClientGroups out;
  if (clients.size() <= kMostAlone) {
    for (size_t i = 0; i < clients.size(); ++i) out.push_back({i});
    return out;
  }
  std::vector<std::array<double, 2>> points;
  double slowest = kLeastTime;
  for (const ClientFacts& c : clients) slowest = std::max(slowest, c.seconds(ClientStrategy::aware, settings.epochs));
  for (const ClientFacts& c : clients)
    points.push_back({c.seconds(ClientStrategy::aware, settings.epochs) / slowest, c.distance / std::log(2.0)});
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return points[a] < points[b]; });
  std::vector<std::array<double, 2>> centres;
  for (size_t k = 0; k < kMostGroups; ++k)
    centres.push_back(points[order[(2 * k + 1) * order.size() / (2 * kMostGroups)]]);
  for (int pass = 0; pass < 20; ++pass) {
    out.assign(centres.size(), {});
    for (size_t i = 0; i < points.size(); ++i) {
      const auto far = [&](const std::array<double, 2>& c) {
        return std::hypot(points[i][0] - c[0], points[i][1] - c[1]);
      };
      const auto nearest = std::min_element(centres.begin(), centres.end(),
                                            [&](const auto& a, const auto& b) { return far(a) < far(b); });
      out[nearest - centres.begin()].push_back(i);
    }
    for (size_t k = 0; k < centres.size(); ++k) {
      if (out[k].empty()) continue;
      centres[k] = {};
      for (const size_t i : out[k])
        for (const int d : {0, 1}) centres[k][d] += points[i][d] / out[k].size();
    }
  }
  std::erase_if(out, [](const auto& group) { return group.empty(); });
  return out;
}

}  // namespace

double ClientFacts::seconds(ClientStrategy s, int64_t epochs) const {
  const size_t i = size_t(s);
  return epochs * examples / std::max(rate[i], kLeastTime) + (bytes_down + bytes_up[i]) / std::max(link, kLeastTime) +
         set_up[i];
}

double label_distance(std::span<const double> own, std::span<const double> all) {
  LUMEN_CHECK(own.size() == all.size());
  const std::vector<double> p = smoothed_shares(own), q = smoothed_shares(all);
  double sum = 0;
  for (size_t k = 0; k < p.size(); ++k) {
    const double m = (p[k] + q[k]) / 2;
    sum += (p[k] * std::log(p[k] / m) + q[k] * std::log(q[k] / m)) / 2;
  }
  return std::clamp(sum, 0.0, std::log(2.0));
}

double change_distance(const Weights& own, const Weights& mean) {
  double both = 0, a = 0, b = 0;
  for (const auto& [name, x] : own) {
    const std::vector<float>& y = mean.at(name);
    for (size_t i = 0; i < x.size(); ++i) {
      both += double{x[i]} * y[i];
      a += double{x[i]} * x[i];
      b += double{y[i]} * y[i];
    }
  }
  return a > 0 && b > 0 ? std::clamp(1 - both / std::sqrt(a * b), 0.0, std::log(2.0)) : 0;
}

double unavoidable_seconds(std::span<const ClientFacts> clients, const AllocationSettings& settings) {
  double most = kLeastTime;
  for (const ClientFacts& c : clients) most = std::max(most, c.seconds(ClientStrategy::after, settings.epochs));
  return most;
}

double round_seconds(std::span<const ClientFacts> clients, const Allocation& allocation,
                     const AllocationSettings& settings) {
  double most = kLeastTime;
  for (size_t i = 0; i < clients.size(); ++i) most = std::max(most, clients[i].seconds(allocation[i], settings.epochs));
  return most;
}

double relative_error(std::span<const ClientFacts> clients, const Allocation& allocation,
                      const AllocationSettings& settings) {
  double sum = 0;
  for (size_t i = 0; i < clients.size(); ++i) sum += error_of(clients[i], allocation[i], settings);
  return sum / error_in_after(clients, settings);
}

double allocation_score(std::span<const ClientFacts> clients, const Allocation& allocation,
                        const AllocationSettings& settings) {
  return -relative_error(clients, allocation, settings) -
         settings.lambda * round_seconds(clients, allocation, settings) / unavoidable_seconds(clients, settings);
}

bool is_worth_aware(std::span<const ClientFacts> clients, size_t client, const AllocationSettings& settings) {
  const ClientFacts& c = clients[client];
  if (!c.has_memory(ClientStrategy::aware)) return false;
  const double unavoidable = unavoidable_seconds(clients, settings);
  const double more = c.seconds(ClientStrategy::aware, settings.epochs) / unavoidable - 1;
  const double spared = c.share * gain(c, settings) / error_in_after(clients, settings);
  return more <= settings.slack || spared > settings.lambda * more;
}

Allocation coarse_allocation(std::span<const ClientFacts> clients, const AllocationSettings& settings) {
  Allocation out(clients.size(), ClientStrategy::after);
  const double unavoidable = unavoidable_seconds(clients, settings);
  struct Unit {
    std::vector<size_t> members;
    double order = 0;
  };
  std::vector<Unit> rest;
  for (const std::vector<size_t>& group : groups_of(clients, settings)) {
    double slowest = 0, gains = 0;
    bool fits = true;
    for (const size_t i : group) {
      slowest = std::max(slowest, clients[i].seconds(ClientStrategy::aware, settings.epochs));
      gains += gain(clients[i], settings);
      fits = fits && clients[i].has_memory(ClientStrategy::aware);
    }
    if (!fits) continue;
    if (slowest <= (1 + settings.slack) * unavoidable)
      for (const size_t i : group) out[i] = ClientStrategy::aware;
    else
      rest.push_back({group, gains / (slowest - unavoidable)});
  }
  std::stable_sort(rest.begin(), rest.end(), [](const Unit& a, const Unit& b) { return a.order > b.order; });
  double score = allocation_score(clients, out, settings);
  for (const Unit& unit : rest) {
    Allocation flipped = out;
    for (const size_t i : unit.members) flipped[i] = ClientStrategy::aware;
    const double now = allocation_score(clients, flipped, settings);
    if (now <= score) break;
    score = now;
    out = std::move(flipped);
  }
  return out;
}

Allocation cold_allocation(std::span<const ClientFacts> clients, std::span<const double> speed) {
  LUMEN_CHECK(clients.size() == speed.size() && !clients.empty());
  std::vector<double> counts;
  for (const ClientFacts& c : clients) counts.push_back(c.share * (1 + 2 * c.distance / std::log(2.0)));
  const double median = percentile(counts, 0.5), slow = percentile({speed.begin(), speed.end()}, 0.3);
  Allocation out;
  for (size_t i = 0; i < clients.size(); ++i)
    out.push_back(counts[i] > median && speed[i] > slow && clients[i].has_memory(ClientStrategy::aware)
                      ? ClientStrategy::aware
                      : ClientStrategy::after);
  return out;
}

Allocation drawn_allocation(size_t clients, size_t aware, uint64_t seed) {
  LUMEN_CHECK(aware <= clients);
  std::vector<size_t> order(clients);
  std::iota(order.begin(), order.end(), 0);
  Draws draws(seed, kGroupDraws);
  for (size_t i = clients; i-- > 1;) std::swap(order[i], order[draws.below(i + 1)]);
  Allocation out(clients, ClientStrategy::after);
  for (size_t i = 0; i < aware; ++i) out[order[i]] = ClientStrategy::aware;
  return out;
}

Allocation speed_allocation(std::span<const ClientFacts> clients, const AllocationSettings& settings) {
  const double most = (1 + settings.slack) * unavoidable_seconds(clients, settings);
  Allocation out;
  for (const ClientFacts& c : clients)
    out.push_back(c.has_memory(ClientStrategy::aware) && c.seconds(ClientStrategy::aware, settings.epochs) <= most
                      ? ClientStrategy::aware
                      : ClientStrategy::after);
  return out;
}

Allocation data_allocation(std::span<const ClientFacts> clients, size_t aware, const AllocationSettings& settings) {
  std::vector<size_t> order(clients.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weighed(clients[a], settings) > weighed(clients[b], settings); });
  Allocation out(clients.size(), ClientStrategy::after);
  for (size_t i = 0; i < std::min(aware, order.size()); ++i) out[order[i]] = ClientStrategy::aware;
  return out;
}

size_t aware_count(const Allocation& allocation) {
  return std::count(allocation.begin(), allocation.end(), ClientStrategy::aware);
}

Ridge::Ridge(const std::vector<std::vector<double>>& x, const std::vector<double>& y, double penalty) {
  LUMEN_CHECK(!x.empty() && x.size() == y.size());
  const size_t n = x.size(), d = x[0].size();
  mean_.assign(d, 0);
  deviation_.assign(d, 0);
  for (const auto& row : x)
    for (size_t j = 0; j < d; ++j) mean_[j] += row[j] / n;
  for (const auto& row : x)
    for (size_t j = 0; j < d; ++j) deviation_[j] += (row[j] - mean_[j]) * (row[j] - mean_[j]) / n;
  for (double& s : deviation_) s = s > 1e-24 ? std::sqrt(s) : 1;
  level_ = std::accumulate(y.begin(), y.end(), 0.0) / n;
  // (X^T X + penalty) c = X^T y, by Cholesky: the matrix is positive definite.
  std::vector<double> a(d * d), b(d);
  for (size_t r = 0; r < n; ++r)
    for (size_t i = 0; i < d; ++i) {
      const double xi = (x[r][i] - mean_[i]) / deviation_[i];
      b[i] += xi * (y[r] - level_);
      for (size_t j = 0; j <= i; ++j) a[i * d + j] += xi * (x[r][j] - mean_[j]) / deviation_[j];
    }
  for (size_t i = 0; i < d; ++i) a[i * d + i] += penalty;
  for (size_t i = 0; i < d; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * d + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * d + k] * a[j * d + k];
      a[i * d + j] = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / a[j * d + j];
    }
  coefficient_ = b;
  for (size_t i = 0; i < d; ++i) {
    for (size_t k = 0; k < i; ++k) coefficient_[i] -= a[i * d + k] * coefficient_[k];
    coefficient_[i] /= a[i * d + i];
  }
  for (size_t i = d; i-- > 0;) {
    for (size_t k = i + 1; k < d; ++k) coefficient_[i] -= a[k * d + i] * coefficient_[k];
    coefficient_[i] /= a[i * d + i];
  }
}

double Ridge::at(std::span<const double> x) const {
  double sum = level_;
  for (size_t j = 0; j < coefficient_.size(); ++j) sum += coefficient_[j] * (x[j] - mean_[j]) / deviation_[j];
  return sum;
}

FineAdjuster::FineAdjuster(AllocationSettings settings, Allocation coarse, uint64_t seed)
    : settings_(settings), current_(coarse), coarse_(coarse), before_(std::move(coarse)), seed_(seed) {}

std::vector<double> FineAdjuster::features(std::span<const ClientFacts> clients, const Allocation& allocation) const {
  double aware = 0, share = 0, distances = 0, farthest = 0, off = 0;
  for (size_t i = 0; i < clients.size(); ++i) {
    const bool is_aware = allocation[i] == ClientStrategy::aware;
    aware += is_aware;
    share += is_aware ? clients[i].share : 0;
    distances += is_aware ? 0 : clients[i].distance;
    farthest = std::max(farthest, is_aware ? 0 : clients[i].distance);
    off += clients[i].off[size_t(allocation[i])] / clients.size();
  }
  const double n = clients.size();
  return {
      aware / n,  share,      aware < n ? distances / (n - aware) : 0,
      farthest,   off,        done_,
      last_loss_, last_drop_, round_seconds(clients, allocation, settings_) / unavoidable_seconds(clients, settings_)};
}

Allocation FineAdjuster::drawn_near(const Allocation& allocation, std::span<const ClientFacts> clients) const {
  Allocation out = allocation;
  Draws draws(seed_, kWindowDraws, windows_);
  for (size_t i = 0; i < out.size(); ++i)
    if (draws.uniform() < 0.3)
      out[i] = out[i] == ClientStrategy::aware || !clients[i].has_memory(ClientStrategy::aware) ? ClientStrategy::after
                                                                                                : ClientStrategy::aware;
  return out;
}

std::vector<Allocation> FineAdjuster::candidates(std::span<const ClientFacts> clients) const {
  std::vector<Allocation> out;
  std::vector<size_t> aware, after;
  for (size_t i = 0; i < current_.size(); ++i) {
    const bool is_aware = current_[i] == ClientStrategy::aware;
    (is_aware ? aware : after).push_back(i);
    if (!is_aware && !clients[i].has_memory(ClientStrategy::aware)) continue;
    out.push_back(current_);
    out.back()[i] = is_aware ? ClientStrategy::after : ClientStrategy::aware;
  }
  if (aware.empty() || after.empty()) return out;
  Draws draws(seed_, kWindowDraws + 1, windows_);
  for (size_t n = 0; n < 3 * current_.size(); ++n) {
    const size_t a = aware[draws.below(std::ssize(aware))], b = after[draws.below(std::ssize(after))];
    if (!clients[b].has_memory(ClientStrategy::aware)) continue;
    out.push_back(current_);
    std::swap(out.back()[a], out.back()[b]);
  }
  return out;
}

void FineAdjuster::propose(std::span<const ClientFacts> clients) {
  const std::vector<Allocation> some = candidates(clients);
  if (some.empty()) return;
  Draws draws(seed_, kWindowDraws + 2, windows_);
  if (draws.uniform() < settings_.greed) {
    before_ = current_;
    current_ = some[draws.below(std::ssize(some))];
    return;
  }
  std::vector<std::vector<double>> x;
  std::vector<double> drop, seconds;
  for (const Record& r : records_) {
    x.push_back(r.features);
    drop.push_back(r.drop);
    seconds.push_back(r.seconds);
  }
  const Ridge drops(x, drop, 1), times(x, seconds, 1);
  const double least = *std::min_element(seconds.begin(), seconds.end()) / 2;
  const auto rate = [&](const Allocation& a) {
    const std::vector<double> f = features(clients, a);
    return drops.at(f) / std::max(times.at(f), std::max(least, kLeastTime));
  };
  const double now = rate(current_);
  const Allocation* best = nullptr;
  double most = now + settings_.better * std::fabs(now);
  for (const Allocation& a : some)
    if (const double r = rate(a); r > most) {
      most = r;
      best = &a;
    }
  if (!best) return;
  before_ = current_;
  current_ = *best;
}

void FineAdjuster::finish(const Window& window, std::span<const ClientFacts> clients) {
  done_ = window.done;
  last_loss_ = window.loss_before;
  const double drop = window.loss_before - window.loss_after, rate = drop / std::max(window.seconds, kLeastTime);
  records_.push_back({features(clients, current_), drop, window.seconds});
  if (std::ssize(records_) > settings_.remembered) records_.erase(records_.begin());
  last_drop_ = drop;
  ++windows_;
  if (windows_ < settings_.first) {
    current_ = drawn_near(coarse_, clients);
    return;
  }
  if (windows_ == settings_.first) {
    // Random allocations are no basis for further changes.
    current_ = before_ = coarse_;
    rate_before_ = 0;
  }
  worse_ = before_ != current_ && rate < 0.9 * rate_before_ ? worse_ + 1 : 0;
  if (worse_ >= 2) {
    current_ = before_;
    worse_ = 0;
    return;
  }
  if (worse_ > 0) return;  // one more window decides
  const Allocation was = current_;
  propose(clients);
  if (was != current_) rate_before_ = rate;
}

nlohmann::json FineAdjuster::state() const {
  const auto words = [](const Allocation& a) {
    std::string out;
    for (const ClientStrategy s : a) out += char('0' + int(s));
    return out;
  };
  nlohmann::json records = nlohmann::json::array();
  for (const Record& r : records_)
    records.push_back({{"features", r.features}, {"drop", r.drop}, {"seconds", r.seconds}});
  return {{"current", words(current_)}, {"coarse", words(coarse_)}, {"before", words(before_)},
          {"windows", windows_},        {"worse", worse_},          {"rate_before", rate_before_},
          {"last_loss", last_loss_},    {"last_drop", last_drop_},  {"done", done_},
          {"records", records}};
}

void FineAdjuster::set_state(const nlohmann::json& state, const std::string& where) {
  const auto read = [&](const char* key, Allocation& to) {
    const std::string words = json_text(state, key, where);
    Allocation out;
    for (const char c : words) {
      if (c < '0' || c >= '0' + kStrategies) throw user_error("{}: \"{}\" is no allocation", where, key);
      out.push_back(ClientStrategy(c - '0'));
    }
    if (out.size() != current_.size()) throw user_error("{}: \"{}\" is for {} clients", where, key, out.size());
    to = std::move(out);
  };
  read("current", current_);
  read("coarse", coarse_);
  read("before", before_);
  windows_ = json_integer(state, "windows", where);
  worse_ = int(json_integer(state, "worse", where));
  rate_before_ = json_real(state, "rate_before", where);
  last_loss_ = json_real(state, "last_loss", where);
  last_drop_ = json_real(state, "last_drop", where);
  done_ = json_real(state, "done", where);
  records_.clear();
  for (const nlohmann::json& r : json_member(state, "records", where)) {
    Record one{json_reals(r, "features", where), json_real(r, "drop", where), json_real(r, "seconds", where)};
    if (!records_.empty() && one.features.size() != records_[0].features.size())
      throw user_error("{}: records differ in their features", where);
    records_.push_back(std::move(one));
  }
}

}  // namespace lumen::federate
