#include "apps/federate/simulate/simulate.h"

#include <algorithm>
#include <numeric>

#include "apps/draws/draws.h"
#include "base/check.h"
#include "base/error.h"
#include "base/stopwatch.h"

namespace lumen::federate {
namespace {

constexpr uint64_t kClassDraws = 0x636c6173, kLocalDraws = 0x6c6f6361;
constexpr int64_t kRangeBatches = 4;

}  // namespace

Simulation::Simulation(run::Engine& engine, const model::arch::Library& library, SimulationSettings settings,
                       const Examples& data, Parts parts, const Examples& test)
    : engine_(engine),
      settings_(std::move(settings)),
      data_(data),
      parts_(std::move(parts)),
      test_(test),
      network_(engine, library, settings_.run.network),
      trainer_(engine, network_, local_settings(settings_.run, library.formats())),
      initial_(weights_of(network_)) {
  LUMEN_CHECK(!settings_.classes.empty() && !parts_.empty());
  settings_.run.clients = std::ssize(parts_);
  settings_.run.sampled = std::min(settings_.run.sampled, settings_.run.clients);
  settings_.run.allocation.epochs = settings_.run.epochs;
}

std::vector<ClientFacts> Simulation::facts() const {
  std::vector<double> all(data_.classes);
  double examples = 0;
  for (const auto& part : parts_) {
    examples += double(part.size());
    for (const int64_t i : part) ++all[data_.shown[i]];
  }
  const double down = double(change_bytes(network_, nullptr)),
               up = double(change_bytes(network_, trainer_.settings().formats.upload));
  // Equally many clients of each class, in random order.
  std::vector<size_t> classes(parts_.size());
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = i % settings_.classes.size();
  Draws draws(settings_.run.seed, kClassDraws);
  for (size_t i = classes.size(); i-- > 1;) std::swap(classes[i], classes[draws.below(i + 1)]);
  std::vector<ClientFacts> out;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const DeviceClass& c = settings_.classes[classes[i]];
    std::vector<double> own(data_.classes);
    for (const int64_t e : parts_[i]) ++own[data_.shown[e]];
    ClientFacts f;
    f.examples = std::ssize(parts_[i]);
    f.share = f.examples / examples;
    if (!settings_.hides_labels) f.distance = label_distance(own, all);
    const double plain = settings_.float_rate * c.speed;
    f.rate = {plain, plain * c.gain, plain / (1 + settings_.fake_share)};
    // Ranges take forward passes of some batches in float: a third of a step each.
    const double batch = settings_.run.batch / (3 * plain);
    f.set_up = {0, kRangeBatches * batch, batch};
    f.bytes_down = down;
    f.bytes_up = {down, up, up};
    f.link = c.link;
    out.push_back(f);
  }
  return out;
}

double Simulation::measured_fake_share(double seconds) {
  const double plain = trainer_.rate(initial_, data_, ClientStrategy::whole, seconds),
               fake = trainer_.rate(initial_, data_, ClientStrategy::aware, seconds);
  return std::max(0.0, plain / fake - 1);
}

Simulated Simulation::run(FederateMethod method, const std::function<void(int64_t, const SimulatedRound&)>& told,
                          const std::atomic<bool>* stop) {
  const Stopwatch watch;
  const FederateSettings& s = settings_.run;
  Allocator allocator(method, s.allocation, s.seed, facts());
  Weights global = initial_;
  std::vector<Weights> residuals(parts_.size());
  Simulated out;
  double passed = 0;
  for (int64_t round = 0; round < s.rounds && !(stop && *stop); ++round) {
    SimulatedRound now;
    std::map<int64_t, ClientAnswer> answers;
    double examples = 0, slowest = 0;
    now.aware = double(aware_count(allocator.current())) / double(parts_.size());
    for (const int64_t client : sampled_clients(s.clients, s.sampled, s.seed, round)) {
      const ClientStrategy strategy = allocator.current()[client];
      const ClientFacts& facts = allocator.clients()[client];
      const uint64_t seed = Draws(s.seed ^ kLocalDraws, round, client).next();
      const LocalResult local = trainer_.train(global, data_, parts_[client], strategy, seed);
      const FormatRef format = strategy == ClientStrategy::whole ? nullptr : trainer_.settings().formats.upload;
      const ClientChange change =
          encoded_change(engine_, network_, format, global, local.weights, s.feedback ? &residuals[client] : nullptr);
      answers[client] = {facts.examples, decoded_change(engine_, network_, format, change)};
      const double seconds = facts.seconds(strategy, s.epochs);
      if (seconds > slowest) {
        slowest = seconds;
        now.set_up = facts.set_up[size_t(strategy)];
        now.link = (facts.bytes_down + facts.bytes_up[size_t(strategy)]) / facts.link;
        now.compute = seconds - now.set_up - now.link;
      }
      now.loss += facts.examples * local.last_loss;
      examples += double(facts.examples);
      allocator.saw(client, strategy, local.off, seconds);
    }
    allocator.saw_changes(answers, std::vector<bool>(parts_.size(), settings_.hides_labels));
    average_into(global, answers);
    now.loss /= examples;
    passed += slowest;
    now.seconds = passed;
    allocator.finish_round(now.loss, slowest, round, s.rounds);
    now.is_evaluated = (round + 1) % settings_.evaluate_every == 0 || round + 1 == s.rounds;
    if (now.is_evaluated) {
      now.accuracy = accuracy_of(network_, global, test_, settings_.tested);
      now.coded_accuracy =
          method == FederateMethod::whole
              ? now.accuracy
              : accuracy_of(network_, through_format(engine_, network_, trainer_.settings().formats.weights, global),
                            test_, settings_.tested);
    }
    out.rounds.push_back(now);
    if (told) told(round, now);
  }
  out.overhead = allocator.overhead();
  out.last = allocator.current();
  out.wall = watch.seconds();
  return out;
}

}  // namespace lumen::federate
